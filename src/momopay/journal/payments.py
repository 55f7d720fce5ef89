"""The rows of payouts, and who may change one from what to what.

| from | to | only if |
|---|---|---|
| no row | SENDING | the reference is new: the primary key decides |
| REFUSED, NOT_SENT | SENDING | the row is the one that the call read, with the same amount and phone |
| SENDING | REFUSED, NOT_SENT, UNKNOWN | the row still carries the lease of the call that sent |
| any | ACCEPTED | the service's own answer or record shows this payment, and no other row has its id |
| ACCEPTED | UNKNOWN | the service's record under the accepted id is another payment |
| REFUSED, NOT_SENT | UNKNOWN | a search shows a payment with this reference after all |
| SENDING without a live lease, UNKNOWN | NOT_SENT | a person released it, and nobody changed the row meanwhile |

`momopay.journal.rules` has the same table as values, from which `momopay.journal.statements` makes its conditions.

Invariants:
- A row is committed as SENDING before the network is touched, and the commit is on disk when it returns.
- No row is deleted.

Thread safety: every thread may call everything here. The database decides between calls; nothing is kept in memory.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, ClassVar, Final

from sqlalchemy import Connection, RowMapping, Select, Update
from sqlalchemy.exc import IntegrityError

from momopay.errors import JournalError
from momopay.journal.database import ForkSafeDatabase
from momopay.journal.entries import EntryKind, JournalEntry, JournalState
from momopay.journal.evidence import Report
from momopay.journal.lease import Lease, LeaseHolder, seconds_until_release
from momopay.journal.schema import update_one
from momopay.journal.statements import (
    ACCEPT_ROW,
    BEGIN,
    CONTRADICT,
    INSERT_ROW,
    OUTCOMES,
    READ_ROW,
    READ_TAKEN,
    RELEASE,
    REPORT,
    SELECT_LOOK_ALIKES,
    SELECT_OPEN,
    SELECT_OTHERS,
    SELECT_TO_PHONES,
    SIGHT,
)
from momopay.money import format_amount

logger: logging.Logger = logging.getLogger("momopay")

_PHONES_AT_ONCE: Final = 500  # databases limit the parameters of a statement


class Payments:
    """The payouts of one account in the journal. `Collections` are the other kind of payments."""

    kind: ClassVar[EntryKind] = EntryKind.PAYOUT
    _begin: ClassVar[Update] = BEGIN
    _outcomes: ClassVar[Mapping[JournalState, Update]] = OUTCOMES
    _sight: ClassVar[Update] = SIGHT
    _select_others: ClassVar[Select[Any]] = SELECT_OTHERS

    def __init__(self, database: ForkSafeDatabase, leases: LeaseHolder, account: str) -> None:
        self._database = database
        self._account = account
        self._rows = {"the_account": account, "the_kind": self.kind.value}
        self._look_alikes: dict[str, str] | None = None
        self.leases = leases
        self.refund_of: str | None = None
        """The collection of which the payouts that are begun here pay something back."""

    def bounded(self, seconds: float) -> AbstractContextManager[None]:
        """Let all that this thread does with the database in the context end within so many seconds."""
        return self._database.bounded(seconds)

    def get(self, reference: str) -> JournalEntry | None:
        """Return the entry of a reference, or None."""
        row = self._row(reference)
        return None if row is None else self._entry(row)

    def look_alike(self, reference: str) -> JournalEntry | None:
        """Return the entry of a reference of version 1 that looks like this one and is not the same, or None."""
        if self._look_alikes is None:  # read once: only a migration writes them
            with self._database.connection() as connection:
                rows = connection.execute(SELECT_LOOK_ALIKES, self._rows).all()
            self._look_alikes = {row.canonical: row.reference for row in rows}
        old = self._look_alikes.get(reference)
        return None if old is None else self.get(old)

    def others(self, entry: JournalEntry) -> frozenset[str]:
        """Return the transactions with the entry's reference that the journal knows to be of the other kind."""
        values = {"the_account": self._account, "the_reference": entry.wire_reference or entry.reference}
        with self._database.connection() as connection:
            return frozenset(connection.execute(self._select_others, values).scalars())

    def unresolved(self) -> list[JournalEntry]:
        """Return what reads as UNKNOWN, oldest first."""
        return [entry for entry in self.select(SELECT_OPEN) if entry.state is JournalState.UNKNOWN]

    def to_phones(self, phones: Iterable[str]) -> Iterator[JournalEntry]:
        """Yield the payouts to these phones, in any state."""
        wanted = list(phones)
        for start in range(0, len(wanted), _PHONES_AT_ONCE):
            yield from self.select(SELECT_TO_PHONES, phones=wanted[start : start + _PHONES_AT_ONCE])

    def begin(
        self,
        lease: Lease,
        *,
        reference: str,
        amount: Decimal,
        phone: str,
        body_hash: str,
        seconds: float,
        read: JournalEntry | None = None,
        metadata: Mapping[str, object] | None = None,
        wire_reference: str | None = None,
        clock_offset: float | None = None,
    ) -> JournalEntry | None:
        """Record, durably, that the holder of a lease is about to send, for so many seconds at most.

        Args:
            lease: The call's lease. If it ended while the statement ran, because the caller gave up, the row becomes
                NOT_SENT.
            reference: The caller's reference.
            amount: KES.
            phone: In the form that is sent.
            body_hash: Of the request's body.
            seconds: For how long the lease holds at most.
            read: The row as the call read it before it searched; None if there was none. If it is another one now,
                another call has sent meanwhile, and this one must decide anew.
            metadata: The caller's own.
            wire_reference: Of a new collection: what the service gets as its reference.
            clock_offset: Seconds by which this machine's clock is ahead of the service's, if that is known.

        Returns:
            None if the payout may be sent; else the entry that forbids it.
        """
        values: dict[str, object] = self.leases.columns(lease, seconds)
        given = {"metadata": None if metadata is None else json.dumps(metadata), "clock_offset": clock_offset}
        given |= {"body_hash": body_hash}
        now, amount_text = _now(), format_amount(amount)
        if read is None:
            # Not a SELECT first: between it and the write, another process could do the same.
            row = {name.removeprefix("the_"): value for name, value in self._rows.items()} | given
            row |= {"reference": reference, "amount": amount_text, "phone": phone, "attempts": 1}
            row |= {"state": JournalState.SENDING, "created_at": now, "sent_at": now}
            row |= {"refund_of": self.refund_of, "wire_reference": wire_reference}
            begun = self._database.execute(INSERT_ROW, row | values).rowcount == 1
        else:
            values |= {f"new_{name}": value for name, value in given.items()}
            values |= {"the_amount": amount_text, "the_phone": phone, "now": now, **self._as_read(read)}
            begun = self._execute(self._begin, reference, **values)
        if begun:
            if not self.leases.holds(lease):
                self.undo(lease, reference)
            return None
        entry = self.get(reference)
        if entry is None:  # a trigger drops rows, or reads go to a replica that lags behind
            raise JournalError("the journal's database neither took the row nor shows one")
        return entry

    def undo(self, lease: Lease, reference: str) -> None:
        """Change the row that `begin` wrote to NOT_SENT, for a call that gave up before it sent."""
        if lease.is_own:
            self._outcome(lease, reference, JournalState.NOT_SENT)

    def is_sending(self, lease: Lease, reference: str) -> bool:
        """Return whether the row is still as `begin` wrote it for this lease."""
        row = self._row(reference)
        return row is not None and row["claim"] == lease.id and row["state"] == JournalState.SENDING

    def record_outcome(
        self,
        lease: Lease,
        reference: str,
        state: JournalState,
        *,
        transaction_id: str | None = None,
        code: str | None = None,
        clock_offset: float | None = None,
    ) -> bool:
        """Record how the call that holds the lease ended, unless a later call or the service's record decided.

        Returns:
            Whether this was recorded.
        """
        known = {"new_transaction_id": transaction_id, "new_code": code, "new_clock_offset": clock_offset}
        return self.leases.holds(lease) and self._outcome(lease, reference, state, **known)

    def accept(
        self, reference: str, report: Report, *, lease: Lease | None = None, clock_offset: float | None = None
    ) -> bool:
        """Record that the service accepted a payout, whatever the row said, and what else its record reports.

        Args:
            reference: The caller's reference.
            report: What the service's record says.
            lease: Of the call that sent, if its own response is the proof.
            clock_offset: As for `begin`.

        Returns:
            False if another payout has this transaction: one transaction pays one reference.
        """
        if lease is not None and not self.leases.holds(lease):
            return True  # a forked child: its parent records
        values = self._values(reference, report.parameters())
        values["new_clock_offset"] = clock_offset
        try:
            if self._database.execute(ACCEPT_ROW, values).rowcount == 1 or self._execute(REPORT, reference, **values):
                return True
        except JournalError as error:
            # A unique index: one transaction is that of one accepted row.
            if isinstance(error.__cause__, IntegrityError) and self._database.execute(READ_TAKEN, values).rows:
                return False
            raise
        entry = self.get(reference)
        if entry is None or entry.state is not JournalState.ACCEPTED:
            return False
        # Only a wrong `release` leads here.
        if entry.transaction_id != report.transaction_id:
            logger.critical(
                "transaction %s is not the one in the journal, %s: the reference was paid twice",
                report.transaction_id,
                entry,
            )
        return True

    def contradict(self, entry: JournalEntry) -> bool:
        """Record that the transaction of an accepted payout is another payment: whether it was paid is unknown."""
        return self._execute(CONTRADICT, entry.reference, the_transaction_id=entry.transaction_id)

    def sight(self, entry: JournalEntry) -> bool:
        """Record that a payout that was refused or not sent may have been made after all."""
        return self._execute(self._sight, entry.reference, the_claim=entry.claim)

    def seconds_to_release(self, entry: JournalEntry) -> float:
        """Return after how many seconds a person may release what reads as UNKNOWN; 0 or less is at once."""
        row = self._row(entry.reference)
        return 0.0 if row is None else seconds_until_release(row)

    def release(self, entry: JournalEntry, by: str | None) -> bool:
        """Change what was read as UNKNOWN to NOT_SENT if nobody changed it since; return whether this did."""
        if entry.state is not JournalState.UNKNOWN:
            return False
        return self._execute(RELEASE, entry.reference, the_claim=entry.claim, new_released_by=by, now=_now())

    def _as_read(self, read: JournalEntry) -> dict[str, object]:
        """Return the parameters by which the begin statement compares the row with the one that was read."""
        return {"the_claim": read.claim}

    def _outcome(self, lease: Lease, reference: str, state: JournalState, **known: object) -> bool:
        nothing = dict.fromkeys(("new_transaction_id", "new_code", "new_clock_offset"))
        return self._execute(self._outcomes[state], reference, the_claim=lease.id, **nothing | known)

    def _execute(self, change: Update, reference: str, **values: object) -> bool:
        with self._database.connection() as connection:
            return update_one(connection, change, self._values(reference, values))

    def _values(self, reference: str, values: dict[str, object]) -> dict[str, object]:
        return {**self._rows, "the_reference": reference, **values}

    def _row(self, reference: str) -> Mapping[str, Any] | None:
        rows = self._database.execute(READ_ROW, self._values(reference, {})).rows
        return rows[0] if rows else None

    def _entry(self, row: Mapping[Any, Any], **more: object) -> JournalEntry:
        died = row["state"] == JournalState.SENDING and self.leases.has_ended(row)
        state = JournalState.UNKNOWN if died else row["state"]
        metadata = None if row["metadata"] is None else json.loads(row["metadata"])
        return JournalEntry.model_validate(dict(row) | {"state": state, "metadata": metadata} | more)

    def select(self, statement: Select[Any], **parameters: object) -> list[JournalEntry]:
        """Return the entries that a statement selects."""
        with self._database.connection() as connection:
            rows = connection.execute(statement, self._rows | parameters).mappings().all()
            return self._complete(connection, rows)

    def _complete(self, _connection: Connection, rows: Sequence[RowMapping]) -> list[JournalEntry]:
        """Return the entries of rows, with what belongs to them and is elsewhere."""
        return list(map(self._entry, rows))


def _now() -> str:
    # Always with microseconds: texts are compared.
    return datetime.now(UTC).isoformat(timespec="microseconds")
