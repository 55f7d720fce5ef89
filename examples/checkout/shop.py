"""Orders that wait for their payment and ship once when it arrives. Knows nothing of the web."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import sqlite3
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import NamedTuple

from momopay import (
    AsyncClient,
    Callback,
    CallbackSigner,
    MomoPayError,
    OutcomeUnknownError,
    PollSchedule,
    Transaction,
)

logger = logging.getLogger("checkout")

SCHEMA = """
CREATE TABLE IF NOT EXISTS orders (
    id TEXT PRIMARY KEY, phone TEXT NOT NULL, amount INTEGER NOT NULL, made_at TEXT NOT NULL,
    state TEXT NOT NULL DEFAULT 'WAITING' CHECK (state IN ('WAITING', 'PAID', 'FAILED')),
    note TEXT NOT NULL DEFAULT '', transaction_id TEXT
);
CREATE TABLE IF NOT EXISTS parcels (number INTEGER PRIMARY KEY, order_id TEXT NOT NULL);
"""


class Order(NamedTuple):
    """WAITING until the payment ends, then PAID or FAILED."""

    id: str
    phone: str
    amount: int
    made_at: str
    state: str
    note: str
    transaction_id: str | None


class Shop:
    """The orders and their states. Belongs to one event loop."""

    def __init__(self, database: str, url: str, schedule: PollSchedule) -> None:
        """Open the database. The service sends callbacks to `url`; the shop polls by `schedule` as well."""
        self._client = AsyncClient()
        self._url = url
        self._schedule = schedule
        self._db = sqlite3.connect(database)  # a local file is fast; use an async driver for a remote database
        self._db.executescript(SCHEMA)
        self.signer = CallbackSigner(os.environ.get("SHOP_SECRET") or secrets.token_hex())
        self._waits: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[None]:
        """Resume the open orders. They stay open when the shop closes."""
        async with self._client:
            for order in self._orders("state = 'WAITING'"):
                self._start_waiting(order)
            yield
            for wait in self._waits:
                wait.cancel()
            await asyncio.gather(*self._waits, return_exceptions=True)
        self._db.close()

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
            made_at = datetime.now(UTC).isoformat()
            new = "INSERT OR IGNORE INTO orders (id, phone, amount, made_at) VALUES (?, ?, ?, ?)"
            if self._db.execute(new, (order_id, phone, amount, made_at)).rowcount == 0:
                return  # the form was sent twice, and the prompt is already on the phone
        callback_url = self.signer.url(f"{self._url}/momo", reference=order_id)
        try:
            prompt = await self._client.stk.initiate(
                amount=amount,
                phone=phone,
                account_reference=order_id,
                transaction_desc="Coffee",
                callback_url=callback_url,
            )
        except OutcomeUnknownError:  # the customer may have the prompt and may pay: the order stays open
            logger.warning("order %s: the outcome of the prompt is unknown", order_id)
        except MomoPayError as refused:
            self._end(order_id, "FAILED", "We could not reach your phone. Please try again later.")
            logger.warning("order %s: no prompt was sent: %s", order_id, refused)
            return
        else:
            with self._db:
                known = "UPDATE orders SET transaction_id = ? WHERE id = ?"
                self._db.execute(known, (prompt.transaction_id, order_id))
        self._start_waiting(self.order(order_id))

    def _start_waiting(self, order: Order) -> None:
        wait = asyncio.create_task(self._follow(order))
        self._waits.add(wait)
        wait.add_done_callback(self._waits.discard)

    async def _follow(self, order: Order) -> None:
        """Wait for the result, in case the callback is lost."""
        try:
            transaction_id = order.transaction_id
            if transaction_id is None:
                await asyncio.sleep(self._schedule.first)  # a new transaction may not be listed yet
                since = datetime.fromisoformat(order.made_at)
                found = await self._client.transactions.find(reference=order.id, since=since, type="STK")
                if not found:
                    return  # absence proves nothing: a callback or the nightly reconciliation may still end it
                transaction_id = found[0].transaction_id
            self.settle(await self._client.transactions.wait(transaction_id, schedule=self._schedule))
        except MomoPayError as error:
            logger.warning("order %s stays open: %s", order.id, error)

    async def on_callback(self, callback: Callback) -> None:
        """Confirm a callback and end its order. After an error here the service sends it again."""
        self._client.transactions.notify(callback)
        self.settle(await self._client.transactions.confirm(callback))

    def settle(self, transaction: Transaction) -> None:
        """End the order of a transaction that has ended."""
        order = self.order(transaction.account_reference or "")
        if transaction.amount != order.amount or order.transaction_id not in {None, transaction.transaction_id}:
            logger.error("order %s: transaction %s does not fit", order.id, transaction.transaction_id)
        elif transaction.status == "SUCCESS":
            self._end(order.id, "PAID", "")
        elif transaction.status.ended_without_success:
            self._end(order.id, "FAILED", transaction.result_desc or "The payment did not go through.")

    def _end(self, order_id: str, state: str, note: str) -> None:
        """End an order and ship it in one transaction. Only the first of several callers changes anything."""
        with self._db:
            end = "UPDATE orders SET state = ?, note = ? WHERE id = ? AND state = 'WAITING'"
            if self._db.execute(end, (state, note, order_id)).rowcount == 1 and state == "PAID":
                self._db.execute("INSERT INTO parcels (order_id) VALUES (?)", (order_id,))
