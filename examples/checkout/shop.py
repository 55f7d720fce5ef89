"""Orders that wait for their payment and ship once when it arrives. Knows nothing of the web."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import sqlite3
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import NamedTuple

from momopay import (
    AsyncClient,
    Callback,
    CallbackSigner,
    Journal,
    MomoPayError,
    OutcomeUnknownError,
    Transaction,
)

logger = logging.getLogger("checkout")

SCHEMA = """
CREATE TABLE IF NOT EXISTS orders (
    id TEXT PRIMARY KEY, phone TEXT NOT NULL, amount INTEGER NOT NULL,
    state TEXT NOT NULL DEFAULT 'WAITING' CHECK (state IN ('WAITING', 'PAID', 'FAILED')),
    note TEXT NOT NULL DEFAULT ''
);
CREATE TABLE IF NOT EXISTS parcels (number INTEGER PRIMARY KEY, order_id TEXT NOT NULL);
"""


class Order(NamedTuple):
    """WAITING until the payment ends, then PAID or FAILED."""

    id: str
    phone: str
    amount: int
    state: str
    note: str


class Shop:
    """The orders and their states. Belongs to one event loop."""

    def __init__(self, database: str, url: str, *, every: float) -> None:
        """Open the database. The service sends callbacks to `url`; the shop sweeps every so many seconds as well."""
        self.journal = Journal(f"sqlite:///{database}.journal")
        self._client = AsyncClient(journal=self.journal)
        self._url = url
        self._every = every
        self._db = sqlite3.connect(database)  # a local file is fast; use an async driver for a remote database
        self._db.executescript(SCHEMA)
        self.signer = CallbackSigner(os.environ.get("SHOP_SECRET") or secrets.token_hex())

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[None]:
        """Sweep for as long as the shop is open. Orders that wait stay open when it closes."""
        async with self._client:
            sweeping = asyncio.create_task(self._sweep())
            yield
            sweeping.cancel()
            await asyncio.gather(sweeping, return_exceptions=True)
        self._db.close()
        self.journal.close()

    async def _sweep(self) -> None:
        """Bring the ends that no callback brought, also those of the time when the shop was closed."""
        while True:
            try:
                await self._client.transactions.sweep(handler=self.on_end)
            except MomoPayError as error:
                logger.warning("the next sweep goes on: %s", error)
            await asyncio.sleep(self._every)

    def _orders(self, where: str, *values: str) -> list[Order]:
        return [Order(*row) for row in self._db.execute(f"SELECT * FROM orders WHERE {where}", values)]  # noqa: S608  literals

    def order(self, order_id: str) -> Order:
        """Return an order.

        Raises:
            LookupError: There is no such order.
        """
        for order in self._orders("id = ?", order_id):
            return order
        raise LookupError("no such order")

    async def buy(self, order_id: str, phone: str, amount: int) -> None:
        """Store the order, then prompt: a stored order can be paid at any moment and is never lost."""
        with self._db:
            new = "INSERT OR IGNORE INTO orders (id, phone, amount) VALUES (?, ?, ?)"
            if self._db.execute(new, (order_id, phone, amount)).rowcount == 0:
                return  # the form was sent twice, and the prompt is already on the phone
        callback_url = self.signer.url(f"{self._url}/momo", reference=order_id)
        try:
            await self._client.stk.collect_once(
                reference=order_id,
                amount=amount,
                phone=phone,
                transaction_desc="Coffee",
                callback_url=callback_url,
            )
        except OutcomeUnknownError:  # the customer may have the prompt and may pay: the order stays open
            logger.warning("order %s: the outcome of the prompt is unknown", order_id)
        except MomoPayError as refused:
            self._end(order_id, "FAILED", "We could not reach your phone. Please try again later.")
            logger.warning("order %s: no prompt was sent: %s", order_id, refused)

    async def on_callback(self, callback: Callback) -> None:
        """Confirm a callback and act on it. After an error here the service sends it again."""
        await self.on_end(await self._client.transactions.confirm(callback))

    async def on_end(self, transaction: Transaction) -> None:
        """End the order of a transaction, whether a callback or the sweep brings it."""
        order = self.order(transaction.account_reference or "")
        if transaction.amount != order.amount:
            logger.error("order %s: transaction %s does not fit", order.id, transaction.transaction_id)
        elif transaction.status == "SUCCESS":
            self._end(order.id, "PAID", "")
        elif transaction.status.ended_without_success:
            self._end(order.id, "FAILED", transaction.result_desc or "The payment did not go through.")

    def _end(self, order_id: str, state: str, note: str) -> None:
        """End an order and ship it in one transaction. Only the first of several callers changes anything."""
        # A late PIN may pay an order that had failed.
        before = "FAILED" if state == "PAID" else "WAITING"
        with self._db:
            end = "UPDATE orders SET state = ?, note = ? WHERE id = ? AND state IN ('WAITING', ?)"
            if self._db.execute(end, (state, note, order_id, before)).rowcount == 1 and state == "PAID":
                self._db.execute("INSERT INTO parcels (order_id) VALUES (?)", (order_id,))
