"""`momopay collect`: an order is prompted once at a time, and collected once."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.kit import PHONE, Shell
from momopay import EntryKind, Journal, JournalState
from momopay.sandbox import Fault, Outcome, Sandbox, phone_for


@pytest.fixture
def journal(tmp_path: Path) -> str:
    return str(tmp_path / "journal.db")


def collect(journal: str, *more: str, phone: str = PHONE) -> tuple[str, ...]:
    return ("collect", "INV-42", "--amount", "100", "--phone", phone, "--journal", journal, *more)


def posts(sandbox: Sandbox) -> int:
    return [request.path for request in sandbox.requests].count("/payments/stk")


def test_an_order_is_prompted_once(momopay: Shell, sandbox: Sandbox, journal: str) -> None:
    first = momopay(*collect(journal))
    assert first.code == 0
    assert first.err == "Prompt sent\n"
    again = momopay(*collect(journal, "--json"))
    assert again.json["transaction_id"] in first.out
    assert momopay(*collect(journal)).err == "No prompt was sent: this one is open, or was paid\n"
    assert posts(sandbox) == 1


def test_a_cancelled_prompt_is_followed_by_another(momopay: Shell, sandbox: Sandbox, journal: str) -> None:
    phone = phone_for(Outcome.cancelled)
    for number in range(2):
        assert momopay(*collect(journal, phone=phone)).code == 0
        sandbox.advance(60)
        assert posts(sandbox) == number + 1


def test_what_was_paid_ends_at_once_with_0(momopay: Shell, sandbox: Sandbox, journal: str) -> None:
    momopay(*collect(journal))
    sandbox.advance(120)
    paid = momopay(*collect(journal, "--wait", "--json"))
    assert (paid.code, paid.json["status"]) == (0, "SUCCESS")
    assert posts(sandbox) == 1


def test_a_wait_records_the_end(momopay: Shell, sandbox: Sandbox, journal: str) -> None:
    prompted = momopay(*collect(journal, "--json", phone=phone_for(Outcome.by_hand)))
    sandbox.cancel(prompted.json["transaction_id"])
    with Journal(f"sqlite:///{journal}") as opened:
        assert opened.get("INV-42", kind=EntryKind.COLLECTION) is not None
    soon = ("--wait", "--every", "0.1", "--timeout", "1", "--json")
    again = momopay(*collect(journal, *soon, phone=phone_for(Outcome.by_hand)))
    assert (again.code, again.json["status"]) == (6, "PENDING")
    assert "momopay collect INV-42" in again.err
    assert posts(sandbox) == 2


def test_an_open_prompt_may_be_abandoned(momopay: Shell, sandbox: Sandbox, journal: str) -> None:
    for _ in range(2):
        momopay(*collect(journal, "--abandon-after", "0.001", phone=phone_for(Outcome.never_answers)))
    assert posts(sandbox) == 2


def test_an_order_in_doubt_exits_with_4_and_is_no_payout(momopay: Shell, sandbox: Sandbox, journal: str) -> None:
    sandbox.fail_next("POST", "/payments/stk", Fault.error_before_commit)
    for _ in range(2):
        assert momopay(*collect(journal)).code == 4
    with Journal(f"sqlite:///{journal}") as opened:
        assert [entry.state for entry in opened.unresolved()] == [JournalState.UNKNOWN]
    assert "Nothing is in doubt" in momopay("payouts", "status", "--journal", journal).out


def test_another_amount_is_refused(momopay: Shell, sandbox: Sandbox, journal: str) -> None:
    momopay(*collect(journal))
    other = momopay(*collect(journal, "--amount", "99"))
    assert other.code == 1
    assert "another amount or phone" in other.err
    assert posts(sandbox) == 1
