"""Which ends of transactions were handled, whether a callback (webhook) or a sweep brought them: each one once.

A row is inserted when a handler takes an end, and marked as handled when the handler returned. A handler that raises
deletes its row; one whose process dies leaves it behind, and the next delivery takes it over.

No end is handled after one that outranks it: FAILED after SUCCESS or REVERSED, in whatever order they arrive.

Thread safety: every thread may call everything here. The database decides between calls.
"""

from __future__ import annotations

import logging
from collections.abc import Generator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Final

from sqlalchemy import and_, bindparam, delete, select, update

from momopay.errors import CallbackError, MomoPayError
from momopay.journal.lease import Lease
from momopay.journal.schema import TAKE_LEASE, callbacks, insert_new, lease_left, update_one
from momopay.journal.store import Store
from momopay.models.callbacks import Callback
from momopay.models.enums import TransactionStatus, end_of
from momopay.models.transactions import TransactionSummary

logger: logging.Logger = logging.getLogger("momopay")

# After so many seconds a handler counts as dead, even if its process is alive.
HANDLER_SECONDS: Final = 600.0

# Parameters that name a row have the prefix: those with the name of a column are the column's new value.
_TRANSACTION: Final = and_(
    callbacks.c.account == bindparam("of_account"), callbacks.c.transaction_id == bindparam("of_transaction")
)
_ROW: Final = and_(_TRANSACTION, callbacks.c.status == bindparam("of_status"))
_UNDER_LEASE: Final = and_(_ROW, callbacks.c.claim == bindparam("of_claim"))
_SELECT: Final = select(callbacks, lease_left(callbacks)).where(_TRANSACTION)
_DELETE: Final = delete(callbacks).where(_UNDER_LEASE)
_MARK_HANDLED: Final = update(callbacks).where(_UNDER_LEASE).values(handled=True)
_TAKE_OVER: Final = update(callbacks).where(_UNDER_LEASE, ~callbacks.c.handled).values(TAKE_LEASE)

_FAILED: Final = TransactionStatus.FAILED


def key_of(record: Callback | TransactionSummary) -> tuple[str, TransactionStatus]:
    """Return by what an end is handled once: the transaction's id, and the end."""
    return record.transaction_id, end_of(record.transaction.status if isinstance(record, Callback) else record.status)


class Callbacks:
    """The ends in the journal that were handled, or are being handled."""

    def __init__(self, store: Store) -> None:
        self._database = store.database
        self._account = store.account
        self._leases = store.leases

    def first_seen(self, record: Callback | TransactionSummary) -> bool:
        """Record an end as handled, and return whether it was new."""
        with self._leases.lease() as lease:
            return self._insert(record, lease, handled=True) and not self._is_outranked(record)

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
                # After the row was inserted: of two ends that arrive at once, one finds the other.
                is_outranked = self._is_outranked(record)
                yield not is_outranked
            except BaseException:
                self._give_back(record, own)
                raise
            with self._database.connection() as connection:
                connection.execute(_MARK_HANDLED, own)

    def _is_outranked(self, record: Callback | TransactionSummary) -> bool:
        """Return whether an end was handled that outranks this one; raise CallbackError if one is being handled."""
        if key_of(record)[1] is not _FAILED:
            return False
        with self._database.connection() as connection:
            rows = connection.execute(_SELECT, self._row_of(record)).mappings().all()
        others = [row for row in rows if row["status"] != _FAILED]
        if any(not row["handled"] and not self._leases.has_ended(row) for row in others):
            raise _busy(record)
        return any(row["handled"] for row in others)

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
            row = connection.execute(_SELECT.where(_ROW), self._row_of(record)).mappings().one_or_none()
        if row is not None and row["handled"]:
            return False
        if row is not None and self._leases.has_ended(row):
            # With the lease that ended as a condition, one of several that take it over at once succeeds.
            abandoned = self._row_of(record) | {"of_claim": row["claim"]}
            taken = abandoned | self._leases.columns(lease, HANDLER_SECONDS)
            with self._database.connection() as connection:
                if update_one(connection, _TAKE_OVER, taken):
                    return True
        raise _busy(record)

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


def _busy(record: Callback | TransactionSummary) -> CallbackError:
    return CallbackError(f"another call is handling the end of {record.transaction_id}; let it come again")
