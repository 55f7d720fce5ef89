"""A payroll from a file: nobody is paid twice, whatever interrupts it; and what is left in doubt."""

import csv
import hashlib
import shutil
import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from cli.kit import LIVE, NORMALISED, PAY, PHONE, Done, PayrollShell, Shell, signalling
from in_turn import in_turn, some_by_default
from journal.kit import fill
from momopay import Client, Journal, RateBudget
from momopay.sandbox import Account, Fault, Outcome, Sandbox, phone_for
from patience import LONGEST, until
from sandbox.kit import execute
from spreadsheets.kit import book, save


def test_a_file_is_paid_once_however_often_it_is_run(payroll: PayrollShell) -> None:
    payroll.write(20)
    first = payroll.run("--yes", "--json", LOGNAME="njeri")
    assert first.code == 0
    plan, *rows, end = first.lines
    assert (plan["to_pay"], [row["line"] for row in rows]) == ({"rows": 20, "total": "20200"}, list(range(2, 22)))
    assert {row["state"] for row in rows} == {"ACCEPTED"}
    known = {"event": "row", "line": 2, "reference": "SAL-0", "phone": "254700000000", "amount": "1000.50"}
    assert rows[0].items() >= {**known, "status": "PENDING", "code": None, "message": None}.items()
    assert set(rows[0]) == {*known, "state", "status", "transaction_id", "code", "message"}
    assert end["rows"] == {"accepted": {"rows": 20, "total": "20200"}}
    payroll.assert_paid_once(20)
    amounts = {movement.amount for movement in payroll.sandbox.ledger}
    assert amounts == {Decimal(f"{1000 + row}.50") for row in range(20)} | {1}
    again = payroll.run("--yes")
    assert (again.code, "Nothing to pay: all 20 were accepted before" in again.out, again.err) == (0, True, "")
    payroll.assert_paid_once(20)
    assert payroll.posts == 20
    with Journal(f"sqlite:///{payroll.database}") as journal:
        entry = journal.get("SAL-1")
    assert entry is not None
    kept: Any = (entry.metadata or {})["payroll"]
    assert datetime.fromisoformat(kept.pop("at")).tzinfo is not None
    digest = hashlib.sha256(payroll.file.read_bytes()).hexdigest()
    assert kept == {"file": "salaries.csv", "sha256": digest, "rows": 20, "total": "20200", "by": "njeri"}
    assert plan["sha256"] == digest
    # Each account of a journal has its own payouts.
    assert payroll.run("--dry-run", "--json", "--account", "shop").json["to_pay"]["rows"] == 20


def test_a_dry_run_needs_no_key_sends_nothing_and_leaves_nothing(payroll: PayrollShell) -> None:
    payroll.write(20)
    done = payroll.run("--dry-run", MOMOPAY_API_KEY="", MOMOPAY_BASE_URL="")
    assert done.prints(0, "20,200.00")
    assert done.says(0, "The journal is new", "Dry run: nothing was sent.")
    assert (payroll.sandbox.requests, [path.name for path in payroll.folder.iterdir()]) == ([], ["salaries.csv"])


def test_a_dry_run_reads_the_journal(payroll: PayrollShell) -> None:
    payroll.run("--yes")
    before = len(payroll.sandbox.requests)
    payroll.write(5)
    assert payroll.run("--dry-run", "--json").json["accepted_before"]["rows"] == 3
    payroll.write(5, amount=2000)
    for options in (["--yes"], ["--dry-run"]):
        done = payroll.run(*options)
        assert done.says(2, "3 reference(s) were used for another payout; nothing was sent")
        assert done.prints(2, "2 SAL-0 amount 2000.50 is another one than the journal's for this reference: 1000.50")
    assert len(payroll.sandbox.requests) == before


def test_a_faulty_file_sends_nothing(payroll: PayrollShell) -> None:
    payroll.write(20)
    payroll.file.write_text(payroll.file.read_text() + "SAL-3,0712345678,5,\nA,07123456789,10,\nB,0712,10,\n")
    done = payroll.run("--yes")
    # A few digits are nobody's phone: masked, they would look like another number.
    phones = ("23 A phone 0712*****789 must", "24 B phone 0712 must")
    assert done.prints(2, "22 SAL-3 amount 5 must be at least KES 10", *phones)
    assert done.says(2, "4 fault(s); nothing was sent")
    faulty = payroll.run("--yes", "--json")
    assert [fault["column"] for fault in faulty.json["faults"]] == ["reference", "amount", "phone", "phone"]
    assert payroll.sandbox.requests == []


def test_what_would_be_paid_is_shown_before_the_question(payroll: PayrollShell) -> None:
    payroll.write(2)
    payroll.sandbox.fail_next("POST", PAY, Fault.error_before_commit)
    assert payroll.run("--yes").code == 4
    payroll.write(120)
    text = payroll.file.read_text().replace("description", "purpose").replace("0700000119,1119", "0700000118,1118")
    payroll.file.write_text(text)
    shown = payroll.run(piped="n\n")
    assert shown.prints(
        1,
        "In the file 120 127,199.00 Accepted before 1 1,001.50 Unresolved, not sent again 1 1,000.50",
        "To pay now 118 125,197.00",
        "120 SAL-118 2547*****118 1,118.50 121 SAL-119",  # the largest first, five of them
        "Service wallet: KES 9,999.00, from which a fee is taken for each payout",
        "takes about 2 min",
        "Warning: lines 120, 121 pay the same amount to the same phone",
        "Warning: columns that are not used: purpose",
    )
    assert "SAL-114 " not in shown.words
    plan = payroll.run("--dry-run", "--json").json
    assert (plan["event"], plan["service_wallet"], len(plan["warnings"])) == ("plan", None, 2)
    assert (plan["file"]["rows"], plan["to_pay"]["rows"], plan["unresolved"]["total"]) == (120, 118, "1000.50")


def test_nobody_is_paid_without_a_yes(payroll: PayrollShell) -> None:
    unanswered = payroll.run()
    assert (unanswered.code, "--yes" in unanswered.err, "The journal is new" in unanswered.err) == (2, True, True)
    shown = [payroll.run(piped=no) for no in ("n\n", "\n", "maybe\nn\n")]
    assert [(each.code, "The journal is new" in each.err) for each in shown] == [(1, False)] * 3
    for no in ("n\n", "\n"):
        assert payroll.momopay.at_a_terminal(*payroll.command(), typed=no).code == 1
    assert payroll.posts == 0
    agreed = payroll.momopay.at_a_terminal(*payroll.command(), typed="y\n")
    assert (agreed.code, "Pay KES 3,004.50 in 3 payouts to 3 phones now?" in agreed.err) == (0, True)
    payroll.assert_paid_once(3)


def test_the_key_and_the_answer_may_come_from_one_pipe(payroll: PayrollShell, key: str) -> None:
    assert (payroll.run(piped=f"{key}\n", MOMOPAY_API_KEY="").code, payroll.posts) == (2, 0)
    assert payroll.run(piped=f"{key}\ny", MOMOPAY_API_KEY="").code == 0
    payroll.assert_paid_once(3)


@pytest.mark.usefixtures("live_keys")
def test_a_live_payroll_wants_the_exact_total_of_the_file(payroll: PayrollShell, no_backoff: None) -> None:
    for options in (("--yes",), ("--confirm-live", "3004.51"), ("--yes", "--confirm-live", "3004")):
        refused = payroll.run(*options, **LIVE)
        assert refused.code == 2
        assert "nothing was sent" in refused.err or "--yes is for test keys" in refused.err
        assert "secret" not in refused.err
    assert payroll.run("--confirm-live", "3004.50", **LIVE).code == 6  # the host does not exist


@in_turn("journal", ["no/payouts.db", ".", "mysql://host/database"])
def test_a_journal_or_report_that_cannot_be_written_sends_nothing(payroll: PayrollShell, journal: str) -> None:
    where = journal if "://" in journal else str(payroll.folder / journal)
    assert payroll.momopay("payouts", "run", str(payroll.file), "--journal", where, "--yes").says(3, "What to do: ")
    assert (payroll.run("--yes", "--report", str(payroll.folder / "no" / "report.csv")).code, payroll.posts) == (2, 0)


def test_a_report_overwrites_neither_the_file_nor_a_journal(payroll: PayrollShell) -> None:
    content, link = payroll.file.read_bytes(), payroll.folder / "link.csv"
    link.symlink_to(payroll.file)
    for path in (payroll.database, payroll.database, payroll.file, link):  # at first, the journal is a new one
        assert payroll.run("--yes", "--report", str(path)).says(2, "would be overwritten")
    assert (payroll.posts, payroll.file.read_bytes(), payroll.run("--yes").code) == (0, content, 0)


def test_a_row_of_unknown_outcome_is_found_at_the_end(payroll: PayrollShell) -> None:
    payroll.write(5)
    payroll.sandbox.fail_next("POST", PAY, Fault.reset_after_commit, times=2)
    done = payroll.run("--yes", "--json")
    assert (done.code, [line.get("state") for line in done.lines][1:4]) == (0, ["UNKNOWN", "UNKNOWN", "ACCEPTED"])
    assert done.lines[-1]["rows"] == {"accepted": {"rows": 5, "total": "5012.50"}}
    payroll.assert_paid_once(5)


def test_what_is_left_is_reported_and_nothing_doubtful_sent_again(payroll: PayrollShell, account: Account) -> None:
    payroll.write(5)
    account.b2c_balance = Decimal(2500)
    payroll.sandbox.fail_next("POST", PAY, Fault.error_before_commit)
    done = payroll.run("--yes", "--report", str(payroll.report))
    assert done.prints(
        4,
        "Stopped Rows KES",
        "UNKNOWN 1 1,000.50 ACCEPTED 2 2,004.00 REFUSED 1 1,003.50 NOT_BEGUN 1 1,004.50",
        *("UNKNOWN INTERNAL_ERROR", "REFUSED INSUFFICIENT_FUNDS", "Stopped: INSUFFICIENT_FUNDS"),
        *("NOT_BEGUN: Run again.", "UNKNOWN: Run again: that searches for the payout first"),
        *("momopay payouts release", "Accepted is not yet paid"),
    )
    assert "UNKNOWN,,,INTERNAL_ERROR,The service failed (a fault on demand)" in payroll.report.read_text()
    again = payroll.run("--yes", "--json")
    assert (again.code, again.lines[-1]["exit_code"]) == (4, 4)
    assert again.lines[0]["unresolved"] == {"rows": 1, "total": "1000.50"}
    counts = {state: count["rows"] for state, count in again.lines[-1]["rows"].items()}
    assert counts == {"unknown": 1, "accepted": 2, "refused": 1, "not_begun": 1}
    assert again.lines[-1]["stopped_by"]["error"] == "InsufficientFundsError"
    first, last = again.lines[-1]["left"]
    assert (first["line"], last["line"], first["message"]) == (2, 5, "sent before, and the outcome is not known")
    assert (payroll.posts, payroll.paid["SAL-0"]) == (5, 0)


# More rows than the budget, which here is a small one: the run cannot have ended before the signal comes.
LONG = 20


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_a_run_after_its_payout(
    payroll: PayrollShell, number: signal.Signals, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second waits for the budget when it comes."""
    monkeypatch.setattr("momopay._core.state.RateBudget", partial(RateBudget, 16))
    payroll.write(LONG)
    begun = 6 if number == signal.SIGINT else 16
    with signalling([number], lambda: len(payroll.sandbox.requests) >= begun):
        done = payroll.run("--yes", "--json")
    assert done.code == code
    assert len(payroll.sandbox.requests) <= 16
    assert (done.lines[-1]["interrupted"], done.lines[-1]["exit_code"], payroll.unresolved()) == (True, code, [])
    assert 0 < len(payroll.paid) == payroll.posts < LONG
    assert set(payroll.paid.values()) == {1}


def break_off(payroll: PayrollShell, *options: str, **settings: str) -> Done:
    """Run a payroll whose first payout hangs, and send two signals."""
    payroll.sandbox.fail_next("POST", PAY, Fault.hang_after_commit)
    with signalling([signal.SIGINT, signal.SIGINT], lambda: len(payroll.paid) == 1):
        return payroll.run("--yes", *options, **settings)


def test_a_second_signal_breaks_the_payout_off_and_leaves_it_unknown(payroll: PayrollShell) -> None:
    done = break_off(payroll, "--json")
    assert "press again to stop at once, which may leave its outcome unknown" in done.err
    assert (done.code, '"error"' in done.err, "SAL-0" in done.err) == (130, False, True)
    assert [line["state"] for line in done.lines if line["event"] == "row"] == ["UNKNOWN"]
    assert payroll.paid == {"SAL-0": 1}
    assert payroll.run("--yes").code == 0
    payroll.assert_paid_once(3)


def test_at_a_terminal_the_first_signal_is_answered_and_stops_the_bar(payroll: PayrollShell) -> None:
    done = break_off(payroll, TTY_COMPATIBLE="1")
    shown, _, after = done.err.partition("Stopping after this payout; ")
    assert ("KES 0 of 3,004.50" in shown, " left" in shown, "Paying" in after) == (True, True, False)
    assert after.startswith("press again to stop at once, which may leave its outcome unknown.")
    assert "Exit status 130: interrupted" in done.words


def test_a_report_is_whole_after_the_run_that_continues_another(payroll: PayrollShell, account: Account) -> None:
    payroll.file.write_text(
        payroll.file.read_text().replace("\n", ",Achieng\n").replace("description,Achieng", "description,name")
    )
    account.b2c_balance = Decimal(1500)
    options = ("--yes", "--wait", "--every", "0.1", "--report", str(payroll.report))

    def rows() -> list[dict[str, str]]:
        return [*csv.DictReader(payroll.report.read_text("utf-8-sig").splitlines())]

    assert payroll.run("--yes", "--report", str(payroll.report)).code == 5
    first, refused, _ = rows()
    assert (first["description"], first["name"], first["fee"], first["receipt"]) == ("November", "Achieng", "1", "")
    assert datetime.fromisoformat(first["sent_at"]).tzinfo is not None
    assert (refused["state"], first["ended_at"]) == ("REFUSED", "")
    account.b2c_balance = Decimal(5000)
    payroll.sandbox.advance(900)
    assert payroll.run("--yes", "--report", str(payroll.report)).code == 0
    payroll.sandbox.advance(900)
    waited = payroll.run(*options)
    assert (waited.code, waited.words.endswith("Exit status 0: every row was paid.")) == (0, True)
    execute(payroll.database, "UPDATE momopay_transactions SET receipt = 'TCK4H7X2QP'")  # as a callback does
    assert payroll.run(*options).code == 0
    ended = rows()
    assert [row["status"] for row in ended] == ["SUCCESS"] * 3
    assert (ended[0]["sent_at"], ended[0]["fee"]) == (first["sent_at"], "1")
    assert all(row["ended_at"] and row["receipt"] == "TCK4H7X2QP" for row in ended)


@pytest.mark.whole
def test_a_run_whose_reader_goes_away_writes_its_report(payroll: PayrollShell) -> None:
    payroll.write(20)
    with payroll.momopay.start(*payroll.command("--yes", "--json", "--report", str(payroll.report))) as started:
        assert started.stdout is not None
        started.stdout.readline()
        started.stdout.close()
        assert started.wait(timeout=LONGEST) == 130
    assert 0 < payroll.report.read_text().count("ACCEPTED") == len(payroll.paid) < 20


def test_a_run_that_was_killed_is_resumed_and_pays_nobody_twice(payroll: PayrollShell) -> None:
    """In a process of its own, killed with a payout under way that the service has committed."""
    payroll.write(4)
    payroll.sandbox.fail_next("POST", PAY, Fault.callback_lost)  # harms nobody, but counts
    payroll.sandbox.fail_next("POST", PAY, Fault.hang_after_commit)
    started = payroll.momopay.start(*payroll.command("--yes", "--json"))
    until(lambda: len(payroll.paid) == 2)
    started.kill()
    started.communicate(timeout=LONGEST)
    assert len(payroll.paid) == 2
    assert payroll.run("--yes").code == 0
    payroll.assert_paid_once(4)
    assert payroll.unresolved() == []
    # The negative control: the same assertion notices a run that does not have the journal.
    payroll.database.unlink()
    assert payroll.run("--yes").code != 0
    payroll.assert_paid_once(4)
    for path in payroll.folder.glob(f"{payroll.database.name}*"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    payroll.run("--yes")
    with pytest.raises(AssertionError):
        payroll.assert_paid_once(4)


def test_another_spelling_of_a_reference_is_paid_only_if_that_is_confirmed(payroll: PayrollShell) -> None:
    payroll.file.write_text("reference,phone,amount\nSAL-1,0712345678,1000\nsal 1,0712345678,1000.00\n")
    for options in (["--yes"], ["--dry-run"]):
        refused = payroll.run(*options)
        assert refused.prints(2, "3 sal 1 reference sal 1 looks like SAL-1")
        assert refused.says(2, "--similar")
    assert payroll.sandbox.requests == []
    assert (payroll.run("--yes", "--similar").code, payroll.paid) == (0, {"SAL-1": 1, "sal 1": 1})


def rewrite(payroll: PayrollShell, *references: str, phones: int = 0, amount: int = 1000) -> None:
    """Write a file that pays the same people the same amounts under other references."""
    rows = [f"{each},07{phones + n:08},{amount + n},November\n" for n, each in enumerate(references)]
    payroll.file.write_text("reference,phone,amount,description\n" + "".join(rows))


# What 27 reports say that spreadsheets do to the references of a payroll when they save it again.
SAVED_AGAIN = [
    (("001", "002", "003"), ("1", "2", "3")),
    (("001", "002", "003"), ("1.0", "2.0", "3.0")),
    (("1001", "1002", "1003"), ("1001.0", "1002.0", "1003.0")),
    (("1001", "1002", "1003"), ("1,001", "1,002", "1,003")),
    (("2026-10", "2026-11", "2026-12"), ("Oct-26", "Nov-26", "Dec-26")),
    (("2026-10", "2026-11", "2026-12"), ("10/2026", "11/2026", "12/2026")),
    (("2026-11-01", "2026-11-02", "2026-11-13"), ("01/11/2026", "02/11/2026", "13/11/2026")),
    (("2026-11-01", "2026-11-02", "2026-11-13"), ("11/1/2026", "11/2/2026", "11/13/2026")),
    (("11-1", "11-2", "11-3"), ("1-Nov", "2-Nov", "3-Nov")),
    (("1E5", "1E6", "2E5"), ("100000", "1000000", "200000")),
    (("100000", "1000000", "200000"), ("1E+05", "1E+06", "2E+05")),
    (("#1", "#2", "#3"), ("1", "2", "3")),
    (("'001", "'002", "'003"), ("001", "002", "003")),
    (("SAL-1", "SAL-2", "SAL-3"), ("SAL 1", "SAL 2", "SAL 3")),
    (("SAL_1", "SAL_2", "SAL_3"), ("SAL.1", "SAL/2", "sal#3")),
    (("SAL-1", "SAL-2", "SAL-3"), ("SAL\u20131", "SAL\u20132", "SAL\u20133")),
    (("INV-007", "INV-008", "INV-009"), ("INV7", "INV8", "INV9")),
    (("7.10", "7.20", "7.30"), ("7.1", "7.2", "7.3")),
]


@pytest.mark.parametrize(("first", "again"), some_by_default(SAVED_AGAIN, 4))
def test_a_payroll_that_a_spreadsheet_saved_again_pays_nobody_twice(
    payroll: PayrollShell, first: tuple[str, ...], again: tuple[str, ...]
) -> None:
    rewrite(payroll, *(f'"{each}"' for each in first))
    assert payroll.run("--yes").code == 0
    with_age(payroll, 200)  # long ago, so that only the references can tell
    rewrite(payroll, *(f'"{each}"' for each in again))
    for options in (["--yes"], ["--dry-run"]):
        refused = payroll.run(*options)
        assert refused.says(2, "3 reference(s) look like others", "--similar pays them")
        assert "looks like " in refused.words
    assert (len(payroll.paid), payroll.posts) == (3, 3)
    assert payroll.run("--yes", "--similar").code == 0
    assert (len(payroll.paid), set(payroll.paid.values())) == (6, {1})


def with_age(payroll: PayrollShell, hours: float) -> None:
    sent = (datetime.now(UTC) - timedelta(hours=hours)).isoformat()
    for table in ("payments", "transactions"):
        execute(payroll.database, f"UPDATE momopay_{table} SET sent_at = '{sent}'")


def test_weekly_wages_under_new_references_are_paid_each_week(payroll: PayrollShell) -> None:
    for week in (46, 47, 48):
        rewrite(payroll, *(f"WAGE-2026-W{week}-{n}" for n in range(7, 12)))
        assert payroll.run("--yes").code == 0
        with_age(payroll, 168)
    assert (len(payroll.paid), set(payroll.paid.values())) == (15, {1})


def test_the_file_of_this_hour_under_new_references_is_paid_only_if_that_is_confirmed(payroll: PayrollShell) -> None:
    payroll.write(4)
    assert payroll.run("--yes").code == 0
    payroll.write(4, prefix="PAY")
    for options in (["--yes"], ["--dry-run"]):
        refused = payroll.run(*options)
        assert refused.prints(2, "2 PAY-0 reference PAY-0 was paid as SAL-0 within the last 12 hours")
        assert refused.says(2, "4 row(s), all that are left to pay", "the same payroll again", "--similar")
    payroll.assert_paid_once(4)
    # One more person, two people alone, or another amount: that is another payroll.
    payroll.write(4, prefix="PAY", amount=1001)
    assert payroll.run("--yes").code == 0
    assert len(payroll.paid) == 8
    payroll.write(2, prefix="TWO")
    assert payroll.run("--yes").code == 0
    payroll.write(5, prefix="FIVE")
    assert payroll.run("--yes").code == 0
    assert len(payroll.paid) == 15
    with_age(payroll, 12.1)
    payroll.write(4, prefix="LATER")
    assert payroll.run("--yes").code == 0
    payroll.write(4, prefix="AGAIN")
    assert payroll.run("--yes").code == 2
    assert payroll.run("--yes", "--similar").code == 0
    assert (len(payroll.paid), set(payroll.paid.values())) == (23, {1})


def test_an_interrupted_file_with_two_equal_rows_goes_on(payroll: PayrollShell) -> None:
    """The last row is paid as the first one was, an hour ago, in the same file: that is no repetition."""
    rewrite(payroll, "A", "B", "C")
    rows = payroll.file.read_text()
    assert payroll.run("--yes").code == 0
    payroll.file.write_text(f"{rows}D,0700000000,1000,bonus\n")
    assert (payroll.run("--yes").code, payroll.paid["D"]) == (0, 1)


def test_what_was_reversed_may_be_paid_under_new_references(payroll: PayrollShell) -> None:
    phone = phone_for(Outcome.insufficient_funds)
    lines = [f"BACK-{n},{phone},{500 + n},x\n" for n in range(3)]
    payroll.file.write_text("reference,phone,amount,description\n" + "".join(lines))
    assert payroll.run("--yes").code == 0
    payroll.sandbox.advance(900)
    assert payroll.run("--yes", "--wait", "--every", "0.1").code == 1
    payroll.file.write_text(payroll.file.read_text().replace("BACK", "NEW"))
    assert payroll.run("--yes").code == 0
    assert set(payroll.paid) == {f"{prefix}-{n}" for prefix in ("BACK", "NEW") for n in range(3)}


FAULTY = {
    "A-1,0712345678,45,250\n": "2 A-1 amount 45 is followed by 250",
    "A-1,0712345678,45,250.50\n": "2 A-1 amount 45 is followed by 250.50",
    "A-1,0712345678,12.500,x\n": "2 A-1 amount 12.500",
    'A-1,0712345678,"1250,00",x\n': "2 A-1 amount 1250,00 has a comma",
    "A-1,0712345678,1_250,x\n": "2 A-1 amount 1_250",
    "A-1,0712345678,\u0661\u0662\u0660,x\n": "has digits that are",
    "A-1,0712345678,\uff11\uff12\uff10,x\n": "has digits that are",
    "A-1,0712345678,KES 45,x\n": "2 A-1 amount KES 45 has a currency",
    "A-1,#REF!,100,x\n": "2 A-1 phone #REF! is an error",
    "A-1,2.54712E+11,100,x\n": "2 A-1 phone 2.54712E+11 was shortened",
    "A-1,254712345678.0,100,x\n": "was made a number with decimals",
    "A-1,712345678,100,x\n": "is without its leading 0",
    "A\u200b1,0712345678,100,x\n": "U+200B ZERO WIDTH SPACE",
    "A-1,0712345678,100\n": "has 3 cells",
    "A-1,0712345678,100,x,y\n": "has 5 cells",
    'A-1,0712345678,100,"x\n': "quotation mark",
}


@pytest.mark.parametrize("row", FAULTY)
def test_no_row_is_guessed(payroll: PayrollShell, row: str) -> None:
    """One faulty row among good ones: nobody is paid."""
    good = "".join(f"G-{n},07{n:08},1000,November\n" for n in range(3))
    for text in (row + good, good + row):
        payroll.file.write_text(f"reference,phone,amount,description\n{text}", encoding="utf-8")
        for options in (["--yes"], ["--dry-run"]):
            done = payroll.run(*options, COLUMNS="200")
            assert done.says(2, "nothing was sent")
            line = "2 " if text.startswith(row) else "5 "
            assert FAULTY[row].removeprefix("2 ") in done.words, done.words
            assert done.words.partition("─ ")[2].startswith(line)
    assert (payroll.sandbox.ledger, payroll.sandbox.requests) == ([], [])


def test_twenty_faults_are_shown_and_all_are_in_json(payroll: PayrollShell) -> None:
    rows = "".join(f"A-{n},0712345678,x,\n" for n in range(33))
    payroll.file.write_text(f"reference,phone,amount,description\n{rows}")
    done = payroll.run("--yes")
    assert done.prints(2, "And 13 more faults")
    assert done.says(2, "33 fault(s)")
    assert done.words.count("is no amount") == 20
    found = payroll.run("--yes", "--json").json["faults"]
    assert len(found) == 33
    assert set(found[0]) == {"line", "reference", "column", "value", "problem", "remedy"}


def test_a_payroll_of_a_spreadsheet_is_paid_once(payroll: PayrollShell, tmp_path: Path) -> None:
    made = book(
        ("Reference", "Phone", "Amount", "Description"),
        ("SAL-0", 254700000000, 1000.5, "November"),
        ("SAL-1", "0700000001", "1,001.50", None),
        ("SAL-2", "0700000002", 1002, "November"),
        title="Nov",
    )
    sheet: Any = made.active
    sheet.row_dimensions[3].hidden = True
    other: Any = made.create_sheet("Oct")
    for row in sheet.iter_rows(values_only=True):
        other.append(row)
    path = save(tmp_path, made, "salaries.xlsx")
    command = ("payouts", "run", str(path), *payroll.journal)
    assert payroll.momopay(*command, "--yes").prints(2, "'Nov' and 'Oct'", "--sheet")
    asked = payroll.momopay.at_a_terminal(*command, "--sheet", "Nov", typed="n\n")
    assert asked.prints(1, "Warning: hidden rows of the sheet are read too: 3")
    assert payroll.momopay(*command, "--sheet", "Nov", "--yes").code == 0
    payroll.assert_paid_once(3)
    amounts = sorted(abs(each.amount) for each in payroll.sandbox.ledger if str(each.kind) == "payout")
    assert amounts == [Decimal("1000.50"), Decimal("1001.50"), Decimal(1002)]
    # Saved as CSV, with the same references, it is the same payroll.
    payroll.file.write_text(
        "sep=;\nREFERENCE;phone;amount;description\nSAL-0;0700000000;1000.50;\nSAL-1;0700000001;1,001.50;\n"
        "SAL-2;0700000002;1002.00;\n",
        encoding="utf-16",
    )
    assert payroll.run("--yes").prints(0, "all 3 were accepted before")
    payroll.assert_paid_once(3)


def test_a_report_opens_in_a_spreadsheet_and_runs_nothing(payroll: PayrollShell) -> None:
    rows = "SAL-1,0712345678,1000,=1+1,@Jo\n"
    payroll.file.write_text(f"reference,phone,amount,description,name\n{rows}")
    assert payroll.run("--yes", "--report", str(payroll.report)).code == 0
    assert payroll.report.read_bytes().startswith(b"\xef\xbb\xbfline,reference")
    (row,) = csv.DictReader(payroll.report.read_text("utf-8-sig").splitlines())
    assert (row["description"], row["name"], row["amount"]) == ("'=1+1", "'@Jo", "1000")
    (sent,) = [request for request in payroll.sandbox.requests if request.method == "POST"]
    body: Any = sent.json
    assert body["description"] == "=1+1", "what is sent is what was written"


def test_an_interrupt_before_anything_was_sent_says_so(payroll: PayrollShell, momopay: Shell) -> None:
    asked = payroll.momopay.at_a_terminal(*payroll.command(), typed="")  # Ctrl-D or Ctrl-C at the question
    assert asked.says(130, "Interrupted. Nothing was sent.")
    for command in (payroll.command(), ("collect", "INV-1", "--amount", "5", "--phone", PHONE, *payroll.journal)):
        no_key = momopay.at_a_terminal(*command, typed="", MOMOPAY_API_KEY="")
        assert no_key.says(130, "Interrupted. Nothing was sent.")
    assert payroll.posts == 0
    assert momopay.at_a_terminal("balance", typed="", MOMOPAY_API_KEY="").err.endswith("Interrupted.\n")
    assert payroll.run("--yes").code == 0
    after = payroll.momopay.at_a_terminal("balance", typed="", MOMOPAY_API_KEY="")
    assert after.err.endswith("Interrupted.\n"), "of another command"


def test_another_spelling_in_the_journal_is_found_for_every_row_of_a_long_file(payroll: PayrollShell) -> None:
    """Phones are looked up some hundred at a time: the last of one statement and the first of the next count too."""
    numbers = range(1, 601)
    with Journal(f"sqlite:///{payroll.database}") as journal:
        fill(journal, len(numbers))
    phone = "'2547' || substr('00000000' || substr(reference, 3), -8)"
    execute(payroll.database, f"UPDATE momopay_payments SET phone = {phone} WHERE reference LIKE 'p-%'")
    rows = [f"P {number},07{number:08},10\n" for number in numbers]
    payroll.file.write_text("reference,phone,amount\n" + "".join(rows))
    refused = payroll.run("--yes", "--json")
    assert refused.code == 2
    problems = {fault["line"]: fault["problem"] for fault in refused.json["faults"]}
    assert [number for number in numbers if problems.get(number + 1) != f"looks like p-{number}"] == []
    assert payroll.posts == 0


def test_one_that_cannot_be_read_does_not_end_the_wait_for_the_others(payroll: PayrollShell, client: Client) -> None:
    assert payroll.run("--yes").code == 0
    payroll.sandbox.advance(900)
    refused = next(each for each in client.transactions.list().items if each.account_reference == "SAL-1")
    payroll.sandbox.spoil(refused, "phone")  # so that it is read by id
    payroll.sandbox.fail_next("GET", "/transactions/{id}", code="ACCOUNT_INACTIVE", status=403)
    done = payroll.run("--yes", "--wait", "--every", "0.1", "--json")
    assert {line["reference"] for line in done.lines if line["event"] == "settled"} == {"SAL-0", "SAL-2"}
    assert (done.code, refused.transaction_id in done.lines[-1]["stopped_by"]["message"]) == (6, True)


def test_all_are_followed_to_their_end_and_a_reversed_one_is_reported(payroll: PayrollShell) -> None:
    payroll.write(2)
    payroll.file.write_text(payroll.file.read_text() + f"BACK,{phone_for(Outcome.insufficient_funds)},500,November\n")
    options = ("--yes", "--wait", "--every", "0.1", "--report", str(payroll.report))
    first = payroll.run("--yes", TTY_COMPATIBLE="1")
    assert (first.code, "KES 2,502.00 of 2,502.00 " in first.err) == (0, True)  # the bar counts what was accepted
    payroll.sandbox.advance(36)  # to where one has failed, and the money is not back yet
    early = payroll.run(*options, "--timeout", "1", "--json")
    assert {line["reference"] for line in early.lines if line["event"] == "settled"} == {"SAL-0", "SAL-1"}
    assert (early.code, early.lines[-1]["stopped_by"]["error"]) == (6, "WaitTimeoutError")
    payroll.sandbox.advance(900)
    done = payroll.run(*options, "--json")
    assert done.code == 1
    end = done.lines[-1]
    assert end["rows"] == {"accepted": {"rows": 3, "total": "2502"}}
    assert end["ends"] == {"success": {"rows": 2, "total": "2002"}, "reversed": {"rows": 1, "total": "500"}}
    settled = {line["reference"]: line["status"] for line in done.lines if line["event"] == "settled"}
    assert settled == {"BACK": "REVERSED"}
    assert "ACCEPTED,REVERSED," in payroll.report.read_text()
    before = len(payroll.sandbox.requests)
    again = payroll.run(*options)  # the journal has the ends
    assert (again.code, "SUCCESS 2 2,002.00 REVERSED 1 500.00" in again.words) == (1, True)
    assert "BACK" in again.words
    assert "REVERSED: The money came back. Pay it under a new reference" in again.words
    assert len(payroll.sandbox.requests) - before <= 2  # the tenant of the key and the wallet
    (left,) = payroll.run(*options, "--json").lines[-1]["left"]  # in every run
    assert (left["reference"], left["code"], left["message"]) == ("BACK", "1", "insufficient funds")
    assert payroll.posts == 3


@pytest.mark.parametrize(
    ("limit", "problem"),
    [
        (("--max-total", "3004.49"), "--max-total: 3 payouts come to KES 3004.50, more than KES 3004.49"),
        (("--max-each", "1001"), "--max-each: more than KES 1001: 'SAL-1' (KES 1001.50), 'SAL-2' (KES 1002.50)"),
    ],
)
def test_a_limit_refuses_the_file_and_pays_nobody(payroll: PayrollShell, limit: tuple[str, str], problem: str) -> None:
    for options in (["--yes"], ["--dry-run"]):
        assert payroll.run(*options, *limit).says(2, problem)
    assert payroll.sandbox.requests == []
    assert not payroll.database.exists()
    assert payroll.run("--yes", "--max-total", "3004.50", "--max-each", "1002.50").code == 0


def test_machines_and_the_owner_of_the_report_see_whole_phones(payroll: PayrollShell) -> None:
    payroll.write(2)
    shown = payroll.run("--dry-run")
    assert ("2547*****001" in shown.out, "254700000001" in shown.out) == (True, False)
    assert "254700000001" in payroll.run("--dry-run", "--show-phones").out
    done = payroll.run("--yes", "--json", "--report", str(payroll.report))
    assert [line["phone"] for line in done.lines if line["event"] == "row"] == ["254700000000", "254700000001"]
    assert "254700000001" in payroll.report.read_text()
    assert payroll.report.stat().st_mode & 0o077 == 0 or sys.platform == "win32"
    payroll.run("--yes", "--mask-phones", "--report", str(payroll.report))
    assert "254700000001" not in payroll.report.read_text()
    payroll.write(3)
    masked = payroll.run("--yes", "--json", "--mask-phones")
    assert [line["phone"] for line in masked.lines if line["event"] == "row"] == ["2547*****002"]


@pytest.fixture
def journal(client: Client, sandbox: Sandbox, tmp_path: Path) -> tuple[str, str]:
    path = tmp_path / "payouts.db"
    with Journal(f"sqlite:///{path}") as journal:
        client.stk.collect_once(journal=journal, reference="o", amount=100, phone=PHONE)
    sandbox.advance(120)
    return "--journal", str(path)


def paid(sandbox: Sandbox) -> list[tuple[str | None, int]]:
    return [(each.reference, abs(int(each.amount))) for each in sandbox.ledger if str(each.kind) == "payout"]


def test_a_refund_is_asked_about_and_paid_once(momopay: Shell, sandbox: Sandbox, journal: tuple[str, str]) -> None:
    """The callback of the order was lost: it is read first."""
    for options in (("--yes",), ("--confirm-live", "100")):  # a live key takes the exact sum
        assert momopay("payouts", "refund", "o", *journal, "--amount", "40", *options, **LIVE).code == 2
    refused = momopay("payouts", "refund", "o", *journal, piped="n\n")
    assert (refused.code, paid(sandbox)) == (1, [])
    assert "Pay KES 100.00 back to 2547*****678, as o-R1?" in refused.err
    for _ in range(2):
        done = momopay("payouts", "refund", "o", *journal, "--yes", "--json", "--show-phones")
        assert (done.code, done.json["amount"], done.json["phone"]) == (0, "100", NORMALISED)
    assert paid(sandbox) == [("o-R1", 100)]
    unknown = momopay("payouts", "refund", "nobody", *journal, "--yes")
    assert (unknown.code, "of: is no collection in this journal" in unknown.err) == (2, True)
    more = momopay("payouts", "refund", "o", *journal, "--yes", "--amount", "10", "--reference", "o-R2")
    assert (more.code, paid(sandbox)) == (2, [("o-R1", 100)])
    assert "o-R1" in more.err


@pytest.mark.whole
def test_only_the_refund_that_was_agreed_to_is_paid(momopay: Shell, sandbox: Sandbox, journal: tuple[str, str]) -> None:
    with momopay.start("payouts", "refund", "o", *journal, stdin=subprocess.PIPE) as asked:
        assert asked.stderr is not None
        assert asked.stderr.read(19) == "Pay KES 100.00 back"
        assert momopay("payouts", "refund", "o", *journal, "--yes", "--amount", "60", "--reference", "o-R2").code == 0
        asked.communicate("y\n", timeout=LONGEST)
    assert (asked.returncode, paid(sandbox)) == (2, [("o-R2", 60)])
