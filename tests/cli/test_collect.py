"""`momopay collect`: an order is prompted once at a time, and collected once; or one prompt without a journal."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest

from cli.kit import NORMALISED, PHONE, Shell
from momopay import EntryKind, Journal, JournalState
from momopay.sandbox import Account, Fault, Outcome, Sandbox, phone_for
from sandbox.kit import Receiver

PROMPT = ("collect", "INV-42", "--no-journal", "--amount", "100", "--description", "Order 42")
ASKED = (*PROMPT, "--phone", PHONE)
LIVE = {"MOMOPAY_API_KEY": "pk_live_secret", "MOMOPAY_BASE_URL": "https://service.invalid/v1"}
NOT_REACHED = 6
"""What a live key ends with once it is let go: the host does not exist."""


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
    assert first.err.startswith("Prompt sent: transaction ")
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
    assert f"momopay transactions wait {again.json['transaction_id']}" in again.err
    assert posts(sandbox) == 2


def test_an_open_prompt_may_be_abandoned(momopay: Shell, sandbox: Sandbox, journal: str) -> None:
    for _ in range(2):
        momopay(*collect(journal, "--abandon-after", "0.001", phone=phone_for(Outcome.never_answers)))
    assert posts(sandbox) == 2


def test_an_order_in_doubt_exits_with_4_and_is_listed(momopay: Shell, sandbox: Sandbox, journal: str) -> None:
    sandbox.fail_next("POST", "/payments/stk", Fault.error_before_commit)
    for _ in range(2):
        assert momopay(*collect(journal)).code == 4
    with Journal(f"sqlite:///{journal}") as opened:
        assert [entry.state for entry in opened.unresolved()] == [JournalState.UNKNOWN]
    listed = momopay("payouts", "status", "--journal", journal)
    assert (listed.code, "INV-42" in listed.out, "COLLECTION" in listed.out) == (4, True, True)


def test_another_amount_is_refused(momopay: Shell, sandbox: Sandbox, journal: str) -> None:
    momopay(*collect(journal))
    other = momopay(*collect(journal, "--amount", "99"))
    assert other.code == 1
    assert "another amount" in other.err
    assert posts(sandbox) == 1


def test_a_prompt_without_a_journal_is_sent_each_time(momopay: Shell, sandbox: Sandbox, tmp_path: Path) -> None:
    for reference in ("INV-42", ""):
        words = [word for word in ASKED if word != "INV-42" or reference]
        assert momopay(*words, MOMOPAY_JOURNAL=str(tmp_path / "new.db")).code == 0
    assert (posts(sandbox), list(tmp_path.iterdir())) == (2, [])


def test_a_prompt(momopay: Shell, sandbox: Sandbox, receiver: Receiver) -> None:
    accepted = momopay(*ASKED, "--callback-url", receiver.url, "--json")
    assert accepted.code == 0
    assert (accepted.json["status"], accepted.json["amount"]) == ("PENDING", "100")
    assert accepted.json["result_code"] == "0"
    (request,) = sandbox.requests
    assert request.json == {
        "amount": 100,
        "phone": NORMALISED,
        "accountReference": "INV-42",
        "transactionDesc": "Order 42",
        "callbackUrl": receiver.url,
    }


def test_a_prompt_that_is_pending_shows_no_result(momopay: Shell, sandbox: Sandbox) -> None:
    """The provider's code 0 says that the prompt was accepted: nobody has paid."""
    shown = momopay(*ASKED, "--amount", "99.50")
    assert "PENDING" in shown.out
    assert "Result code" not in shown.out
    made = shown.out.split()[1]
    assert shown.err == f"Prompt sent: transaction {made}\n"
    assert "Result code" not in momopay("transactions", "get", made).out
    sandbox.advance(120)
    assert "Result code" in momopay("transactions", "get", made).out


def test_a_prompt_that_is_not_answered_says_how_to_go_on(momopay: Shell, sandbox: Sandbox) -> None:
    soon = ("--wait", "--every", "0.1", "--timeout", "1")
    waited = momopay(*PROMPT, "--phone", phone_for(Outcome.never_answers), *soon, "--json")
    assert waited.code == 6
    assert waited.json["status"] == "PENDING"
    assert f"momopay transactions wait {waited.json['transaction_id']}" in waited.err
    assert posts(sandbox) == 1


@pytest.mark.parametrize(
    ("change", "remedy"),
    [({"service_balance": Decimal(0)}, "top up the service wallet"), ({"channels": []}, "channels.create")],
)
def test_a_refusal_brings_its_remedy(
    momopay: Shell, sandbox: Sandbox, account: Account, change: dict[str, object], remedy: str
) -> None:
    for name, value in change.items():
        setattr(account, name, value)
    refused = momopay(*ASKED)
    assert refused.code == 1
    assert remedy in refused.err
    assert sandbox.ledger == []


def test_an_unknown_outcome_exits_4_and_is_not_repeated(momopay: Shell, sandbox: Sandbox) -> None:
    sandbox.fail_next("POST", "/payments/stk", Fault.reset_after_commit)
    unknown = momopay(*ASKED)
    assert unknown.code == 4
    assert "do not send it again" in unknown.err
    assert posts(sandbox) == 1


@pytest.mark.parametrize(
    "wrong",
    [("--phone", "0312345678"), ("--amount", "0.5"), ("--amount", "nan"), ("--abandon-after", "1")],
)
def test_wrong_arguments_exit_2_and_send_nothing(momopay: Shell, sandbox: Sandbox, wrong: tuple[str, ...]) -> None:
    assert momopay(*ASKED, *wrong).code == 2
    assert momopay(*PROMPT).code == 2
    assert sandbox.requests == []


@pytest.mark.parametrize(
    ("piped", "code", "message"),
    [
        ("", 2, "--confirm-live"),
        ("y\n", 1, "not confirmed"),
        ("100\n", 1, "not confirmed"),
        ("yes\n", NOT_REACHED, ""),
    ],
)
def test_a_live_key_asks_and_a_piped_answer_must_be_exact(
    momopay: Shell, no_backoff: None, piped: str, code: int, message: str
) -> None:
    done = momopay(*ASKED, piped=piped, **LIVE)
    assert (done.code, done.out) == (code, "")
    assert message in done.err
    assert ("Type yes to go on" in done.err) == bool(piped)
    assert "secret" not in done.err


@pytest.mark.parametrize(("typed", "code"), [("y\n", 1), ("yes\n", NOT_REACHED), ("", 130)])
def test_a_live_key_asks_at_a_terminal(momopay: Shell, no_backoff: None, typed: str, code: int) -> None:
    """Without an answer the question is interrupted, as by Ctrl-C."""
    done = momopay.at_a_terminal(*ASKED, typed=typed, **LIVE)
    assert done.code == code
    assert "real money will move" in done.err
    assert ("Interrupted." in done.err) == (code == 130)


def test_a_script_states_the_exact_sum(momopay: Shell, no_backoff: None) -> None:
    assert momopay(*ASKED, "--confirm-live", "100.00", **LIVE).code == NOT_REACHED
    other = momopay(*ASKED, "--confirm-live", "10", **LIVE)
    assert other.code == 2
    assert "KES 10.00, and KES 100.00 may move" in other.err
