"""Delivers each end of a transaction to one handler.

A transaction's id, and `end_of` its status, identify an end. A call that delivers one holds the transaction's row in
``momopay_deliveries`` until the history says how that went: delivered, or failed. If the call's process dies, its lease
ends, and the next call takes the row over. FAILED is not delivered after SUCCESS or REVERSED, which outrank it,
whichever arrives first. Therefore two ends of one transaction are never delivered at the same time: the handler of
FAILED might finish last.
"""

from __future__ import annotations

import logging
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import BindParameter, Connection, and_, bindparam, select, update

from momopay.errors import CallbackError, MomoPayError
from momopay.journal import history
from momopay.journal.database import insert_new, update_one
from momopay.journal.entries import EntryKind, HistoryKind, JournalEntry
from momopay.journal.evidence import is_keepable
from momopay.journal.leases import Lease
from momopay.journal.schema import TAKE_LEASE, deliveries
from momopay.journal.store import Store
from momopay.models.callbacks import CallbackTransaction
from momopay.models.enums import TransactionStatus, TransactionType
from momopay.models.transactions import TransactionSummary

logger: logging.Logger = logging.getLogger("momopay")

HANDLER_SECONDS: Final = 600.0  # after which a handler counts as dead, even if its process is alive

_row: Final = deliveries.c
_ACCOUNT: Final[BindParameter[str]] = bindparam("the_account")
_ID: Final[BindParameter[str]] = bindparam("the_id")
_IS_TRANSACTION: Final = and_(_row.account == _ACCOUNT, _row.transaction_id == _ID)
_FIND: Final = select(deliveries).where(_IS_TRANSACTION)
_TAKE_OVER: Final = update(deliveries).where(_IS_TRANSACTION, _row.claim == bindparam("the_claim")).values(TAKE_LEASE)
_DELIVERIES: Final = history.deliveries_of(_ACCOUNT, _ID)


@dataclass(frozen=True)
class End:
    """An end of a transaction, and the payment that it is of."""

    kind: EntryKind
    reference: str
    transaction_id: str
    status: TransactionStatus


def end_in(record: TransactionSummary | CallbackTransaction, entry: JournalEntry | None) -> End:
    """Return the end that a record of the service shows. Without an entry, it has the service's reference."""
    kind = EntryKind.PAYOUT if record.type is TransactionType.B2C else EntryKind.COLLECTION
    known = (kind, record.account_reference or "") if entry is None else (entry.kind, entry.reference)
    return End(*known, record.transaction_id, record.status)


class Deliveries:
    """The deliveries of one account."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def was_delivered(self, transaction_id: str, status: TransactionStatus) -> bool:
        """Return whether an end, or one that outranks it, was delivered."""
        if not is_keepable(transaction_id):
            return False
        with self._store.database.connection() as connection:
            return history.was_delivered(self._read(connection, transaction_id), status)

    @contextmanager
    def handling(self, end: End) -> Generator[bool]:
        """Hold an end while it is handled; see `Journal.handling`."""
        with self._store.leases.lease() as lease:
            if not self._take(end, lease):
                yield False
                return
            try:
                yield True
            except BaseException:
                try:
                    self._add(end, lease, HistoryKind.DELIVERY_FAILED)
                except MomoPayError as error:
                    # Not raised, so that the caller gets the handler's error. The end of the lease frees the row.
                    logger.error("the end of %s: %s", end.transaction_id, error)  # noqa: TRY400
                raise
            self._add(end, lease, HistoryKind.DELIVERED)

    def _take(self, end: End, lease: Lease) -> bool:
        """Return False if an end was delivered, else take it. Raise CallbackError if another call has it."""
        key = {"the_account": self._store.account, "the_id": end.transaction_id}
        columns = self._store.leases.columns(lease, HANDLER_SECONDS)
        with self._store.database.connection() as connection:
            new = {"account": self._store.account, "transaction_id": end.transaction_id, **columns}
            if insert_new(connection, deliveries, new):
                return True  # rows are never deleted, so nothing was delivered before
            # In this order: a call that ends after its row was read has added to the history by then, or is busy.
            (row,), ended = self._store.leases.read(connection, _FIND, ("account", self._store.account), key)
            known = self._read(connection, end.transaction_id)
            if history.was_delivered(known, end.status):
                return False
            is_free = row["claim"] in ended or any(each.by_whom == row["claim"] for each in known)
            # The claim is a condition: of several calls that take the row over at the same time, one succeeds.
            if is_free and update_one(connection, _TAKE_OVER, {**key, **columns, "the_claim": row["claim"]}):
                return True
        raise CallbackError(f"another call is handling the end of {end.transaction_id}; let it come again")

    def _read(self, connection: Connection, transaction_id: str) -> list[Any]:
        return list(connection.execute(_DELIVERIES, {"the_account": self._store.account, "the_id": transaction_id}))

    def _add(self, end: End, lease: Lease, what: HistoryKind) -> None:
        if not lease.is_own:  # a forked child leaves the end to its parent
            return
        details = {"transaction_id": end.transaction_id, "after": end.status, "by_whom": lease.id}
        row = history.event(self._store.account, end, what, **details)
        if not is_keepable(end.reference):
            row["reference"] = ""
        with self._store.database.connection() as connection:
            history.add(connection, [row])
