"""The journal from the terminal: no key, no request, and nothing is created."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from cli.kit import NORMALISED, Shell
from journal.kit import execute, put, put_collection
from momopay import Journal, JournalState
from momopay.sandbox import Sandbox

NOBODY = {"MOMOPAY_API_KEY": "", "MOMOPAY_BASE_URL": ""}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "payouts.db"
    with Journal(f"sqlite:///{path}") as journal:
        put(journal, "paid", JournalState.ACCEPTED)
        put(journal, "refused", JournalState.REFUSED, code="INSUFFICIENT_FUNDS")
        put_collection(journal, "order", statuses=["FAILED", "SUCCESS"])
        execute(journal, "UPDATE momopay_payments SET receipt = 'QK12' WHERE reference = 'order'")
    return path


@pytest.fixture
def shell(path: Path) -> Shell:
    return Shell({**NOBODY, "MOMOPAY_JOURNAL": str(path)})


def test_the_entries_are_listed_newest_first(shell: Shell, sandbox: Sandbox) -> None:
    listed = shell("journal", "list", "--json")
    assert [each["reference"] for each in listed.lines] == ["refused", "paid", "order"]
    assert listed.lines[0]["phone"] == "2547*****678"
    assert not listed.lines[0].keys() & {"claim", "body_hash"}
    orders = shell("journal", "list", "--json", "--kind", "collection", "--show-phones")
    assert orders.json["phone"] == NORMALISED
    assert [each["status"] for each in orders.json["prompts"]] == ["FAILED", "SUCCESS"]
    assert len(shell("journal", "list", "--json", "--limit", "1").lines) == 1
    assert (
        shell("journal", "list", "--json", "--status", "success", "--until", "2026-12-31").json["reference"] == "order"
    )
    assert shell("journal", "list", "--since", "2100-01-01", "--json").out == ""
    words = shell("journal", "list").words
    assert "refused" in words
    assert "QK12" in words
    for wrong in (("--state", "PAID"), ("--kind", "SALARY"), ("--status", "PAYED"), ("--since", "yesterday")):
        assert shell("journal", "list", *wrong).code == 2
    assert sandbox.requests == []


def test_an_entry_is_shown(shell: Shell) -> None:
    shown = shell("journal", "show", "order")
    assert shown.code == 0
    for word in ("COLLECTION", "order-0", "order-1", "QK12", "2547*****678"):
        assert word in shown.words
    assert shell("journal", "show", "refused", "--json").json["code"] == "INSUFFICIENT_FUNDS"
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


def test_a_check_exits_with_1_if_a_person_is_needed(shell: Shell, path: Path) -> None:
    fine = shell("journal", "check", "--json")
    assert (fine.code, fine.json["needs_attention"]) == (0, False)
    assert fine.json["counts"] == {"COLLECTION ACCEPTED": 1, "PAYOUT ACCEPTED": 1, "PAYOUT REFUSED": 1}
    with Journal(f"sqlite:///{path}") as journal:
        put(journal, "doubt", JournalState.UNKNOWN)
        put_collection(journal, "twice", statuses=["SUCCESS", "SUCCESS"])
    checked = shell("journal", "check")
    assert checked.code == 1
    assert "In doubt doubt" in checked.words
    assert "Paid twice twice" in checked.words
    assert "payouts refund REFERENCE" in checked.err


def test_no_command_makes_a_journal(shell: Shell, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    where = ("--journal", str(elsewhere / "none.db"))
    commands = [("list",), ("show", "a"), ("backup", "b"), ("anonymise", "--before", "2026-01-01", "--yes"), ("check",)]
    for command in commands:
        assert shell("journal", *command, *where).code == 3
    assert list(elsewhere.iterdir()) == []
