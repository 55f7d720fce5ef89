"""One run of a payroll file: read the account, show the plan, ask, pay, follow, report."""

from __future__ import annotations

import getpass
import os
import signal
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType

import momopay
from momopay.cli.exit_codes import ExitCode
from momopay.cli.output import Output
from momopay.cli.payroll import PayrollRun, Plan, RowOutcome, check_account, make_plan, read_wallet, reconcile
from momopay.cli.payroll_csv import write_report
from momopay.cli.payroll_file import PayrollFile
from momopay.cli.payroll_progress import Pace, progress, reading
from momopay.cli.payroll_report import NOT_BEGUN, show_end, show_plan, show_row
from momopay.errors import MomoPayError
from momopay.money import format_amount


@dataclass(frozen=True)
class FileRun:
    """One run of a file.

    Attributes:
        output: For the terminal, or a program.
        payroll: The file.
        client: Of the account.
        journal: Of the account.
        pace: Of the client's budget.
        schedule: When to poll for the ends; None if they are not followed.
        report: Where to write the report.
        mask_phones: In the report.
    """

    output: Output
    payroll: PayrollFile
    client: momopay.Client
    journal: momopay.Journal
    pace: Pace
    schedule: momopay.PollSchedule | None
    report: Path | None
    mask_phones: bool

    def pay(self, confirm: Callable[[Plan], None]) -> int:
        """Pay what is still to be paid, show it, and return the exit status."""
        with reading(self.output, self.pace, "Reading the account"):
            check_account(make_plan(self.payroll.rows, self.journal), self.client)
            # Before the plan that is shown: what is found now needs no payment, and its sum must not be asked about.
            self.journal.reconcile_all(self.client)
            plan = make_plan(self.payroll.rows, self.journal)
            wallet = read_wallet(self.client)
        show_plan(self.output, self.payroll, plan, wallet)
        outcomes = {each.row.reference: each for each in (*plan.accepted, *plan.in_doubt)}
        self._write_report(outcomes)  # a report that cannot be written stops before money moves
        if plan.to_pay:
            confirm(plan)
        signals: list[int] = []
        paying = PayrollRun(self.client, self.journal, metadata=_metadata(self.payroll))
        # An interrupt is raised wherever this thread is; what was not yielded is not begun, or is in the journal, which
        # the next run reads.
        with _stopping_on_signals(paying, signals), suppress(KeyboardInterrupt):
            try:
                self._pay_and_follow(paying, plan, outcomes)
            except MomoPayError as error:  # a search or a wait; all payouts are in the journal
                paying.stopped_by = paying.stopped_by or error
        self._write_report(outcomes)
        # As shells have it: 128 and the number of the signal.
        code = 128 + signals[0] if signals else exit_code(self.payroll, outcomes, followed=self.schedule is not None)
        show_end(
            self.output,
            self.payroll,
            outcomes,
            accepted_before=frozenset(each.row.reference for each in plan.accepted),
            stopped_by=paying.stopped_by,
            interrupted=bool(signals),
            code=code,
        )
        return code

    def _pay_and_follow(self, paying: PayrollRun, plan: Plan, outcomes: dict[str, RowOutcome]) -> None:
        if plan.to_pay:
            with progress(self.output, self.pace, len(plan.to_pay), "Paying", momopay.Lane.PAYMENT) as advance:
                for outcome in paying.pay(plan.to_pay):
                    outcomes[outcome.row.reference] = outcome
                    advance()
                    show_row(self.output, "row", outcome)
        if paying.stop:
            return
        if any(each.state == momopay.JournalState.UNKNOWN for each in outcomes.values()):
            with reading(self.output, self.pace, "Searching for what is in doubt"):
                reconcile(self.journal, self.client, outcomes)
        open_rows = [each for each in outcomes.values() if each.last is not None and not each.has_settled]
        if self.schedule is None or not open_rows:
            return
        with progress(self.output, self.pace, len(open_rows), "Waiting for the ends", momopay.Lane.POLL) as advance:
            for outcome in paying.follow(open_rows, self.schedule):
                outcomes[outcome.row.reference] = outcome
                advance()
                show_row(self.output, "settled", outcome)

    def _write_report(self, outcomes: dict[str, RowOutcome]) -> None:
        if self.report is not None:
            write_report(Output(as_json=False, show_phones=not self.mask_phones), self.report, self.payroll, outcomes)


def _metadata(payroll: PayrollFile) -> dict[str, object]:
    """Return what the journal keeps with each payout of the file."""
    try:
        by = getpass.getuser()
    except (KeyError, ImportError, OSError):  # an id without a name, as in a container
        by = f"uid {os.getuid()}" if hasattr(os, "getuid") else "unknown"
    return {
        "payroll": {
            "file": payroll.name,
            "sha256": payroll.sha256,
            "rows": len(payroll.rows),
            "total": format_amount(payroll.total),
            "by": by,
            "at": datetime.now(UTC).isoformat(timespec="seconds"),
        }
    }


def exit_code(payroll: PayrollFile, outcomes: dict[str, RowOutcome], *, followed: bool) -> ExitCode:
    """Return the exit status for what happened to a file; what matters most decides."""
    states = {outcomes[row.reference].state if row.reference in outcomes else NOT_BEGUN for row in payroll.rows}
    # SENDING: another process is sending it, so it is not known here.
    if states & {momopay.JournalState.UNKNOWN, momopay.JournalState.SENDING}:
        return ExitCode.UNKNOWN
    if any(each.has_failed for each in outcomes.values()):
        return ExitCode.REFUSED
    if states != {momopay.JournalState.ACCEPTED}:
        return ExitCode.PARTIAL
    return ExitCode.TRY_LATER if followed and not all(each.is_paid for each in outcomes.values()) else ExitCode.OK


@contextmanager
def _stopping_on_signals(paying: PayrollRun, received: list[int]) -> Generator[None]:
    """On the first SIGINT or SIGTERM, stop after the payout under way; on the second, break it off."""

    def stop(number: int, _frame: FrameType | None) -> None:
        is_second = bool(received)
        received.append(number)
        paying.stop = True
        if is_second or paying.may_be_interrupted:
            raise KeyboardInterrupt

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
