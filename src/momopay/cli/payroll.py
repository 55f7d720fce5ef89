"""A payroll run without its output: which rows are still to be paid, paying them, and following them to their end.

`payouts.pay_all` decides what is sent, when to wait and when to stop. One thread uses a `PayrollRun`; a signal handler
may call `PayrollRun.stop`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import momopay
from momopay.cli.exit_codes import ExitCode
from momopay.cli.options import login_name
from momopay.cli.payroll_file import total
from momopay.errors import APIError, JournalError, MomoPayError
from momopay.money import format_amount
from momopay.spreadsheets.faults import FaultyFileError, FileFault

if TYPE_CHECKING:
    # From Python 3.15 on, a dataclass looks its annotations up: `momopay.Payment` would load pydantic.
    from momopay import JournalEntry, Payment
    from momopay.spreadsheets.rows import PayoutFile, PayoutRow

NOT_BEGUN: Final = "NOT_BEGUN"
"""The state of a row that is not in the journal."""


@dataclass(frozen=True)
class RowOutcome:
    """What is known of one row: its `JournalState` or NOT_BEGUN, and the payment once the service accepted it.

    `error` is why this run could not pay it; `entry` is what the journal had before.
    """

    row: PayoutRow
    state: str = NOT_BEGUN
    payment: Payment | None = None
    error: MomoPayError | None = None
    entry: JournalEntry | None = None

    @classmethod
    def known(cls, row: PayoutRow, journal: momopay.Journal | None) -> RowOutcome:
        """Return what the journal says of a row; raise JournalError if it cannot be read."""
        from momopay.durable.payment import payment_in  # loads pydantic

        entry = None if journal is None else journal.get(row.reference, momopay.EntryKind.PAYOUT)
        if entry is None:
            return cls(row)
        return cls(row, entry.state, payment_in(entry), entry=entry)

    @property
    def end(self) -> momopay.TransactionStatus | None:
        """How it ended; None while it is not known to have ended."""
        return None if self.payment is None or not self.payment.status.is_terminal else self.payment.status

    @property
    def last(self) -> str:
        """How it ended, or else its state."""
        return self.end or self.state

    @property
    def has_failed(self) -> bool:
        """Whether the service accepted it and the money did not arrive."""
        return self.end is not None and self.end.ended_without_success

    @property
    def transaction_id(self) -> str | None:
        """The service's id, once it is known."""
        return getattr(self.payment or self.error or self.entry, "transaction_id", None)

    @property
    def code(self) -> str | None:
        """The code of a refusal, or of an end without success."""
        if self.payment is not None:
            return self.payment.result_code if self.has_failed else None
        reason = _reason(self.error)
        return reason.code if isinstance(reason, APIError) else getattr(self.entry, "code", None)

    @property
    def why(self) -> str | None:
        """Why it was not paid; None if it was, or is under way."""
        if self.payment is not None:
            if not self.has_failed:
                return None
            description = getattr(self.payment.transaction, "result_desc", None)  # which the journal does not keep
            meaning = getattr(self.payment.result_code, "name", "the service gave no reason").lower().replace("_", " ")
            return description or meaning
        if self.error is not None:
            reason = _reason(self.error)
            return reason.message if isinstance(reason, APIError) else str(reason)
        if self.entry is None:
            return None
        if self.entry.code is not None:
            return f"the service refused it when it was sent last: {self.entry.code}"
        return "sent before, and the outcome is not known" if self.state == "UNKNOWN" else None


def _reason(error: MomoPayError | None) -> BaseException | None:
    """Return the error that caused this one, or this one: an unknown outcome has the same message for every row."""
    return error.__cause__ if error is not None and isinstance(error.__cause__, MomoPayError) else error


@dataclass(frozen=True)
class Plan:
    """What the journal knows of a file's rows, by reference."""

    outcomes: dict[str, RowOutcome]

    @property
    def accepted(self) -> list[PayoutRow]:
        """The rows that the service has accepted."""
        return [each.row for each in self.outcomes.values() if each.state == momopay.JournalState.ACCEPTED]

    @property
    def unresolved(self) -> list[PayoutRow]:
        """The rows that may have been paid, and are not sent again."""
        return [each.row for each in self.outcomes.values() if each.state == momopay.JournalState.UNKNOWN]

    @property
    def to_pay(self) -> list[PayoutRow]:
        """The rows that are new, refused or not sent, or being sent by another process, which `pay_once` waits for."""
        done = {momopay.JournalState.ACCEPTED, momopay.JournalState.UNKNOWN}
        return [each.row for each in self.outcomes.values() if each.state not in done]


def make_plan(payroll: PayoutFile, journal: momopay.Journal | None, *, similar: bool) -> Plan:
    """Compare a file's rows with the journal; without one, all are new.

    Raises:
        FaultyFileError: A reference is in the journal with another amount or phone; or, if `similar` is false, it looks
            like another reference, or all rows were paid lately under other ones.
    """
    from momopay.durable.similar import find_paid_lately, find_similar  # loads pydantic

    outcomes = {row.reference: RowOutcome.known(row, journal) for row in payroll.rows}
    # pay_all would refuse each of them too, but only after the rows before it have been paid.
    faults = [
        _fault(row, name, f"is another one than the journal's for this reference: {has}", str(own))
        for row, entry in ((each.row, each.entry) for each in outcomes.values())
        if entry is not None
        for name, own, has in (("amount", row.amount, entry.amount), ("phone", row.phone, entry.phone))
        if own != has
    ]
    if faults:
        remedy = "give each new payout a reference of its own; correct the file if the amount or phone is wrong"
        raise FaultyFileError(f"{len(faults)} reference(s) were used for another payout", faults, remedy=remedy)
    plan = Plan(outcomes)
    if similar:
        return plan
    looks_like = find_similar(journal, payroll.rows)
    if faults := _other_references(payroll, looks_like, "looks like {}"):
        problem = "reference(s) look like others with the same phone and amount, perhaps rewritten by a spreadsheet"
        remedy = "write them as they were written first; --similar pays them beside the others"
        raise FaultyFileError(f"{len(faults)} {problem}", faults, remedy=remedy)
    lately = find_paid_lately(journal, payroll.rows, plan.to_pay)
    if faults := _other_references(payroll, lately, "was paid as {} within the last 12 hours"):
        problem = "row(s), all that are left to pay, were paid to the same phones under other references"
        remedy = "check that this is not the same payroll again; --similar pays it beside the other"
        raise FaultyFileError(f"{len(faults)} {problem}", faults, remedy=remedy)
    return plan


def _other_references(payroll: PayoutFile, others: Mapping[str, str], problem: str) -> list[FileFault]:
    """Return a fault for each row that has another reference, with that one in the problem."""
    found = ((row, others.get(row.reference)) for row in payroll.rows)
    return [_fault(row, "reference", problem.format(other), row.reference) for row, other in found if other is not None]


def _fault(row: PayoutRow, column: str, problem: str, value: str) -> FileFault:
    return FileFault(row.line, column, problem, reference=row.reference, value=value)


class PayrollRun:
    """Pays rows one after another and follows them. `outcomes` has what is known of every row, by reference."""

    def __init__(
        self, client: momopay.Client, journal: momopay.Journal, payroll: PayoutFile, plan: Plan, *, similar: bool
    ) -> None:
        self._client = client
        self._journal = journal
        self._payroll = payroll
        self._similar = similar
        self._to_pay = plan.to_pay
        self._paying: momopay.types.PayoutIterator[Any] | None = None
        self.outcomes: dict[str, RowOutcome] = dict(plan.outcomes)
        self.signals: list[int] = []
        self.stopped_by: MomoPayError | None = None

    def stop(self, number: int) -> None:
        """Stop after the payout under way; raise KeyboardInterrupt if there is none, or the second time."""
        self.signals.append(number)
        if len(self.signals) > 1 or self._paying is None or self._paying.waiting:
            raise KeyboardInterrupt

    def pay(self) -> Iterator[RowOutcome]:
        """Pay until all rows are done or there is a reason to stop; yield the outcome of each row."""
        rows = {row.reference: row for row in self._to_pay}
        kept = {
            "file": self._payroll.name,
            "sha256": self._payroll.sha256,
            "rows": len(self._payroll.rows),
            "total": format_amount(total(self._payroll.rows)),
            "by": login_name() or "unknown",
            "at": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        items = (
            momopay.PayoutItem(
                reference=row.reference,
                amount=row.amount,
                phone=row.phone,
                description=row.description,
                metadata={"payroll": kept},
            )
            for row in self._to_pay
        )
        self._paying = self._client.payouts.pay_all(items, similar=self._similar)
        try:
            for paid in self._paying:
                outcome = RowOutcome(rows[paid.reference], paid.state, paid.payment, paid.error)
                self.outcomes[paid.reference] = outcome
                if paid.stops:
                    self.stopped_by = paid.error  # after several unknown outcomes in a row, the last of them
                yield outcome
                if self.signals:
                    return
        finally:
            self._paying = None

    def search(self) -> None:
        """Search once more for rows of unknown outcome; raise MomoPayError if the search fails."""
        unknown = [each for each in self.outcomes.values() if each.state == momopay.JournalState.UNKNOWN]
        if unknown:
            self._journal.reconcile_all(self._client)
        for each in unknown:
            found = RowOutcome.known(each.row, self._journal)
            if found.state != momopay.JournalState.UNKNOWN:
                self.outcomes[each.row.reference] = found

    def open(self) -> list[RowOutcome]:
        """Return the rows whose money is not yet where it will stay."""
        moving = {None, momopay.TransactionStatus.FAILED}
        return [each for each in self.outcomes.values() if each.payment is not None and each.end in moving]

    def follow(self, schedule: momopay.PollSchedule) -> Iterator[RowOutcome]:
        """Wait until accepted rows have settled; record each end in the journal and yield it."""
        from momopay.durable.payment import payment_of
        from momopay.journal.evidence import Draft

        waiting = [(each.payment, each.row) for each in self.open() if each.payment is not None]
        rows = {payment.transaction_id: row for payment, row in waiting}
        payments = [payment for payment, _ in waiting]
        for ended in self._client.transactions.wait_all(payments, until=momopay.settled, schedule=schedule):
            self._journal.settle(ended)
            row = rows[ended.transaction_id]
            paid = Draft(momopay.EntryKind.PAYOUT, row.reference, row.amount, row.phone, row.reference)
            payment = payment_of(paid, ended)
            outcome = RowOutcome(row, momopay.JournalState.ACCEPTED, payment)
            self.outcomes[row.reference] = outcome
            yield outcome

    def entry(self, row: PayoutRow) -> momopay.JournalEntry | None:
        """Return what the journal has of a row; None if it has nothing or cannot be read."""
        with suppress(JournalError):
            return self._journal.get(row.reference, momopay.EntryKind.PAYOUT)
        return None

    def read_rest(self) -> Iterator[RowOutcome]:
        """Read the journal again for rows that this run did not finish; yield those whose state has changed.

        An interrupt may have broken off a payout, and another process may be sending rows of the same file.
        """
        for reference, each in self.outcomes.items():
            if each.state not in {NOT_BEGUN, momopay.JournalState.SENDING}:
                continue
            try:
                found = RowOutcome.known(each.row, self._journal)
            except JournalError as error:
                # The first of these rows is the one that may have been under way.
                found = RowOutcome(each.row, momopay.JournalState.UNKNOWN, error=error)
            self.outcomes[reference] = found
            if found.state != each.state:
                yield found
            if found.error is not None:
                return


def exit_code(outcomes: Iterable[RowOutcome], *, followed: bool) -> ExitCode:
    """Return the exit status of a run, decided by the most serious outcome."""
    outcomes = list(outcomes)
    states = {each.state for each in outcomes}
    # SENDING: another process is sending it, so whether it is paid is not known here.
    if states & {momopay.JournalState.UNKNOWN, momopay.JournalState.SENDING}:
        return ExitCode.UNKNOWN
    if any(each.has_failed for each in outcomes):
        return ExitCode.REFUSED
    if states != {momopay.JournalState.ACCEPTED}:
        return ExitCode.PARTIAL
    all_paid = all(each.end == momopay.TransactionStatus.SUCCESS for each in outcomes)
    return ExitCode.TRY_LATER if followed and not all_paid else ExitCode.OK
