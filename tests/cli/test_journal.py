"""The journal from the terminal: no key, no request, and nothing is created."""

import csv
import shutil
import signal
import stat
import sys
import time
from datetime import datetime, timedelta, tzinfo
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import pytest

from cli.kit import NORMALISED, PHONE, Shell, loses_a_connection, signalling
from journal.versions.kit import load
from momopay import Client, Journal, OutcomeUnknownError
from momopay.journal.upgrade import VERSION as NUMBER
from momopay.sandbox import Account, Fault, Outcome, Sandbox, phone_for
from sandbox.kit import execute
from spreadsheets.kit import book, save

VERSION = f"version {NUMBER}"
NOBODY = {"MOMOPAY_API_KEY": "", "MOMOPAY_BASE_URL": ""}


@pytest.fixture
def path(client: Client, account: Account, sandbox: Sandbox, tmp_path: Path) -> Path:
    """A journal with an order that was paid by its second prompt, a payout, and one that was refused."""
    path = tmp_path / "payouts.db"
    with Journal(f"sqlite:///{path}") as journal:
        for phone in (phone_for(Outcome.cancelled), PHONE):
            client.stk.collect_once(journal=journal, reference="order", amount=100, phone=phone)
            sandbox.advance(120)
        client.payouts.pay_once(journal=journal, reference="paid", amount=100, phone=PHONE)
        account.kyc_approved = False
        list(client.payouts.pay_all([{"reference": "refused", "amount": 100, "phone": PHONE}], journal=journal))
        account.kyc_approved = True
        client.transactions.sweep(journal=journal)
    return path


@pytest.fixture
def shell(path: Path) -> Shell:
    return Shell({**NOBODY, "MOMOPAY_JOURNAL": str(path)})


def test_the_entries_are_listed_newest_first(shell: Shell, sandbox: Sandbox) -> None:
    before = len(sandbox.requests)
    listed = shell("journal", "list", "--json")
    assert [each["reference"] for each in listed.lines] == ["refused", "paid", "order"]
    assert listed.lines[0]["phone"] == "2547*****678"
    assert not listed.lines[0].keys() & {"claim", "revision"}
    orders = shell("journal", "list", "--json", "--kind", "collection", "--show-phones")
    assert orders.json["phone"] == NORMALISED
    assert [each["status"] for each in orders.json["transactions"]] == ["CANCELLED", "SUCCESS"]
    assert len(shell("journal", "list", "--json", "--limit", "1").lines) == 1
    paid = shell("journal", "list", "--json", "--status", "success", "--until", "2100-12-31")
    assert (paid.json["reference"], shell("journal", "list", "--since", "2100-01-01", "--json").out) == ("order", "")
    assert "refused" in shell("journal", "list").words
    for wrong in (("--state", "PAID"), ("--kind", "SALARY"), ("--status", "PAYED"), ("--since", "yesterday")):
        assert shell("journal", "list", *wrong).code == 2
    assert len(sandbox.requests) == before


def test_an_entry_is_shown_with_its_history(shell: Shell) -> None:
    assert shell("journal", "show", "order").prints(0, "COLLECTION", "CANCELLED", "SUCCESS", "2547*****678", "begun")
    refused = shell("journal", "show", "refused", "--json").json
    assert refused["code"] == "KYC_NOT_VERIFIED"
    assert [each["what"] for each in refused["history"]] == ["begun", "sent", "refused"]
    assert shell("journal", "show", "nobody").code == 2


def test_a_backup_opens_and_overwrites_nothing(shell: Shell, tmp_path: Path) -> None:
    copy = tmp_path / "copy.db"
    assert shell("journal", "backup", str(copy)).code == 0
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600 or sys.platform == "win32"
    assert len(shell("journal", "list", "--json", "--journal", str(copy)).lines) == 3
    for wrong in (copy, Path("/")):
        assert shell("journal", "backup", str(wrong)).says(2, "Error: path: ")
    for wrong in (tmp_path / "none" / "copy.db", tmp_path / ("x" * 300) / "copy.db", tmp_path / ("x" * 300)):
        assert shell("journal", "backup", str(wrong)).code == 3


def test_anonymising_is_asked_about(shell: Shell) -> None:
    command = ("journal", "anonymise", "--before", "2100-01-01")
    assert (shell(*command).code, shell.at_a_terminal(*command, typed="n\n").code) == (2, 1)
    assert shell("journal", "show", "order", "--json", "--show-phones").json["phone"] == NORMALISED
    assert shell(*command, "--yes", "--json", MOMOPAY_ANONYMISE_SECRET="s" * 32).json == {"changed": 2}
    assert shell("journal", "show", "order", "--json", "--show-phones").json["phone"].startswith("hmac-sha256:")
    assert shell("journal", "show", "paid", "--json", "--show-phones").json["phone"] == NORMALISED


def test_a_check_that_needs_a_human(shell: Shell, momopay: Shell, client: Client, sandbox: Sandbox, path: Path) -> None:
    fine = shell("journal", "check", "--json")
    assert (fine.code, fine.json["needs_attention"]) == (0, False)
    assert fine.json["counts"] == {"COLLECTION ACCEPTED": 1, "PAYOUT ACCEPTED": 1, "PAYOUT REFUSED": 1}
    collect = ("--amount", "5", "--journal", str(path))
    sandbox.fail_next("POST", "/payments/stk", Fault.error_before_commit)
    assert momopay("collect", "doubt", *collect, "--phone", PHONE).code == 4
    twice = ("collect", "twice", *collect, "--phone", phone_for(Outcome.by_hand), "--abandon-after", "0.001", "--json")
    for made in [momopay(*twice).json["transaction_id"] for _ in range(2)]:
        sandbox.enter_pin(made)
    sandbox.advance(60)
    assert momopay("sweep", "--journal", str(path)).code == 0
    checked = shell("journal", "check")
    assert checked.prints(1, "Unresolved doubt", "Paid twice twice")
    assert "payouts refund REFERENCE" in checked.err


def test_a_journal_is_created_and_upgraded_by_command(shell: Shell, tmp_path: Path) -> None:
    new = tmp_path / "new.db"
    at = ("--journal", str(new))
    assert shell("journal", "migrate", *at, "--check").prints(
        1, f"To do: there is no journal: create one, of {VERSION}"
    )
    assert not new.exists()
    assert shell("journal", "migrate", *at).prints(0, f"Done: created the journal, of {VERSION}")
    assert shell("journal", "migrate", *at, "--check").prints(0, "Nothing to do")
    assert shell("journal", "migrate", *at, "--json").json == {"check": False, "changes": None}
    load(f"sqlite:///{tmp_path / 'old.db'}", 1)
    old = ("--journal", f"sqlite:///{tmp_path / 'old.db'}")
    checked = shell("journal", "migrate", *old, "--check", "--json")
    assert (checked.code, checked.json["changes"]) == (1, f"upgrade the journal from version 1 to {NUMBER}")
    assert shell("journal", "migrate", *old).prints(0, f"Done: upgraded the journal from version 1 to {NUMBER}")
    execute(tmp_path / "old.db", "DROP INDEX momopay_refunds")
    assert shell("journal", "check", *old).says(1, "`momopay journal migrate`")
    assert shell("journal", "check", *old, "--json").json["differing"] == ["momopay_refunds"]
    assert shell("journal", "migrate", *old).prints(0, "made these indexes anew: momopay_refunds")
    execute(tmp_path / "old.db", "UPDATE momopay_journal SET version = 99")
    assert shell("journal", "migrate", *old).says(3, "Update momopay on this machine")


def test_a_restored_copy_is_refused_until_it_is_accepted(momopay: Shell, shell: Shell, path: Path) -> None:
    pay = ("collect", "INV-44", "--amount", "5", "--phone", PHONE, "--journal", str(path))
    nothing = shell("journal", "accept-restored", "--by", "Amina", "--json")
    assert (nothing.code, nothing.json) == (0, {"accepted": False, "went_back": None})
    copy = path.with_name("copy.db")
    assert shell("journal", "backup", str(copy)).code == 0
    assert momopay(*pay).code == 0
    for old in path.parent.glob("payouts.db-*al"):
        old.unlink()
    shutil.copy(copy, path)
    assert momopay(*pay).says(3, "went back in time")
    assert shell("journal", "check").says(1, "accept-restored")
    assert momopay("doctor", "--journal", str(path)).code == 3
    assert shell("journal", "accept-restored").code == 2
    accepted = shell("journal", "accept-restored", "--by", "Amina")
    assert accepted.prints(0, "momopay reconcile --day 20", "Accepted by Amina")
    assert momopay(*pay).code == 0


def test_no_command_makes_a_journal(momopay: Shell, sandbox: Sandbox, tmp_path: Path) -> None:
    for command in (
        *("journal list", "journal show a", "journal backup b", "journal anonymise --before 2026-01-01 --yes"),
        *("journal check", "journal accept-restored --by Amina", "payouts status", "payouts release a"),
        *("sweep", "reconcile --day 2026-11-20"),
    ):
        assert momopay(*command.split(), "--journal", str(tmp_path / "none.db")).code == 3
    assert (list(tmp_path.iterdir()), sandbox.requests) == ([], [])


@pytest.fixture
def database(tmp_path: Path, client: Client) -> Path:
    """A journal with a payout that was accepted."""
    with Journal(f"sqlite:///{tmp_path / 'payouts.db'}") as journal:
        client.payouts.pay_once(journal=journal, reference="SAL-1", amount=10, phone=PHONE)
    return tmp_path / "payouts.db"


def test_a_sweep_records_what_ended(momopay: Shell, client: Client, sandbox: Sandbox, database: Path) -> None:
    done = momopay("sweep", "--journal", str(database), "--json")
    assert done.json == {"settled": 0, "open": 1, "unknown": 0, "handled": 0, "failed": 0, "unread": 0, "skipped": 0}
    sandbox.advance(3600)
    done = momopay("sweep", "--journal", str(database))
    assert (done.code, done.words.split()[-3:]) == (0, ["1", "0", "0"])
    sandbox.fail_next("POST", "/b2c/payouts", Fault.error_before_commit)
    with Journal(f"sqlite:///{database}") as journal:
        assert journal.open() == []
        with pytest.raises(OutcomeUnknownError):
            client.payouts.pay_once(journal=journal, reference="SAL-2", amount=10, phone=PHONE)
    assert momopay("sweep", "--journal", str(database)).prints(0, "momopay payouts status")


def test_a_sweep_warns_of_a_wallet_that_runs_empty(
    momopay: Shell, account: Account, database: Path, caplog: pytest.LogCaptureFixture
) -> None:
    account.service_balance = Decimal("99.99")
    assert momopay("sweep", "--journal", str(database), "--warn-below", "99.99").err == ""
    low = momopay("sweep", "--journal", str(database), "--warn-below", "100")
    assert low.says(0, "the service wallet has KES 99.99, less than KES 100.00: top it up")
    assert [each.levelname for each in caplog.records] == ["WARNING"]


@loses_a_connection
@pytest.mark.usefixtures("no_backoff")
def test_a_repeated_sweep(momopay: Shell, sandbox: Sandbox, database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def sleep(_seconds: float) -> None:
        time.sleep(0.02)

    monkeypatch.setattr("momopay.cli.journal.time", SimpleNamespace(sleep=sleep))
    sandbox.fail_next("GET", "/transactions/{id}", Fault.error_before_commit, times=4)
    sandbox.fail_next("GET", "/transactions/{id}", Fault.refused_after_commit)

    with signalling([signal.SIGINT], lambda: sum("/transactions/" in each.path for each in sandbox.requests) > 6):
        done = momopay("sweep", "--journal", str(database), "--every", "1", "--json")
    assert (done.code, done.err.count("The next sweep goes on"), done.lines[0]["open"]) == (130, 2, 1)
    monkeypatch.setattr("momopay.cli.journal.time", None)  # it does not wait for another sweep
    revoked = momopay("sweep", "--journal", str(database), "--every", "1", MOMOPAY_API_KEY="ab_test_revoked")
    assert (revoked.code, "The next sweep" in revoked.err) == (3, False)


def test_reconciling_a_day_and_a_month(momopay: Shell, client: Client, sandbox: Sandbox, tmp_path: Path) -> None:
    path, orders, out = tmp_path / "payouts.db", tmp_path / "orders.csv", tmp_path / "differences.csv"
    day = f"{sandbox.now + timedelta(hours=3):%Y-%m-%d}"
    with Journal(f"sqlite:///{path}") as journal:
        client.payouts.pay_once(journal=journal, reference="RENT", amount=900, phone=PHONE)
    client.stk.initiate(amount=500, phone=PHONE, account_reference="A")
    client.stk.initiate(amount=5, phone=phone_for(Outcome.cancelled))
    sandbox.advance(600)
    command = ("reconcile", "--journal", str(path), "--orders", str(orders), "--out", str(out))
    orders.write_text("reference,amount,state\nA,500,PAID\n")
    agreed = momopay(*command, "--day", day, "--json")
    assert agreed.code == 0
    assert (agreed.json["agrees"], agreed.json["collected"], agreed.json["paid_out"]) == (True, "500", "900")
    orders.write_text("reference,amount,state\nA,500,WAITING\n")
    shown = momopay(*command, "--day", day[:7], "--timezone", "Africa/Nairobi")
    assert shown.prints(1, "paid and not shipped: ship", "KES 900.00", f"{day[:7]}-01 00:00", "EAT")
    assert shown.prints(1, "for transactions that ended without success: 1.")
    with out.open(newline="", encoding="utf-8-sig") as file:
        assert [row["reference"] for row in csv.DictReader(file)] == ["A"]
    for word in ("today", "Yesterday"):
        assert momopay(*command, "--day", word, "--json").code in {0, 1}
    orders.write_text("reference,state,amount\nA,PAID,1,250\nB,x,5\n")
    faulty = momopay(*command, "--day", day, COLUMNS="200")
    assert faulty.prints(2, "2 A", "has 4 cells, and the header has 3", "3 B state x is no state of an order")
    assert faulty.says(2, "Error: --orders: orders.csv: 2 fault(s); nothing was sent")
    assert momopay(*command, "--day", day, "--sheet", "May").says(2, "--sheet: orders.csv is CSV")
    orders.write_text("reference,amount,state\nB,500,PAID\n")
    assert momopay(*command, "--day", day).prints(1, "perhaps of B: it has the same amount")
    strange, unpaid = momopay(*command, "--day", day, "--json").json["differences"]
    assert (strange["kind"], unpaid["kind"]) == ("unknown_payment", "not_paid")
    for wrong in ("tomorrow", "2026-13", "2026-11-31", "9999-12", "9999-12-31", "0001-01-01", "0001-01"):
        for zone in ([], ["--timezone", "UTC"]):
            assert momopay(*command, "--day", wrong, *zone).says(2, "Error: --day: ")
    for wrong_text in ("reference,amount,state\nA,500,SHIPPED\n", "reference,amount,state\nJosé,500,PAID\n"):
        orders.write_text(wrong_text, encoding="latin-1")  # as a spreadsheet may save it
        assert momopay(*command, "--day", day).says(2, "Error: --orders: ")
    unreadable = momopay(*command, "--day", day, "--orders", "/proc/self/mem")
    assert unreadable.says(2, f"--orders {Path('/proc/self/mem')} cannot be read: ")


@pytest.mark.parametrize(
    ("zone", "now", "word", "day"),
    [
        (None, "2026-11-30T20:59:59+00:00", "today", "2026-11-30T00:00:00+03:00"),
        (None, "2026-11-30T21:00:00+00:00", "today", "2026-12-01T00:00:00+03:00"),
        (None, "2026-11-30T21:00:00+00:00", "yesterday", "2026-11-30T00:00:00+03:00"),
        ("UTC", "2026-11-30T21:00:00+00:00", "today", "2026-11-30T00:00:00+00:00"),
        ("America/New_York", "2026-12-01T04:59:00+00:00", "today", "2026-11-30T00:00:00-05:00"),
        ("Africa/Nairobi", "2026-11-30T21:00:00+00:00", "2026-11-30", "2026-11-30T00:00:00+03:00"),
    ],
)
def test_days_are_of_nairobi_or_of_the_zone(
    momopay: Shell, database: Path, monkeypatch: pytest.MonkeyPatch, zone: str | None, now: str, word: str, day: str
) -> None:
    """Whatever the machine's own zone is."""

    class Fixed(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Self:
            return cls.fromisoformat(now).astimezone(tz)

    monkeypatch.setattr("momopay.cli.output.datetime", Fixed)
    options = [] if zone is None else ["--timezone", zone]
    done = momopay("reconcile", "--day", word, "--journal", str(database), *options, "--json", TZ="Asia/Tokyo")
    assert done.json["since"] == day


def test_orders_of_a_spreadsheet(momopay: Shell, database: Path, tmp_path: Path) -> None:
    made = book(("Reference", "State", "Amount"), ("INV-1", "PAID", 500), ("INV-2", "PAID", 250), title="November")
    sheet: Any = made.active
    sheet.row_dimensions[3].hidden = True
    path = save(tmp_path, made)
    done = momopay(
        "reconcile", "--day", "today", "--journal", str(database), "--orders", str(path), "--sheet", "november"
    )
    assert done.prints(1, "INV-1 PAID 500", "INV-2 PAID 250")
    assert done.says(1, "Warning: hidden rows of the sheet are read too: 3")


@pytest.mark.usefixtures("no_backoff")
def test_out_overwrites_no_used_file_and_is_not_left_empty(momopay: Shell, sandbox: Sandbox, tmp_path: Path) -> None:
    with Journal(f"sqlite:///{tmp_path}/payouts.db") as journal:
        journal.get("A")
    command = ("reconcile", "--day", "2026-11-20", "--journal", f"{tmp_path}/payouts.db")
    assert momopay(*command, "--out", f"{tmp_path}/none/differences.csv").says(2, "Error: --out ")
    out, orders = tmp_path / "differences.csv", tmp_path / "orders.csv"
    orders.write_text("reference,amount,state\n")
    for path in (orders, tmp_path / "payouts.db"):
        before = path.read_bytes()
        refused = momopay(*command, "--orders", str(orders), "--out", str(path))
        assert (refused.code, path.read_bytes(), sandbox.requests) == (2, before, [])
    assert momopay(*command, "--out", str(out), MOMOPAY_BASE_URL="http://127.0.0.1:1/v1").code == 6
    assert not out.exists()
