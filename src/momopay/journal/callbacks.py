"""Which ends of transactions were handled, whether a callback (webhook) or a sweep brought them: each one once.

A row is inserted when a handler takes an end, and marked as handled when the handler returned. A handler that raises
deletes its row; one whose process dies leaves it behind, and the next delivery takes it over.

Thread safety: as for `momopay.journal.payments`.
"""

from __future__ import annotations

import logging
from collections.abc import Generator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Final

from sqlalchemy import and_, bindparam, delete, select, update

from momopay.errors import CallbackError, MomoPayError
from momopay.journal.database import ForkSafeDatabase
from momopay.journal.lease import Lease, LeaseHolder
from momopay.journal.schema import TAKE_LEASE, callbacks, insert_new, lease_left, update_one
from momopay.models.callbacks import Callback
from momopay.models.enums import TransactionStatus, end_of
from momopay.models.transactions import TransactionSummary

logger: logging.Logger = logging.getLogger("momopay")

# After so many seconds a handler counts as dead, even if its process is alive.
HANDLER_SECONDS: Final = 600.0

# Parameters that name a row have the prefix: those with the name of a column are the column's new value.
_ROW: Final = and_(
    callbacks.c.account == bindparam("of_account"),
    callbacks.c.transaction_id == bindparam("of_transaction"),
    callbacks.c.status == bindparam("of_status"),
)
_UNDER_LEASE: Final = and_(_ROW, callbacks.c.claim == bindparam("of_claim"))
_SELECT: Final = select(callbacks, lease_left(callbacks)).where(_ROW)
_DELETE: Final = delete(callbacks).where(_UNDER_LEASE)
_MARK_HANDLED: Final = update(callbacks).where(_UNDER_LEASE).values(handled=True)
_TAKE_OVER: Final = update(callbacks).where(_UNDER_LEASE, ~callbacks.c.handled).values(TAKE_LEASE)


def key_of(record: Callback | TransactionSummary) -> tuple[str, TransactionStatus]:
    """Return by what an end is handled once: the transaction's id, and the end."""
    return record.transaction_id, end_of(record.transaction.status if isinstance(record, Callback) else record.status)


class Callbacks:
    """The ends in the journal that were handled, or are being handled."""

    def __init__(self, database: ForkSafeDatabase, leases: LeaseHolder, account: str) -> None:
        self._database = database
        self._account = account
        self._leases = leases

    def first_seen(self, record: Callback | TransactionSummary) -> bool:
        """Record an end as handled, and return whether it was new."""
        with self._leases.lease() as lease:
            return self._insert(record, lease, handled=True)

    @contextmanager
    def handling(self, record: Callback | TransactionSummary) -> Generator[bool]:
        """Hold an end while it is handled; see `Journal.handling`."""
        with self._leases.lease() as lease:
            if not self._take(record, lease):
                yield False
                return
            # Only the holder of the lease may mark or delete the row: a handler that was taken for dead and goes on
            # must not undo what its successor did.
            own = self._row_of(record) | {"of_claim": lease.id}
            try:
                yield True
            except BaseException:
                self._give_back(record, own)
                raise
            with self._database.connection() as connection:
                connection.execute(_MARK_HANDLED, own)

    def _give_back(self, record: Callback | TransactionSummary, own: dict[str, object]) -> None:
        """Delete the row."""
        try:
            with self._database.connection() as connection:
                connection.execute(_DELETE, own)
        except MomoPayError as error:
            # Not raised: the handler's own error must reach the caller, and the end of the lease frees it.
            logger.error("the end of %s: %s", record.transaction_id, error)  # noqa: TRY400

    def _take(self, record: Callback | TransactionSummary, lease: Lease) -> bool:
        """Return True if this call may handle it, False if it was handled; raise CallbackError if another call does."""
        if self._insert(record, lease, handled=False):
            return True
        with self._database.connection() as connection:
            row = connection.execute(_SELECT, self._row_of(record)).mappings().one_or_none()
        if row is not None and row["handled"]:
            return False
        if row is not None and self._leases.has_ended(row):
            # With the lease that ended as a condition, one of several that take it over at once succeeds.
            abandoned = self._row_of(record) | {"of_claim": row["claim"]}
            taken = abandoned | self._leases.columns(lease, HANDLER_SECONDS)
            with self._database.connection() as connection:
                if update_one(connection, _TAKE_OVER, taken):
                    return True
        raise CallbackError(f"another call is handling the end of {record.transaction_id}; let it come again")

    def _insert(self, record: Callback | TransactionSummary, lease: Lease, *, handled: bool) -> bool:
        transaction_id, end = key_of(record)
        values: dict[str, object] = {
            "account": self._account,
            "transaction_id": transaction_id,
            "status": str(end),
            "seen_at": datetime.now(UTC).isoformat(),
            "handled": handled,
            **self._leases.columns(lease, HANDLER_SECONDS),
        }
        with self._database.connection() as connection:
            return insert_new(connection, callbacks, values)

    def _row_of(self, record: Callback | TransactionSummary) -> dict[str, object]:
        transaction_id, end = key_of(record)
        return {"of_account": self._account, "of_transaction": transaction_id, "of_status": str(end)}
