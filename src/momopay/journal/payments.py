"""The rows of payouts, and who may change one from what to what.

| from | to | only if |
|---|---|---|
| no row | SENDING | the reference is new: the primary key decides |
| REFUSED, NOT_SENT | SENDING | reference, amount and phone are those of the row |
| SENDING, UNKNOWN | REFUSED, NOT_SENT, UNKNOWN | the row still carries the lease of the call that sent |
| any | ACCEPTED | the service's own answer or record says so |
| SENDING without a live lease, UNKNOWN | NOT_SENT | a human released it, and nobody changed the row meanwhile |

Invariants:
- A row is committed as SENDING before the network is touched, and the commit is on disk when it returns.
- Nothing leaves ACCEPTED, and no row is deleted.

Thread safety: every thread may call everything here. The database decides between calls; nothing is kept in memory.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final

from sqlalchemy import RowMapping, case, select, update

from momopay.errors import JournalError
from momopay.journal.database import ForkSafeDatabase
from momopay.journal.entries import MAY_BE_SENT, OPEN, JournalEntry, JournalState
from momopay.journal.lease import Lease, LeaseHolder
from momopay.journal.schema import TAKE_LEASE, insert_new, lease_left, payments, update_one
from momopay.money import format_amount

logger: logging.Logger = logging.getLogger("momopay")

_KIND: Final = "PAYOUT"
_SELECT: Final = select(payments, lease_left(payments))


class Payments:
    """The payouts in the journal."""

    def __init__(self, database: ForkSafeDatabase, leases: LeaseHolder, account: str) -> None:
        self._database = database
        self._own_rows = (payments.c.account == account, payments.c.kind == _KIND)
        self._namespace: dict[str, object] = {"account": account, "kind": _KIND}
        self.leases = leases

    def get(self, reference: str) -> JournalEntry | None:
        """Return the entry of a reference, or None."""
        row = self._row(reference)
        return None if row is None else self._entry(row)

    def unresolved(self) -> list[JournalEntry]:
        """Return what reads as UNKNOWN, oldest first."""
        not_ended = (
            select(payments, lease_left(payments))
            .where(*self._own_rows, payments.c.state.in_(OPEN))
            .order_by(payments.c.sent_at)
        )
        with self._database.connection() as connection:
            rows = connection.execute(not_ended).mappings().all()
        entries = [self._entry(row) for row in rows]
        return [entry for entry in entries if entry.state is JournalState.UNKNOWN]

    def release(self, reference: str) -> bool:
        """Change what reads as UNKNOWN to NOT_SENT, and return whether this call did."""
        row = self._row(reference)
        if row is None or self._entry(row).state is not JournalState.UNKNOWN:
            return False
        # The lease, too: the row may have been released and sent by another call since it was read, and then it is
        # SENDING again.
        unchanged = (payments.c.state == row["state"], payments.c.claim == row["claim"])
        return self._change(reference, *unchanged, state=JournalState.NOT_SENT, released_at=_now())

    def accept(self, reference: str, transaction_id: str) -> JournalEntry | None:
        """Record that the service accepted a payout, whatever the row said; return its entry."""
        is_new = payments.c.state != JournalState.ACCEPTED
        self._change(reference, is_new, state=JournalState.ACCEPTED, transaction_id=transaction_id, code=None)
        entry = self.get(reference)
        _check_paid_once(entry, transaction_id)
        return entry

    def begin(
        self, lease: Lease, *, reference: str, amount: Decimal, phone: str, body_hash: str, seconds: float
    ) -> JournalEntry | None:
        """Record, durably, that the holder of a lease is about to send, for so many seconds at most.

        Returns:
            None if the payout may be sent; else the entry that forbids it.
        """
        now = _now()
        values: dict[str, object] = {
            "body_hash": body_hash,
            "state": JournalState.SENDING,
            "transaction_id": None,
            "code": None,
        }
        lease_columns = self.leases.columns(lease, seconds)
        same = self._namespace | {"reference": reference, "amount": format_amount(amount), "phone": phone}
        with self._database.connection() as connection:
            # Not a SELECT first: between it and the write, another process could do the same.
            first = {"attempts": 1, "created_at": now, "sent_at": now}
            if insert_new(connection, payments, values | same | first | lease_columns):
                return None
            # What was released may have been paid the first time after all, so a search begins there.
            sent_at = case((payments.c.released_at.is_not(None), payments.c.sent_at), else_=now)
            again = {"sent_at": sent_at, "attempts": payments.c.attempts + 1}
            may_be_sent = [payments.c[name] == value for name, value in same.items()]
            may_be_sent.append(payments.c.state.in_(MAY_BE_SENT))
            if update_one(
                connection, update(payments).where(*may_be_sent).values(**values, **again, **TAKE_LEASE), lease_columns
            ):
                return None
        entry = self.get(reference)
        if entry is None:  # a trigger drops rows, or reads go to a replica that lags behind
            raise JournalError("the journal's database neither took the row nor shows one")
        return entry

    def record_outcome(
        self,
        lease: Lease,
        reference: str,
        state: JournalState,
        *,
        transaction_id: str | None = None,
        code: str | None = None,
    ) -> None:
        """Record how the call that holds the lease ended, unless a later call or the service's record decided."""
        if not self.leases.holds(lease):
            return
        accepted = state is JournalState.ACCEPTED
        own = (payments.c.claim == lease.id, payments.c.state.in_(OPEN))
        # An acceptance is recorded even if the row was released meanwhile and carries another lease.
        expected = (payments.c.state != state,) if accepted else own
        attempts = payments.c.attempts - (1 if state is JournalState.NOT_SENT else 0)
        known = {"state": state, "transaction_id": transaction_id, "code": code, "attempts": attempts}
        changed = self._change(reference, *expected, **known)
        if accepted and not changed:
            _check_paid_once(self.get(reference), transaction_id)

    def _change(self, reference: str, *expected: Any, **values: object) -> bool:
        change = update(payments).where(*self._own_rows, payments.c.reference == reference, *expected).values(**values)
        with self._database.connection() as connection:
            return update_one(connection, change)

    def _row(self, reference: str) -> RowMapping | None:
        with self._database.connection() as connection:
            found = connection.execute(_SELECT.where(*self._own_rows, payments.c.reference == reference))
            return found.mappings().one_or_none()

    def _entry(self, row: RowMapping) -> JournalEntry:
        died = row["state"] == JournalState.SENDING and self.leases.has_ended(row)
        state = JournalState.UNKNOWN if died else row["state"]
        return JournalEntry.model_validate(dict(row) | {"state": state})


def _check_paid_once(entry: JournalEntry | None, transaction_id: str | None) -> None:
    """Log at CRITICAL if the service has two payouts of one reference."""
    # Only a wrong `release` leads here.
    if entry is None or entry.transaction_id != transaction_id:
        logger.critical(
            "transaction %s is not the one in the journal, %s: the reference was paid twice", transaction_id, entry
        )


def _now() -> str:
    return datetime.now(UTC).isoformat()
