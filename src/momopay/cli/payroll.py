"""A payroll: which rows are still to be paid, paying them, and following them to their end. Knows no terminal.

The rules are the library's: `payouts.pay_all` decides what is sent, when to wait and when to stop.

One thread runs a `PayrollRun`. `PayrollRun.stop` may be set from a signal handler.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

import momopay
from momopay.cli.exit_codes import CommandError, ExitCode
from momopay.cli.payroll_file import Fault, Row
from momopay.cli.payroll_similar import similar_references
from momopay.errors import JournalError, MomoPayError, OutcomeUnknownError, TransactionNotFoundError


@dataclass(frozen=True)
class RowOutcome:
    """What happened to one row.

    Attributes:
        row: The row.
        state: A `JournalState`.
        transaction_id: The service's id, once it is known.
        error: Why it was not accepted, or is not known to be.
        last: The payout as the service last reported it, or as the journal keeps that; None if it was not accepted.
    """

    row: Row
    state: str
    transaction_id: str | None = None
    error: MomoPayError | None = None
    last: momopay.Transaction | momopay.Payout | None = None

    @property
    def end(self) -> momopay.TransactionStatus | None:
        """How it ended; None while it is not known to have ended."""
        return None if self.last is None or not self.last.status.is_terminal else self.last.status

    @property
    def is_paid(self) -> bool:
        """Whether the money has arrived."""
        return self.end == momopay.TransactionStatus.SUCCESS

    @property
    def has_failed(self) -> bool:
        """Whether the service accepted it and the money did not arrive."""
        return self.end is not None and self.end.ended_without_success

    @property
    def has_settled(self) -> bool:
        """Whether the money is where it will stay."""
        return self.end is not None and self.end != momopay.TransactionStatus.FAILED

    @classmethod
    def of(cls, row: Row, entry: momopay.JournalEntry) -> RowOutcome:
        """Return what the journal says of a row."""
        from momopay.resources.pay_all import transaction_in  # loads pydantic

        is_accepted = entry.state == momopay.JournalState.ACCEPTED and entry.transaction_id is not None
        return cls(row, entry.state, entry.transaction_id, last=transaction_in(entry) if is_accepted else None)


@dataclass(frozen=True)
class Plan:
    """What the journal knows of a file's rows.

    Attributes:
        to_pay: New, or refused or not sent before, or being sent by another process, which `pay_once` waits for.
        accepted: The service has them.
        in_doubt: They may have been paid, and are not sent again.
        similar: Rows to pay that may be another payout under another spelling.
    """

    to_pay: list[Row] = field(default_factory=list[Row])
    accepted: list[RowOutcome] = field(default_factory=list[RowOutcome])
    in_doubt: list[RowOutcome] = field(default_factory=list[RowOutcome])
    similar: list[Fault] = field(default_factory=list[Fault])


def make_plan(rows: list[Row], journal: momopay.Journal | None) -> Plan:
    """Compare a file's rows with the journal; without one, all are new.

    Raises:
        CommandError: A reference is in the journal with another amount or phone.
        JournalError: The journal cannot be read.
    """
    plan = Plan()
    conflicts: list[Row] = []
    for row in rows:
        entry = None if journal is None else journal.get(row.reference)
        if entry is None:
            plan.to_pay.append(row)
        elif (entry.amount, entry.phone) != (row.amount, row.phone):
            conflicts.append(row)
        elif entry.state == momopay.JournalState.ACCEPTED:
            plan.accepted.append(RowOutcome.of(row, entry))
        elif entry.state == momopay.JournalState.UNKNOWN:
            plan.in_doubt.append(RowOutcome.of(row, entry))
        else:
            plan.to_pay.append(row)
    # pay_once would refuse each of them, but only after the rows before it have been paid.
    if conflicts:
        lines = ", ".join(str(row.line) for row in conflicts)
        raise CommandError(
            f"the references on lines {lines} are in the journal with another amount or phone; nothing was sent",
            remedy="give each new payout a reference of its own; fix the file if the amount or phone is wrong",
        )
    plan.similar.extend(similar_references(rows, plan.to_pay, journal))
    return plan


def check_account(plan: Plan, client: momopay.Client) -> None:
    """Check that the account has what the journal calls accepted; one read, none for a new journal.

    A journal that was filled with a test key would otherwise make a live payroll skip everybody.

    Raises:
        CommandError: The journal is another account's.
        MomoPayError: The read failed.
    """
    known = next((each.transaction_id for each in plan.accepted if each.transaction_id), None)
    if known is None:
        return
    try:
        client.transactions.get(known)
    except TransactionNotFoundError as error:
        raise CommandError(
            "this account does not have what the journal calls accepted: it is the journal of another account",
            remedy="keep one journal for each account: one filled on a sandbox ends with that sandbox",
            code=ExitCode.CONFIGURATION,
        ) from error


@dataclass(frozen=True)
class Wallet:
    """What the service says of the money for fees.

    Attributes:
        available: The service wallet, KES.
        last_fee: The fee of the newest payout that was not without one, KES.
    """

    available: Decimal
    last_fee: Decimal | None

    def estimated_fees(self, payouts: int) -> Decimal | None:
        """Return about what so many payouts cost in fees, KES; None if no payout is known to go by."""
        return None if self.last_fee is None else self.last_fee * payouts


def read_wallet(client: momopay.Client) -> Wallet:
    """Read the service wallet and the last fee, with two requests.

    Raises:
        MomoPayError: A read failed.
    """
    available = client.wallet.balance().available_balance
    newest = client.transactions.list(type="B2C", limit=20).items
    # The service shows 0 as the fee of a payout that failed (service page, "Transaction").
    shown = {momopay.TransactionStatus.PENDING, momopay.TransactionStatus.SUCCESS}
    return Wallet(available, next((item.transaction_fee for item in newest if item.status in shown), None))


class PayrollRun:
    """Pays rows, one after another, and follows them.

    Args:
        client: Of the account.
        journal: Of the account.
        metadata: Kept in the journal's entry of each row.

    Attributes:
        stop: Set it to stop after the payout under way.
        stopped_by: The error that stopped the run, if one did.
    """

    def __init__(
        self, client: momopay.Client, journal: momopay.Journal, *, metadata: Mapping[str, object] | None = None
    ) -> None:
        self._client = client
        self._journal = journal
        self._metadata = metadata
        self._paying: momopay.PayoutIterator[Any] | None = None
        self.stop: bool = False
        self.stopped_by: MomoPayError | None = None

    @property
    def may_be_interrupted(self) -> bool:
        """Whether no payout is under way, so that an interrupt leaves nothing in doubt."""
        return self._paying is None or self._paying.waiting

    def pay(self, rows: list[Row]) -> Iterator[RowOutcome]:
        """Pay until all is done or there is a reason to stop; rows without an outcome were not begun.

        Yields:
            What happened to each row.
        """
        done = 0
        paying = self._paying = self._client.payouts.pay_all(map(self._item, rows), journal=self._journal)
        try:
            for outcome in paying:
                # Before it is judged: the caller records it even if the run ends here.
                yield RowOutcome(
                    rows[done],
                    outcome.state,
                    getattr(outcome.payout or outcome.error, "transaction_id", None),
                    outcome.error,
                    outcome.payout,
                )
                done += 1
                if outcome.stops:
                    self.stopped_by = _reason_to_stop(outcome)
                if self.stop:
                    return
        except KeyboardInterrupt:  # from the second signal, or from the first while it waited
            yield from self._begun(rows[done : done + 1])
        finally:
            self._paying = None

    def follow(self, outcomes: Iterable[RowOutcome], schedule: momopay.PollSchedule) -> Iterator[RowOutcome]:
        """Wait until accepted rows have settled, and record their ends in the journal.

        Yields:
            Each row that has settled.

        Raises:
            WaitTimeoutError: Some have not settled in time.
            MomoPayError: What else ends a wait; or the journal failed.
        """
        waiting = {each.last.transaction_id: each for each in outcomes if each.last and not each.has_settled}
        records = [each.last for each in waiting.values() if each.last]
        for ended in self._client.transactions.wait_all(records, until=momopay.settled, schedule=schedule):
            self._journal.settle(ended)
            yield replace(waiting[ended.transaction_id], last=ended)

    def _item(self, row: Row) -> momopay.PayoutItem:
        return momopay.PayoutItem(
            reference=row.reference,
            amount=row.amount,
            phone=row.phone,
            description=row.description,
            metadata=self._metadata,
        )

    def _begun(self, rows: list[Row]) -> Iterator[RowOutcome]:
        """Yield what the journal says of rows that may have been under way."""
        for row in rows:
            try:
                entry = self._journal.get(row.reference)
            except JournalError as error:
                yield RowOutcome(row, momopay.JournalState.UNKNOWN, error=error)
                continue
            if entry is not None:
                yield RowOutcome.of(row, entry)


def _reason_to_stop(outcome: momopay.PayoutOutcome) -> MomoPayError | None:
    if not isinstance(outcome.error, OutcomeUnknownError):
        return outcome.error
    return CommandError(
        "several outcomes in a row are unknown: the service, or the way to it, is in trouble",
        remedy="run again once it has recovered; what is in doubt is searched for first",
        code=ExitCode.UNKNOWN,
    )


def reconcile(journal: momopay.Journal, client: momopay.Client, outcomes: dict[str, RowOutcome]) -> None:
    """Search once more for rows of unknown outcome, and replace the outcomes of those that are found.

    Raises:
        MomoPayError: The search failed; the rows stay in doubt.
    """
    if not any(each.state == momopay.JournalState.UNKNOWN for each in outcomes.values()):
        return
    for entry in journal.reconcile_all(client):
        outcome = outcomes.get(entry.reference)
        if outcome is not None and entry.state == momopay.JournalState.ACCEPTED:
            outcomes[entry.reference] = RowOutcome.of(outcome.row, entry)
