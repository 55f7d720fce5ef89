"""The rows of payouts, and who may change one to what.

Every change states the row that it expects, in one statement, so that of many processes one wins.
"""

from __future__ import annotations

import logging
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from sqlalchemy import RowMapping, case, select, update

from momopay.errors import JournalError
from momopay.journal.entries import MAY_BE_SENT, OPEN, JournalEntry, JournalState
from momopay.journal.lease import Lease, LeaseHolder
from momopay.journal.schema import insert_new, payouts, update_one
from momopay.money import format_amount

logger: logging.Logger = logging.getLogger("momopay")


class Payments:
    """What the journal remembers of payouts."""

    def __init__(self, holding: LeaseHolder) -> None:
        self._holding = holding

    def get(self, reference: str) -> JournalEntry | None:
        """Look a reference up."""
        row = self._row(reference)
        return None if row is None else self._entry(row)

    def unresolved(self) -> list[JournalEntry]:
        """List what reads as UNKNOWN, oldest first."""
        still_open = select(payouts).where(payouts.c.state.in_(OPEN)).order_by(payouts.c.sent_at)
        with self._holding.connection() as connection:
            rows = connection.execute(still_open).mappings().all()
        entries = [self._entry(row) for row in rows]
        return [entry for entry in entries if entry.state is JournalState.UNKNOWN]

    def release(self, reference: str) -> bool:
        """Let what reads as UNKNOWN be sent; tell whether it did, and nobody was faster."""
        row = self._row(reference)
        if row is None or self._entry(row).state is not JournalState.UNKNOWN:
            return False
        unchanged = (payouts.c.state == row["state"], payouts.c.claim == row["claim"])
        return self._move(reference, *unchanged, state=JournalState.NOT_SENT, released=True)

    def accept(self, reference: str, transaction_id: str) -> JournalEntry | None:
        """Note that the service has it, whatever was known before."""
        self._move(
            reference,
            payouts.c.state != JournalState.ACCEPTED,
            state=JournalState.ACCEPTED,
            transaction_id=transaction_id,
            code=None,
        )
        entry = self.get(reference)
        _check_paid_once(entry, transaction_id)
        return entry

    def claiming(self) -> AbstractContextManager[Lease]:
        """Make a claim, which lasts for the context at most."""
        return self._holding.claim()

    def begin(
        self, claim: Lease, *, reference: str, amount: Decimal, phone: str, body_hash: str, lease: float
    ) -> JournalEntry | None:
        """Note, durably, that this claim is about to send.

        Args:
            claim: From `claiming`.
            reference: The caller's reference.
            amount: KES.
            phone: ``254XXXXXXXXX``.
            body_hash: SHA-256 of the body that will be sent.
            lease: Seconds after which the claim is over in any case.

        Returns:
            None if the claim may send; else the entry that stands against it.

        Raises:
            JournalError: The database failed, or took no row and shows none.
        """
        now = datetime.now(UTC).isoformat()
        values: dict[str, object] = {
            "body_hash": body_hash,
            "state": JournalState.SENDING,
            "transaction_id": None,
            "code": None,
            **self._holding.mark(claim, lease),
        }
        same: dict[str, object] = {"reference": reference, "amount": format_amount(amount), "phone": phone}
        with self._holding.connection() as connection:
            if insert_new(connection, payouts, values | same | {"sent_at": now, "released": False}):
                return None
            # One that was in doubt may have been executed then; it is searched for from then on.
            sent_at = case((payouts.c.released, payouts.c.sent_at), else_=now)
            may_be_sent = [payouts.c[name] == value for name, value in same.items()]
            may_be_sent.append(payouts.c.state.in_(MAY_BE_SENT))
            again = update(payouts).where(*may_be_sent).values(**values, sent_at=sent_at)
            if update_one(connection, again):
                return None
        entry = self.get(reference)
        if entry is None:  # a trigger that drops rows, or reads that are sent to a replica which lags
            raise JournalError("the journal's database neither took the row nor shows one")
        return entry

    def record_outcome(
        self,
        claim: Lease,
        reference: str,
        state: JournalState,
        *,
        transaction_id: str | None = None,
        code: str | None = None,
    ) -> None:
        """Note what became of what the claim sent, unless the reference was settled meanwhile.

        That the service accepted it is noted whatever else was said meanwhile, a human's word included. A fork's
        child that leaves its parent's call knows nothing of what becomes of it.
        """
        if not self._holding.holds(claim):
            return
        accepted = state is JournalState.ACCEPTED
        may_change = (
            (payouts.c.state != state,) if accepted else (payouts.c.claim == claim.id, payouts.c.state.in_(OPEN))
        )
        changed = self._move(reference, *may_change, state=state, transaction_id=transaction_id, code=code)
        if accepted and not changed:
            _check_paid_once(self.get(reference), transaction_id)

    def _move(self, reference: str, *conditions: Any, **values: object) -> bool:
        change = update(payouts).where(payouts.c.reference == reference, *conditions).values(**values)
        with self._holding.connection() as connection:
            return update_one(connection, change)

    def _row(self, reference: str) -> RowMapping | None:
        with self._holding.connection() as connection:
            found = connection.execute(select(payouts).where(payouts.c.reference == reference))
            return found.mappings().one_or_none()

    def _entry(self, row: RowMapping) -> JournalEntry:
        died = row["state"] == JournalState.SENDING and self._holding.is_over(row)
        state = JournalState.UNKNOWN if died else row["state"]
        return JournalEntry.model_validate(dict(row) | {"state": state})


def _check_paid_once(entry: JournalEntry | None, transaction_id: str | None) -> None:
    """Cry out where the service has two payouts of one reference: only a wrong `release` can lead here."""
    if entry is None or entry.transaction_id != transaction_id:
        logger.critical(
            "transaction %s is not the one in the journal, %s: the reference was paid twice",
            transaction_id,
            entry,
        )
