"""The rows of orders that are collected, and the prompts of each that the service accepted.

A row has the state of the latest attempt to prompt. What it has of a transaction is that of the prompt that was paid,
the first one if several were, else that of the latest. `momopay.journal.collection_rules` has the rules.

Invariants:
- What is known of a prompt only moves forward: open, ended without success, paid.
- A prompt and the row that it changes are committed together.
- No prompt is deleted, unless the service's record shows that it is another payment.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, ClassVar, Final

from sqlalchemy import Connection, RowMapping, Select, Update
from sqlalchemy.exc import IntegrityError

from momopay._redaction import redacted_repr
from momopay.journal.collection_rules import Stage, stage_of
from momopay.journal.collection_statements import (
    ACCEPT_OWN_PROMPT,
    ACCEPT_PROMPT,
    BEGIN_PROMPT,
    CONTRADICT_PROMPT,
    DELETE_PROMPT,
    PAY_PROMPT,
    PROMPT_OUTCOMES,
    REPORT_PROMPT,
    SELECT_BY_WIRE_REFERENCE,
    SELECT_OTHER_PAYOUTS,
    SELECT_PROMPTS,
    SHOW_CURRENT_PROMPT,
    SHOW_PROMPT,
    SIGHT_PROMPT,
)
from momopay.journal.database import transaction
from momopay.journal.entries import OPEN, EntryKind, JournalEntry, JournalState
from momopay.journal.evidence import Report
from momopay.journal.lease import Lease
from momopay.journal.payments import Payments
from momopay.journal.schema import insert_new, prompts, update_one
from momopay.journal.statements import SELECT, SELECT_TAKEN
from momopay.models.enums import TransactionStatus

logger: logging.Logger = logging.getLogger("momopay")

_REFERENCES_AT_ONCE: Final = 500  # databases limit the parameters of a statement
# A prompt that was made so long before an attempt is not that attempt's. Clocks differ a little.
_EARLIER: Final = timedelta(seconds=10)


class Collections(Payments):
    """The orders of one account in the journal."""

    kind: ClassVar[EntryKind] = EntryKind.COLLECTION
    _begin: ClassVar[Update] = BEGIN_PROMPT
    _outcomes: ClassVar[Mapping[JournalState, Update]] = PROMPT_OUTCOMES
    _sight: ClassVar[Update] = SIGHT_PROMPT
    _select_others: ClassVar[Select[Any]] = SELECT_OTHER_PAYOUTS

    def get(self, reference: str) -> JournalEntry | None:
        """Return the entry of a reference, or None."""
        entries = self.select(SELECT, the_reference=reference)
        return entries[0] if entries else None

    def by_wire_reference(self, wire_reference: str) -> JournalEntry | None:
        """Return the order whose prompts the service has under this reference, or None."""
        entries = self.select(SELECT_BY_WIRE_REFERENCE, the_wire_reference=wire_reference)
        return entries[0] if entries else None

    def accept(
        self, reference: str, report: Report, *, lease: Lease | None = None, clock_offset: float | None = None
    ) -> bool:
        """Record a prompt that the service accepted, and what its record reports.

        A prompt that is new to the journal makes the row ACCEPTED: without a lease it is taken for that of the latest
        attempt, unless it was made before that. One that is known changes nothing of a later attempt.

        Args:
            reference: The order.
            report: What the service's record says.
            lease: Of the call that sent, if its own response is the proof.
            clock_offset: As for `begin`.

        Returns:
            False if the order is not in the journal, or the transaction is that of another order or payout.
        """
        if lease is not None and not self.leases.holds(lease):
            return True  # a forked child: its parent records
        values = self._values(reference, {"new_clock_offset": clock_offset})
        if lease is None:
            return self._record(reference, report, (ACCEPT_PROMPT, values))
        return self._record(reference, report, (ACCEPT_OWN_PROMPT, values | {"the_claim": lease.id}))

    def report(self, reference: str, report: Report) -> bool:
        """Record what the service reports of a known prompt; return False if the order has no such prompt."""
        return self._record(reference, report)

    def contradict(self, entry: JournalEntry, transaction_id: str | None = None) -> bool:
        """Record that a transaction is no prompt of the order: whether the customer was prompted is unknown."""
        values = self._values(entry.reference, {"the_transaction_id": transaction_id or entry.transaction_id})
        with self._database.connection() as connection, transaction(connection):
            connection.execute(DELETE_PROMPT, _of_prompt(values))
            return update_one(connection, CONTRADICT_PROMPT, values)

    def _record(
        self, reference: str, report: Report, acceptance: tuple[Update, Mapping[str, object]] | None = None
    ) -> bool:
        values = self._values(reference, report.parameters())
        stage = stage_of(None if report.status is None else TransactionStatus(report.status))
        row = {name: values[name] for name in (*self._rows, "the_reference", "new_transaction_id")}
        with self._database.connection() as connection:
            try:
                with transaction(connection):
                    order = self._insert(connection, row) if acceptance else None
                    is_own = acceptance is not None and acceptance[0] is ACCEPT_OWN_PROMPT
                    is_of_latest = order and (is_own or not self._is_earlier(connection, order, report.created_at))
                    is_latest = acceptance and is_of_latest and update_one(connection, *acceptance)
                    is_paid = stage is Stage.PAID and update_one(connection, PAY_PROMPT, _of_prompt(values))
                    if not is_paid:
                        update_one(connection, REPORT_PROMPT[stage], _of_prompt(values))
                    update_one(connection, SHOW_PROMPT if is_latest or is_paid else SHOW_CURRENT_PROMPT, row)
            except IntegrityError:  # a unique index: one transaction is that of one accepted row
                taken = {name: values[name] for name in ("the_account", "new_transaction_id")}
                if connection.scalar(SELECT_TAKEN, taken) is not None:
                    return False
                raise
        entry = self.get(reference)
        if entry is not None and is_paid and entry.paid_twice:
            paid = [prompt.transaction_id for prompt in entry.prompts if prompt.is_paid]
            logger.critical(
                "order %s was paid %d times, by transactions %s: pay back KES %s, with client.payouts.refund(of=%s)",
                redacted_repr(reference),
                len(paid),
                ", ".join(paid),
                entry.amount * (len(paid) - 1),
                redacted_repr(reference),
            )
        return entry is not None and report.transaction_id in entry.transaction_ids

    def _insert(self, connection: Connection, row: Mapping[str, object]) -> RowMapping | None:
        """Insert a prompt of an order, and return the order's row if the prompt is new."""
        values = {name: row[name] for name in (*self._rows, "the_reference")}
        order = connection.execute(SELECT, values).mappings().one_or_none()
        if order is None:
            return None
        prompt = {"account": self._account, "reference": order["reference"], "sent_at": order["sent_at"]}
        is_new = insert_new(connection, prompts, prompt | {"transaction_id": row["new_transaction_id"]})
        return order if is_new else None

    def _is_earlier(self, connection: Connection, order: RowMapping, created_at: datetime | None) -> bool:
        """Return whether a new prompt is that of an earlier attempt, and the latest one is in doubt."""
        if order["state"] not in OPEN or None in {created_at, order["clock_offset"]}:
            return False
        known = connection.execute(SELECT_PROMPTS, {"the_account": self._account, "references": [order["reference"]]})
        are_others_known = len(known.all()) >= order["attempts"]  # the new one is among them
        sent_at = datetime.fromisoformat(order["sent_at"]) - timedelta(seconds=order["clock_offset"])
        return not are_others_known and created_at is not None and sent_at - created_at > _EARLIER

    def _as_read(self, read: JournalEntry) -> dict[str, object]:
        transaction = {"the_transaction": read.transaction_id or ""}
        return {**super()._as_read(read), "the_state": read.state, **transaction}

    def _complete(self, connection: Connection, rows: Sequence[RowMapping]) -> list[JournalEntry]:
        found: dict[str, list[RowMapping]] = {row["reference"]: [] for row in rows}
        references = list(found)
        for start in range(0, len(references), _REFERENCES_AT_ONCE):
            some = {"the_account": self._account, "references": references[start : start + _REFERENCES_AT_ONCE]}
            for prompt in connection.execute(SELECT_PROMPTS, some).mappings():
                found[prompt["reference"]].append(prompt)
        return [self._entry(row, prompts=found[row["reference"]]) for row in rows]


def _of_prompt(values: Mapping[str, object]) -> dict[str, object]:
    """Return the parameters of a statement that changes a prompt: prompts have no kind."""
    return {name: value for name, value in values.items() if name != "the_kind"}
