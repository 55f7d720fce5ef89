"""A payroll from a file: nobody is paid twice, and everything is told. The sandbox's ledger is the witness."""

from __future__ import annotations

import csv
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import pytest

from cli.kit import Done, Shell, write_salaries
from momopay import Client, Journal
from momopay.sandbox import Account, Fault, Sandbox
from patience import LONGEST, until

PAY = "/b2c/payouts"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


@pytest.fixture
def run(momopay: Shell, folder: Path) -> Callable[..., Done]:
    """`payouts run` on a file, with the journal of this test."""

    def start(file: Path, *options: str, piped: str | None = None, **settings: str) -> Done:
        journal = str(folder / "payouts.db")
        return momopay("payouts", "run", str(file), "--journal", journal, *options, piped=piped, **settings)

    return start


def paid(sandbox: Sandbox) -> Counter[str]:
    return Counter(movement.reference for movement in sandbox.ledger if str(movement.kind) == "payout")


def assert_paid_once(sandbox: Sandbox, rows: int, prefix: str = "SAL") -> None:
    assert paid(sandbox) == {f"{prefix}-{row}": 1 for row in range(rows)}


def initiated(sandbox: Sandbox) -> int:
    return [request.path for request in sandbox.requests].count(PAY)


def test_a_file_is_paid_once_however_often_it_is_run(run: Callable[..., Done], sandbox: Sandbox, folder: Path) -> None:
    file = write_salaries(folder / "salaries.csv", 20)
    first = run(file, "--yes", "--json")
    assert first.code == 0
    plan, *rows, end = first.lines
    assert plan["to_pay"] == {"rows": 20, "total": "20200"}
    assert [row["line"] for row in rows] == list(range(2, 22))
    assert {row["state"] for row in rows} == {"ACCEPTED"}
    assert end["rows"] == {"accepted": {"rows": 20, "total": "20200"}}
    assert_paid_once(sandbox, 20)
    assert {movement.amount for movement in sandbox.ledger} == {Decimal(f"{1000 + row}.50") for row in range(20)} | {1}
    again = run(file, "--yes")
    assert again.code == 0
    assert "Nothing to pay: all 20 were accepted before" in again.out
    assert not any(words in again.out for words in ("Done", "Accepted now", "must hold", "Service wallet"))
    assert_paid_once(sandbox, 20)
    assert initiated(sandbox) == 20


def test_what_was_accepted_before_is_told_apart(run: Callable[..., Done], sandbox: Sandbox, folder: Path) -> None:
    run(write_salaries(folder / "salaries.csv", 2), "--yes")
    more = run(write_salaries(folder / "salaries.csv", 5), "--yes")
    end = more.out.partition("Done")[2]
    assert [line.split() for line in end.splitlines() if line.startswith("Accepted")] == [
        ["Accepted", "before", "2", "2,002.00"],
        ["Accepted", "now", "3", "3,010.50"],
    ]
    assert_paid_once(sandbox, 5)


def test_a_dry_run_sends_nothing_and_leaves_nothing(run: Callable[..., Done], sandbox: Sandbox, folder: Path) -> None:
    file = write_salaries(folder / "salaries.csv", 20)
    done = run(file, "--dry-run", MOMOPAY_API_KEY="", MOMOPAY_BASE_URL="")
    assert done.code == 0
    assert "20,200.00" in done.out
    assert "SAL-19" in done.out
    assert sandbox.requests == []
    assert [path.name for path in folder.iterdir()] == ["salaries.csv"]


def test_a_faulty_file_sends_nothing(run: Callable[..., Done], sandbox: Sandbox, folder: Path) -> None:
    file = write_salaries(folder / "salaries.csv", 20)
    file.write_text(file.read_text() + "SAL-3,0712345678,5,\n")
    done = run(file, "--yes")
    assert done.code == 2
    assert "22" in done.out
    assert "at least KES 10" in done.out
    assert sandbox.requests == []
    faulty = run(file, "--yes", "--json")
    assert faulty.json == {
        "event": "faults",
        "faults": [
            {"line": 22, "column": "reference", "problem": "is the same as on line 5"},
            {"line": 22, "column": "amount", "problem": "must be at least KES 10"},
        ],
    }


def test_nobody_is_paid_without_consent(
    momopay: Shell, run: Callable[..., Done], sandbox: Sandbox, folder: Path
) -> None:
    file = write_salaries(folder / "salaries.csv", 3)
    unasked = run(file)
    assert (unasked.code, sandbox.requests) == (2, [])
    assert "--yes" in unasked.err
    command = ("payouts", "run", str(file), "--journal", str(folder / "payouts.db"))
    declined = momopay.at_a_terminal(command, [("Pay KES 3,004.50 to 3 people now?", "n")])
    assert declined.code == 1
    assert sandbox.ledger == []
    agreed = momopay.at_a_terminal(command, [("Pay KES 3,004.50 to 3 people now?", "y")])
    assert agreed.code == 0
    assert_paid_once(sandbox, 3)


def test_a_piped_answer_is_an_answer(run: Callable[..., Done], sandbox: Sandbox, folder: Path) -> None:
    file = write_salaries(folder / "salaries.csv", 3)
    for no in ("n\n", "\n", "maybe\ny\n"):
        declined = run(file, piped=no)
        assert declined.code == 1
        assert "not confirmed" in declined.err
    assert sandbox.ledger == []
    agreed = run(file, piped="y\n")
    assert agreed.code == 0
    assert "Pay KES 3,004.50 to 3 people now? [y/N]:" in agreed.err
    assert_paid_once(sandbox, 3)


def test_the_key_and_the_answer_may_come_from_one_pipe(
    momopay: Shell, key: str, sandbox: Sandbox, folder: Path
) -> None:
    command = ("payouts", "run", str(write_salaries(folder / "salaries.csv", 3)), "--journal", str(folder / "p.db"))
    keyless = {"MOMOPAY_API_KEY": ""}
    assert momopay.process(*command, piped=f"{key}\n", **keyless).code == 2
    assert sandbox.requests == []
    assert momopay.process(*command, piped=f"{key}\ny", **keyless).code == 0
    assert_paid_once(sandbox, 3)


def test_who_answers_through_a_pipe_is_asked_first(momopay: Shell, sandbox: Sandbox, folder: Path) -> None:
    file = write_salaries(folder / "salaries.csv", 3)
    command = ("payouts", "run", str(file), "--journal", str(folder / "payouts.db"))
    for answer, code in ((None, 2), ("y\n", 0)):
        started = momopay.start(*command, stdin=subprocess.PIPE)
        assert started.stderr is not None
        assert started.stderr.readline().startswith("Pay KES")
        assert sandbox.ledger == []
        started.communicate(answer, timeout=LONGEST)
        assert started.returncode == code
    assert_paid_once(sandbox, 3)


def test_a_live_payroll_wants_its_exact_total(momopay: Shell, folder: Path) -> None:
    file = write_salaries(folder / "salaries.csv", 3)
    live = {"MOMOPAY_API_KEY": "pk_live_secret", "MOMOPAY_BASE_URL": "https://service.invalid/v1"}
    command = ("payouts", "run", str(file), "--journal", str(folder / "payouts.db"))
    for options in (("--yes",), ("--confirm-live", "3004.51"), ("--yes", "--confirm-live", "3004")):
        refused = momopay.process(*command, *options, **live)
        assert refused.code == 2
        assert "nothing was sent" in refused.err or "--confirm-live TOTAL" in refused.err
        assert "secret" not in refused.err
    assert momopay.process(*command, "--confirm-live", "3004.50", **live).code == 6  # the host does not exist


def test_a_reference_with_another_amount_is_refused_before_anything_is_sent(
    run: Callable[..., Done], sandbox: Sandbox, folder: Path
) -> None:
    run(write_salaries(folder / "salaries.csv", 3), "--yes")
    raised = write_salaries(folder / "raised.csv", 5, amount=2000)
    before = len(sandbox.requests)
    for options in (["--yes"], ["--dry-run"]):
        done = run(raised, *options)
        assert done.code == 2
        assert "lines 2, 3, 4 stand for another amount" in done.err
    assert len(sandbox.requests) == before


def test_a_journal_of_another_account_is_refused(run: Callable[..., Done], sandbox: Sandbox, folder: Path) -> None:
    """Or a rehearsal on the sandbox would make the real payroll skip everybody."""
    file = write_salaries(folder / "salaries.csv", 3)
    assert run(file, "--yes").code == 0
    other = run(file, "--yes", MOMOPAY_API_KEY="pk_test_other")
    assert other.code == 3
    assert "journal of another account" in other.err


@pytest.mark.parametrize(
    ("change", "told", "rows_tried"),
    [
        ({"b2c_balance": Decimal(2500)}, "fund the B2C wallet", 3),
        ({"kyc_approved": False}, "finish KYC", 1),
        ({"service_balance": Decimal(2)}, "top up the service wallet", 3),
    ],
)
def test_what_would_meet_every_row_stops_the_run(
    run: Callable[..., Done],
    sandbox: Sandbox,
    account: Account,
    folder: Path,
    change: dict[str, object],
    told: str,
    rows_tried: int,
) -> None:
    file = write_salaries(folder / "salaries.csv", 10)
    before = {name: getattr(account, name) for name in change}
    for name, value in change.items():
        setattr(account, name, value)
    stopped = run(file, "--yes")
    assert stopped.code == 5
    assert told in stopped.out
    assert initiated(sandbox) == rows_tried
    for name, value in before.items():
        setattr(account, name, value)
    assert run(file, "--yes").code == 0
    assert_paid_once(sandbox, 10)


def test_what_meets_one_row_alone_does_not_stop_the_run(
    run: Callable[..., Done], sandbox: Sandbox, folder: Path
) -> None:
    file = write_salaries(folder / "salaries.csv", 3)
    file.write_text(file.read_text().replace("1001.50", "1000000000"))  # more than the sandbox takes
    done = run(file, "--yes", "--json")
    assert done.code == 5
    assert [(line["state"], line["code"]) for line in done.lines[1:-1]] == [
        ("ACCEPTED", None),
        ("REFUSED", "VALIDATION_ERROR"),
        ("ACCEPTED", None),
    ]
    assert paid(sandbox) == {"SAL-0": 1, "SAL-2": 1}


def test_a_journal_that_cannot_be_written_sends_nothing(momopay: Shell, sandbox: Sandbox, folder: Path) -> None:
    file = write_salaries(folder / "salaries.csv", 3)
    for journal in (str(folder / "no" / "payouts.db"), str(folder), "mysql://host/database"):
        done = momopay("payouts", "run", str(file), "--journal", journal, "--yes")
        assert done.code == 3
        assert "What to do: mend" in done.err
    assert sandbox.requests == []


def test_the_fee_is_guessed_and_a_short_wallet_is_warned_of(
    run: Callable[..., Done], account: Account, folder: Path
) -> None:
    account.fee = Decimal(5)
    run(write_salaries(folder / "first.csv", 1, prefix="ONE"), "--yes")
    account.service_balance = Decimal(12)
    done = run(write_salaries(folder / "salaries.csv", 4), "--yes")
    assert "about KES 20.00" in done.out
    assert "top it up by KES 8.00" in done.out


def test_a_row_of_unknown_outcome_is_found_at_the_end(run: Callable[..., Done], sandbox: Sandbox, folder: Path) -> None:
    sandbox.fail_next("POST", PAY, Fault.reset_after_commit, times=2)
    done = run(write_salaries(folder / "salaries.csv", 5), "--yes", "--json")
    assert done.code == 0
    assert [line.get("state") for line in done.lines][1:4] == ["UNKNOWN", "UNKNOWN", "ACCEPTED"]
    assert done.lines[-1]["rows"] == {"accepted": {"rows": 5, "total": "5012.50"}}
    assert_paid_once(sandbox, 5)


def test_rows_in_doubt_are_reported_and_never_sent_again(
    run: Callable[..., Done], momopay: Shell, sandbox: Sandbox, folder: Path
) -> None:
    file, report = write_salaries(folder / "salaries.csv", 4), folder / "report.csv"
    sandbox.fail_next("POST", PAY, Fault.error_before_commit)
    done = run(file, "--yes", "--report", str(report))
    assert done.code == 4
    assert "may have been paid" not in done.out
    assert "momopay payouts release" in " ".join(done.out.split())
    assert report.stat().st_mode & 0o777 == 0o600
    rows = list(csv.DictReader(report.read_text().splitlines()))
    assert [row["state"] for row in rows] == ["UNKNOWN", "ACCEPTED", "ACCEPTED", "ACCEPTED"]
    assert "release REFERENCE" in rows[0]["what_to_do"]
    assert "OutcomeUnknownError" not in done.out
    assert "INTERNAL_ERROR" in done.out
    assert (rows[0]["code"], rows[0]["why"]) == ("INTERNAL_ERROR", "The service failed (a fault on demand)")
    assert {(row["code"], row["why"]) for row in rows[1:]} == {("", "")}
    again = run(file, "--yes", "--json")
    assert again.code == 4
    assert again.lines[0]["in_doubt"] == {"rows": 1, "total": "1000.50"}
    assert initiated(sandbox) == 4
    assert paid(sandbox)["SAL-0"] == 0
    status = momopay("payouts", "status", "--journal", str(folder / "payouts.db"), "--file", str(file), "--json")
    assert status.code == 4
    assert [entry["reference"] for entry in status.json["unresolved"]] == ["SAL-0"]
    assert status.json["file"] == {"UNKNOWN": 1, "ACCEPTED": 3}
    of = ("payouts", "status", "--journal", str(folder / "payouts.db"))
    unlooked, looked = (" ".join(momopay(*of, *options).out.split()) for options in ((), ("--look",)))
    assert "Give --look" in unlooked
    assert "--look" not in looked
    assert "The service's list does not show them, which proves nothing. What to do: Look again later" in looked


def test_an_answer_without_a_code_is_told_in_words(run: Callable[..., Done], sandbox: Sandbox, folder: Path) -> None:
    sandbox.fail_next("POST", PAY, Fault.html_502)
    report = folder / "report.csv"
    done = run(write_salaries(folder / "salaries.csv", 2), "--yes", "--report", str(report))
    assert done.code == 4
    assert "Error" not in done.out
    assert [row["why"] for row in csv.DictReader(report.read_text().splitlines())] == ["the service failed", ""]


def test_three_unknown_outcomes_in_a_row_stop_the_run(run: Callable[..., Done], sandbox: Sandbox, folder: Path) -> None:
    sandbox.fail_next("POST", PAY, Fault.error_before_commit, times=9)
    done = run(write_salaries(folder / "salaries.csv", 9), "--yes")
    assert done.code == 4
    assert initiated(sandbox) == 3
    assert "3 outcomes in a row are unknown" in done.out


def test_a_report_that_cannot_be_written_stops_before_money_moves(
    run: Callable[..., Done], sandbox: Sandbox, folder: Path
) -> None:
    done = run(write_salaries(folder / "salaries.csv", 2), "--yes", "--report", str(folder / "no" / "report.csv"))
    assert done.code == 2
    assert sandbox.ledger == []


class Killed:
    """A run of 100 rows in a process of its own, killed with a payout under way that the service has committed."""

    ROWS = 100
    PAID_BEFORE = 49

    def __init__(self, momopay: Shell, sandbox: Sandbox, folder: Path) -> None:
        self.momopay, self.sandbox = momopay, sandbox
        self.file = write_salaries(folder / "salaries.csv", self.ROWS)

    def start(self, journal: Path) -> subprocess.Popen[str]:
        return self.momopay.start("payouts", "run", str(self.file), "--journal", str(journal), "--yes", "--json")

    def kill_in_the_middle(self, journal: Path) -> None:
        self.sandbox.fail_next("POST", PAY, Fault.callback_lost, times=self.PAID_BEFORE)  # harms nobody, but counts
        self.sandbox.fail_next("POST", PAY, Fault.hang_after_commit)
        first = self.start(journal)
        until(lambda: len(paid(self.sandbox)) == self.PAID_BEFORE + 1)
        time.sleep(0.2)
        first.send_signal(signal.SIGKILL)
        first.communicate(timeout=10)
        assert len(paid(self.sandbox)) == self.PAID_BEFORE + 1

    def run_again(self, journal: Path) -> int:
        again = self.start(journal)
        out, err = again.communicate(timeout=90)
        assert err == ""
        assert out
        return again.returncode


@pytest.fixture
def killed(momopay: Shell, sandbox: Sandbox, folder: Path) -> Killed:
    return Killed(momopay, sandbox, folder)


def test_a_run_killed_in_the_middle_is_resumed_and_pays_nobody_twice(
    killed: Killed, sandbox: Sandbox, folder: Path
) -> None:
    killed.kill_in_the_middle(folder / "payouts.db")
    assert killed.run_again(folder / "payouts.db") == 0
    assert_paid_once(sandbox, killed.ROWS)
    with Journal(f"sqlite:///{folder / 'payouts.db'}") as journal:
        assert journal.unresolved() == []


def test_without_its_journal_the_second_run_would_pay_twice(killed: Killed, sandbox: Sandbox, folder: Path) -> None:
    """The negative control: the same assertion catches it."""
    killed.kill_in_the_middle(folder / "payouts.db")
    again = killed.start(folder / "fresh.db")
    until(lambda: max(paid(sandbox).values()) > 1)
    again.send_signal(signal.SIGKILL)
    again.communicate(timeout=10)
    with pytest.raises(AssertionError):
        assert_paid_once(sandbox, killed.ROWS)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupt_ends_after_the_payout_under_way(
    killed: Killed, sandbox: Sandbox, folder: Path, number: signal.Signals, code: int
) -> None:
    started = killed.start(folder / "payouts.db")
    until(lambda: len(paid(sandbox)) >= 5)
    started.send_signal(number)
    out, err = started.communicate(timeout=30)
    assert started.returncode == code
    assert "Traceback" not in err
    with Journal(f"sqlite:///{folder / 'payouts.db'}") as journal:
        assert journal.unresolved() == []
    assert '"interrupted": true' in out
    assert 5 <= len(paid(sandbox)) < killed.ROWS
    assert set(paid(sandbox).values()) == {1}


def test_two_runs_at_the_same_time_pay_nobody_twice(momopay: Shell, sandbox: Sandbox, folder: Path) -> None:
    file = write_salaries(folder / "salaries.csv", 20)
    command = ("payouts", "run", str(file), "--journal", str(folder / "payouts.db"), "--yes", "--json")
    both = [momopay.start(*command) for _ in range(2)]
    ended = [started.communicate(timeout=60) for started in both]
    assert [started.returncode for started in both] == [0, 0], ended
    assert_paid_once(sandbox, 20)
    assert initiated(sandbox) == 20


def test_an_interrupt_while_the_budget_is_waited_for_leaves_nothing_in_doubt(
    killed: Killed, sandbox: Sandbox, folder: Path
) -> None:
    started = killed.start(folder / "payouts.db")
    until(lambda: len(sandbox.requests) == 58)
    time.sleep(0.5)
    begun = time.monotonic()
    started.send_signal(signal.SIGINT)
    started.communicate(timeout=30)
    assert started.returncode == 130
    assert time.monotonic() - begun < 5
    with Journal(f"sqlite:///{folder / 'payouts.db'}") as journal:
        assert journal.unresolved() == []


def test_a_second_interrupt_breaks_off_and_says_what_is_unknown(
    killed: Killed, run: Callable[..., Done], sandbox: Sandbox, folder: Path
) -> None:
    sandbox.fail_next("POST", PAY, Fault.hang_after_commit)
    started = killed.start(folder / "payouts.db")
    until(lambda: any(request.status is None and request.path == PAY for request in sandbox.requests))
    time.sleep(0.2)
    for _ in range(2):
        started.send_signal(signal.SIGINT)
        time.sleep(0.3)
    out, err = started.communicate(timeout=30)
    assert started.returncode == 130
    assert "Traceback" not in err
    assert '"state": "UNKNOWN"' in out
    assert '"error"' not in err
    assert paid(sandbox) == {"SAL-0": 1}
    again = run(write_salaries(folder / "salaries.csv", 3), "--yes")
    assert again.code == 0
    assert_paid_once(sandbox, 3)


def test_100_rows_are_paid_with_a_client_of_the_callers(
    sandbox: Sandbox, account: Account, key: str, folder: Path
) -> None:
    from momopay.cli.output import Output
    from momopay.cli.paying import pay_file
    from momopay.cli.payroll_file import read_salaries

    salaries = read_salaries(write_salaries(folder / "salaries.csv", 100))
    with Client(key, base_url=sandbox.base_url, budget=None) as client, Journal(f"sqlite:///{folder / 'p.db'}") as book:
        code = pay_file(Output(as_json=True), salaries, client, book, budget=None, agree=lambda _made: None)
    assert code == 0
    assert_paid_once(sandbox, 100)
    assert account.rate_limit is None
