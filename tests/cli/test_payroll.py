"""What an exit status says of a payroll, and how a run that is broken off or followed knows its rows."""

import signal
from decimal import Decimal

from cli.kit import PayrollShell, signalling
from in_turn import in_turn
from journal.kit import begin, lease_of
from momopay import Journal, Payment, TransactionStatus
from momopay.cli.exit_codes import ExitCode
from momopay.cli.payroll import NOT_BEGUN, RowOutcome, exit_code
from momopay.cli.payroll_report import _TO_DO
from momopay.sandbox import Sandbox
from momopay.spreadsheets.rows import PayoutRow


def outcome(state: str, status: str | None = None) -> RowOutcome:
    payment = None if status is None else Payment.model_construct(status=TransactionStatus(status))
    return RowOutcome(PayoutRow(2, "SAL-0", "254700000000", Decimal(1000), None), state, payment)


PAID, OPEN = outcome("ACCEPTED", "SUCCESS"), outcome("ACCEPTED", "PENDING")


@in_turn(
    ("others", "followed", "code"),
    [
        ([], False, ExitCode.OK),
        ([], True, ExitCode.OK),
        ([OPEN], False, ExitCode.OK),
        ([OPEN], True, ExitCode.TRY_LATER),
        ([outcome(NOT_BEGUN)], False, ExitCode.PARTIAL),
        ([outcome("REFUSED")], True, ExitCode.PARTIAL),
        ([outcome("NOT_SENT")], False, ExitCode.PARTIAL),
        ([outcome("ACCEPTED", "FAILED"), outcome("REFUSED")], False, ExitCode.REFUSED),
        ([outcome("ACCEPTED", "REVERSED")], True, ExitCode.REFUSED),
        ([outcome("SENDING"), outcome("ACCEPTED", "REVERSED")], False, ExitCode.UNKNOWN),
        ([outcome("UNKNOWN"), outcome(NOT_BEGUN)], True, ExitCode.UNKNOWN),
    ],
)
def test_what_matters_most_decides(others: list[RowOutcome], followed: bool, code: ExitCode) -> None:
    """Another process is sending what is in SENDING: that is not "not paid"."""
    assert exit_code([PAID, *others], followed=followed) == code


def test_a_row_that_another_process_is_sending_is_not_called_unpaid(payroll: PayrollShell) -> None:
    """The run stops at a row before it, and would not know of it without the journal."""
    payroll.file.write_text("reference,phone,amount\nBIG,0712345678,100000\nSAL-1,0712345678,1000\n")
    payroll.sandbox.account(payroll.momopay.settings["MOMOPAY_API_KEY"]).b2c_balance = Decimal(2000)
    with Journal(f"sqlite:///{payroll.database}") as journal, lease_of(journal) as lease:
        assert begin(journal, lease, "SAL-1", amount=1000)
        done = payroll.run("--yes", "--json")
    assert {row["reference"]: row["state"] for row in done.lines[-1]["left"]} == {"BIG": "REFUSED", "SAL-1": "SENDING"}
    assert done.code == ExitCode.UNKNOWN


def test_the_first_interrupt_of_a_wait_reports_what_was_paid(payroll: PayrollShell, sandbox: Sandbox) -> None:
    payroll.write(2)

    with signalling([signal.SIGINT], lambda: len(payroll.paid) == 2 and sandbox.requests[-1].method == "GET"):
        done = payroll.run("--yes", "--wait", "--every", "0.1", "--json", "--report", str(payroll.report))
    end = done.lines[-1]
    assert (done.code, end["event"], end["interrupted"]) == (130, "end", True)
    assert (end["rows"], payroll.report.read_text().count("ACCEPTED")) == (
        {"accepted": {"rows": 2, "total": "2002"}},
        2,
    )
    assert payroll.unresolved() == []


def test_what_may_have_been_paid_is_not_to_be_paid_again_at_once() -> None:
    assert "only once it is REVERSED" in _TO_DO["EXPIRED"]
    assert "not back yet" in _TO_DO["FAILED"]
