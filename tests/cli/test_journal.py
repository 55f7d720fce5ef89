"""The journal from the terminal: no key, no request, and nothing is created."""

from __future__ import annotations

import shutil
import stat
from pathlib import Path

import pytest

from cli.kit import NORMALISED, PHONE, Shell, wait_is_over
from momopay import Client, Journal
from momopay.sandbox import Account, Fault, Outcome, Sandbox, phone_for

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
    assert not listed.lines[0].keys() & {"claim", "body_hash"}
    orders = shell("journal", "list", "--json", "--kind", "collection", "--show-phones")
    assert orders.json["phone"] == NORMALISED
    assert [each["status"] for each in orders.json["transactions"]] == ["CANCELLED", "SUCCESS"]
    assert len(shell("journal", "list", "--json", "--limit", "1").lines) == 1
    paid = shell("journal", "list", "--json", "--status", "success", "--until", "2100-12-31")
    assert paid.json["reference"] == "order"
    assert shell("journal", "list", "--since", "2100-01-01", "--json").out == ""
    assert "refused" in shell("journal", "list").words
    for wrong in (("--state", "PAID"), ("--kind", "SALARY"), ("--status", "PAYED"), ("--since", "yesterday")):
        assert shell("journal", "list", *wrong).code == 2
    assert len(sandbox.requests) == before


def test_an_entry_is_shown(shell: Shell) -> None:
    shown = shell("journal", "show", "order")
    assert shown.code == 0
    for word in ("COLLECTION", "CANCELLED", "SUCCESS", "2547*****678"):
        assert word in shown.words
    assert shell("journal", "show", "refused", "--json").json["code"] == "KYC_NOT_VERIFIED"
    assert shell("journal", "show", "nobody").code == 2


def test_a_backup_opens_and_overwrites_nothing(shell: Shell, tmp_path: Path) -> None:
    copy = tmp_path / "copy.db"
    assert shell("journal", "backup", str(copy)).code == 0
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    assert len(shell("journal", "list", "--json", "--journal", str(copy)).lines) == 3
    for wrong in (copy, tmp_path / "none" / "copy.db", tmp_path / ("x" * 300) / "copy.db"):
        refused = shell("journal", "backup", str(wrong))
        assert refused.code == 2
        assert refused.err.startswith("Error: FILE: ")
    assert shell("journal", "backup", str(tmp_path / ("x" * 300))).code == 3


def test_anonymising_is_asked_about(shell: Shell) -> None:
    command = ("journal", "anonymise", "--before", "2100-01-01")
    assert shell(*command).code == 2
    refused = shell.at_a_terminal(*command, typed="n\n")
    assert refused.code == 1
    assert shell("journal", "show", "order", "--json", "--show-phones").json["phone"] == NORMALISED
    assert shell(*command, "--yes", "--json", MOMOPAY_ANONYMISE_SECRET="s" * 32).json == {"changed": 2}
    assert shell("journal", "show", "order", "--json", "--show-phones").json["phone"].startswith("hmac-sha256:")
    assert shell("journal", "show", "paid", "--json", "--show-phones").json["phone"] == NORMALISED


def test_a_check_exits_with_1_if_a_person_is_needed(
    shell: Shell, momopay: Shell, client: Client, sandbox: Sandbox, path: Path
) -> None:
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
    assert checked.code == 1
    assert "Unresolved doubt" in checked.words
    assert "Paid twice twice" in checked.words
    assert "payouts refund REFERENCE" in checked.err


def test_what_the_terminal_releases_of_an_order_is_prompted_again(momopay: Shell, sandbox: Sandbox, path: Path) -> None:
    order = ("collect", "INV-43", "--amount", "5", "--phone", PHONE, "--journal", str(path))
    sandbox.fail_next("POST", "/payments/stk", Fault.error_before_commit)
    assert momopay(*order).code == 4
    release = ("payouts", "release", "INV-43", "--by", "Otieno", "--journal", str(path))
    early = momopay.at_a_terminal(*release, typed="INV-43\n")
    assert (early.code, "release it in" in early.err) == (6, True)
    wait_is_over(path)
    released = momopay.at_a_terminal(*release, typed="INV-43\n")
    assert (released.code, "`momopay collect` prompts for it" in released.words) == (0, True)
    again = momopay(*order)
    assert (again.code, again.err.startswith("Prompt sent")) == (0, True)


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
    refused = momopay(*pay)
    assert (refused.code, "went back in time" in refused.err) == (3, True)
    checked = shell("journal", "check")
    assert (checked.code, "accept-restored" in checked.err) == (1, True)
    assert momopay("doctor", "--journal", str(path)).code == 3
    assert shell("journal", "accept-restored").code == 2
    accepted = shell("journal", "accept-restored", "--by", "Amina")
    assert accepted.code == 0
    assert "momopay reconcile --day 20" in accepted.words
    assert "Accepted by Amina" in accepted.words
    assert momopay(*pay).code == 0


def test_no_command_makes_a_journal(shell: Shell, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    where = ("--journal", str(elsewhere / "none.db"))
    commands = [("list",), ("show", "a"), ("backup", "b"), ("anonymise", "--before", "2026-01-01", "--yes"), ("check",)]
    for command in (*commands, ("accept-restored", "--by", "Amina")):
        assert shell("journal", *command, *where).code == 3
    assert list(elsewhere.iterdir()) == []
