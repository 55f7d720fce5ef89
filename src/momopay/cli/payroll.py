"""A payroll under way: what is still to be paid, and paying it, row by row. Knows no terminal.

All safety is the journal's and ``pay_once``'s; what is added here is when to pause and when to stop.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal

from momopay._ratelimit.budget import Budget, Lane
from momopay.cli.exit_codes import CommandError, ExitCode
from momopay.cli.payroll_file import Row
from momopay.client import Client
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
from momopay.journal import Journal, JournalEntry, JournalState

STOPPING = (
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
"""What would meet every other row too."""

IN_DOUBT_AT_MOST = 3
"""So many outcomes unknown in a row say that the service is in trouble."""

_NAP = 0.2
"""Seconds after which a wait sees that it is to stop."""


@dataclass(frozen=True)
class Plan:
    """What the journal says of a file's rows.

    Attributes:
        to_pay: New, refused before, or surely not sent before.
        accepted: The service has them.
        in_doubt: They may have been paid; they are not sent again.
        conflicting: Their references stand for another amount or phone.
    """

    to_pay: list[Row] = field(default_factory=list[Row])
    accepted: list[tuple[Row, JournalEntry]] = field(default_factory=list[tuple[Row, JournalEntry]])
    in_doubt: list[tuple[Row, JournalEntry]] = field(default_factory=list[tuple[Row, JournalEntry]])
    conflicting: list[Row] = field(default_factory=list[Row])


def plan(rows: list[Row], journal: Journal | None) -> Plan:
    """Hold a file's rows against the journal; without one, all are new.

    Raises:
        JournalError: The journal cannot be read.
    """
    made = Plan()
    for row in rows:
        entry = None if journal is None else journal.get(row.reference)
        if entry is None:
            made.to_pay.append(row)
        elif (entry.amount, entry.phone) != (row.amount, row.phone):
            made.conflicting.append(row)
        elif entry.state is JournalState.ACCEPTED:
            made.accepted.append((row, entry))
        elif entry.state is JournalState.UNKNOWN:
            made.in_doubt.append((row, entry))
        else:
            made.to_pay.append(row)
    return made


def refuse_conflicts(made: Plan) -> None:
    """Refuse a file that gives a reference of the journal another amount or phone.

    Raises:
        CommandError: It does.
    """
    if made.conflicting:
        lines = ", ".join(str(row.line) for row in made.conflicting)
        raise CommandError(
            f"the references on lines {lines} stand for another amount or phone in the journal; nothing was sent",
            remedy="give each new payout a reference of its own; mend the file if the amount or phone is wrong",
        )


def is_of_this_account(made: Plan, client: Client) -> bool:
    """Tell whether the account has what the journal calls accepted; one read, none for a new journal.

    A journal filled with a test key would otherwise make a live payroll skip everybody.

    Raises:
        MomoPayError: The read failed.
    """
    known = next((entry.transaction_id for _, entry in made.accepted if entry.transaction_id), None)
    try:
        return known is None or bool(client.transactions.get(known))
    except TransactionNotFoundError:
        return False


@dataclass(frozen=True)
class Result:
    """What became of one row.

    Attributes:
        row: The row.
        state: As the journal has it.
        transaction_id: The service's id, once it is known.
        error: Why it was not accepted, or is not known to be.
    """

    row: Row
    state: JournalState
    transaction_id: str | None = None
    error: MomoPayError | None = None


class Payroll:
    """Pays rows, one after another.

    Args:
        client: Of the account.
        journal: Of the account.
        budget: The client's. It is waited for here, between payouts, where a kill leaves nothing in doubt.
        pausing: Told the seconds of each wait for it.

    Attributes:
        stop: Set it to stop after the payout under way; a signal's handler may.
        stopped_by: The error that stopped it, if one did.
        interrupted: Whether a payout under way was broken off.
    """

    def __init__(
        self, client: Client, journal: Journal, *, budget: Budget | None, pausing: Callable[[float], None]
    ) -> None:
        self._client = client
        self._journal = journal
        self._budget = budget
        self._pausing = pausing
        self.stop: bool = False
        self.stopped_by: MomoPayError | None = None
        self.interrupted: bool = False

    def pay(self, rows: list[Row]) -> Iterator[Result]:
        """Pay until all is done or there is reason to stop; rows without a result were not begun.

        Yields:
            What became of each row.
        """
        in_doubt = 0
        for row in rows:
            self._wait_for_a_slot()
            if self.stop:
                return
            result = self._pay(row)
            yield result
            in_doubt = in_doubt + 1 if result.state is JournalState.UNKNOWN else 0
            if isinstance(result.error, STOPPING):
                self.stopped_by = result.error
            elif in_doubt == IN_DOUBT_AT_MOST:
                self.stopped_by = CommandError(
                    f"{in_doubt} outcomes in a row are unknown: the service, or the way to it, is in trouble",
                    remedy="run again once it has recovered; what is in doubt is looked for first",
                    code=ExitCode.UNKNOWN,
                )
            if self.stopped_by is not None or self.interrupted:
                return

    def _pay(self, row: Row) -> Result:
        try:
            accepted = self._client.payouts.pay_once(
                journal=self._journal,
                reference=row.reference,
                amount=row.amount,
                phone=row.phone,
                description=row.description,
            )
        except OutcomeUnknownError as error:
            return Result(row, JournalState.UNKNOWN, error.transaction_id, error)
        except MomoPayError as error:
            return self._as_journalled(row, error)
        except KeyboardInterrupt:
            self.interrupted = True
            return self._as_journalled(row, None)
        return Result(row, JournalState.ACCEPTED, accepted.transaction_id)

    def _as_journalled(self, row: Row, error: MomoPayError | None) -> Result:
        """Take the journal's word, which knows more than the error: another process may have paid the row."""
        try:
            entry = self._journal.get(row.reference)
        except JournalError:
            in_doubt = error is None or error.may_have_executed
            return Result(row, JournalState.UNKNOWN if in_doubt else JournalState.NOT_SENT, error=error)
        if entry is None:
            return Result(row, JournalState.NOT_SENT, error=error)
        if isinstance(error, DuplicatePayoutError):
            return Result(row, JournalState.REFUSED, error=error)
        return Result(row, entry.state, entry.transaction_id, error)

    def _wait_for_a_slot(self) -> None:
        told = False
        while self._budget is not None and not self.stop:
            delay = self._budget.reserve(time.monotonic(), Lane.PAYMENT, within=-1.0)  # told, not taken
            if delay <= 0:
                return
            if not told:
                self._pausing(delay)
            told = True
            time.sleep(min(delay, _NAP))


def look_again(journal: Journal, client: Client, results: dict[str, Result]) -> None:
    """Settle what the service's list shows by now; failures change nothing, for the journal keeps the doubt.

    Raises:
        JournalError: The journal cannot be read.
    """
    if not any(result.state is JournalState.UNKNOWN for result in results.values()):
        return
    for entry in journal.reconcile_all(client):
        result = results.get(entry.reference)
        if result is not None and entry.state is JournalState.ACCEPTED:
            results[entry.reference] = Result(result.row, entry.state, entry.transaction_id)


_FEE_IS_SHOWN = frozenset({"PENDING", "SUCCESS"})
"""SPEC.md, "Fee value by status"."""


@dataclass(frozen=True)
class Hints:
    """What the service tells of what a payroll will cost.

    Attributes:
        available: The service wallet, KES.
        last_fee: The fee of the last payout that the list shows, KES.
    """

    available: Decimal
    last_fee: Decimal | None

    def fees(self, payouts: int) -> Decimal | None:
        """Guess the fees of so many payouts, KES."""
        return None if self.last_fee is None else self.last_fee * payouts


def hints(client: Client) -> Hints:
    """Read the service wallet and the last fee; two requests.

    Raises:
        MomoPayError: A read failed.
    """
    available = client.wallet.balance().available_balance
    last = client.transactions.list(type="B2C", limit=20).items
    fees = (item.transaction_fee for item in last if item.status in _FEE_IS_SHOWN)
    return Hints(available, next(fees, None))
