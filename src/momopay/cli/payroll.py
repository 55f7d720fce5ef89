"""Paying a payroll: which rows are still to be paid, and paying them one by one. Knows no terminal.

Invariant: nobody is paid twice, because every row goes through ``payouts.pay_once`` with the account's journal. This
module decides only when to pause and when to stop, so a mistake in it can leave rows unpaid, but not pay them again.

One thread runs a `PayrollRun`. `PayrollRun.stop` may be set from a signal handler.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal

import momopay
from momopay.cli.exit_codes import CommandError, ExitCode
from momopay.cli.payroll_file import Fault, Row
from momopay.cli.payroll_similar import similar_references
from momopay.errors import (
    APIConnectionError,
    BudgetExhaustedError,
    ChannelNotFoundError,
    ConfigurationError,
    DuplicatePayoutError,
    InsufficientFundsError,
    InsufficientServiceBalanceError,
    InvalidApiKeyError,
    JournalError,
    KycNotVerifiedError,
    MomoPayError,
    OutcomeUnknownError,
    ProtocolError,
    ThrottledError,
    TransactionNotFoundError,
)

# Errors that every other row would meet too. A refusal of one row, such as its phone, is not among them.
_STOPPING = (
    APIConnectionError,
    BudgetExhaustedError,
    ChannelNotFoundError,
    ConfigurationError,
    InsufficientFundsError,
    InsufficientServiceBalanceError,
    InvalidApiKeyError,
    JournalError,
    KycNotVerifiedError,
    ProtocolError,
    ThrottledError,
)
# So many unknown outcomes one after another mean that the service is in trouble.
_MAX_UNKNOWN_IN_A_ROW = 3
# Seconds after which a pause checks again whether it is to stop.
_NAP = 0.2


@dataclass(frozen=True)
class RowOutcome:
    """What happened to one row.

    Attributes:
        row: The row.
        state: A `JournalState`.
        transaction_id: The service's id, once it is known.
        error: Why it was not accepted, or is not known to be.
    """

    row: Row
    state: str
    transaction_id: str | None = None
    error: MomoPayError | None = None


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
            plan.accepted.append(RowOutcome(row, entry.state, entry.transaction_id))
        elif entry.state == momopay.JournalState.UNKNOWN:
            plan.in_doubt.append(RowOutcome(row, entry.state, entry.transaction_id))
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
    """Pays rows, one after another.

    Args:
        client: Of the account.
        journal: Of the account.
        budget: The client's.
        on_pause: Called when a wait for the budget begins.

    Attributes:
        stop: Set it to stop after the payout under way.
        stopped_by: The error that stopped the run, if one did.
    """

    def __init__(
        self,
        client: momopay.Client,
        journal: momopay.Journal,
        *,
        budget: momopay.Budget,
        on_pause: Callable[[], None] = lambda: None,
    ) -> None:
        self._client = client
        self._journal = journal
        self._budget = budget
        self._on_pause = on_pause
        self._was_broken_off = False
        self.stop: bool = False
        self.stopped_by: MomoPayError | None = None

    def pay(self, rows: list[Row]) -> Iterator[RowOutcome]:
        """Pay until all is done or there is a reason to stop; rows without an outcome were not begun.

        Yields:
            What happened to each row.
        """
        unknown = 0
        for row in rows:
            self._wait_for_a_slot()
            if self.stop:
                return
            outcome = self._pay(row)
            # Before it is judged: the caller records it even if the run ends here.
            yield outcome
            unknown = unknown + 1 if outcome.state == momopay.JournalState.UNKNOWN else 0
            if isinstance(outcome.error, _STOPPING):
                self.stopped_by = outcome.error
            elif unknown == _MAX_UNKNOWN_IN_A_ROW:
                self.stopped_by = CommandError(
                    f"{unknown} outcomes in a row are unknown: the service, or the way to it, is in trouble",
                    remedy="run again once it has recovered; what is in doubt is searched for first",
                    code=ExitCode.UNKNOWN,
                )
            if self.stopped_by is not None or self._was_broken_off:
                return

    def _pay(self, row: Row) -> RowOutcome:
        try:
            accepted = self._client.payouts.pay_once(
                journal=self._journal,
                reference=row.reference,
                amount=row.amount,
                phone=row.phone,
                description=row.description,
            )
        except OutcomeUnknownError as error:
            return RowOutcome(row, momopay.JournalState.UNKNOWN, error.transaction_id, error)
        except MomoPayError as error:
            return self._from_journal(row, error)
        except KeyboardInterrupt:  # from the second signal
            self._was_broken_off = True
            return self._from_journal(row, None)
        return RowOutcome(row, momopay.JournalState.ACCEPTED, accepted.transaction_id)

    def _from_journal(self, row: Row, error: MomoPayError | None) -> RowOutcome:
        """Return the journal's state, which knows more than the error: another process may have paid the row."""
        states = momopay.JournalState
        try:
            entry = self._journal.get(row.reference)
        except JournalError:
            may_be_paid = error is None or error.may_have_executed
            return RowOutcome(row, states.UNKNOWN if may_be_paid else states.NOT_SENT, error=error)
        if entry is None:
            return RowOutcome(row, states.NOT_SENT, error=error)
        if isinstance(error, DuplicatePayoutError):  # the entry is of another payout
            return RowOutcome(row, states.REFUSED, error=error)
        return RowOutcome(row, entry.state, entry.transaction_id, error)

    def _wait_for_a_slot(self) -> None:
        # pay_once would wait too, but then a stop would come only after the wait and the payout behind it. With
        # `within` below zero, reserve returns the delay and takes no slot.
        has_paused = False
        while not self.stop:
            from momopay._transport import clock

            delay = self._budget.reserve(clock.now(), momopay.Lane.PAYMENT, within=-1.0)
            if delay <= 0:
                return
            if not has_paused:
                self._on_pause()
            has_paused = True
            time.sleep(min(delay, _NAP))


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
            outcomes[entry.reference] = RowOutcome(outcome.row, entry.state, entry.transaction_id)
