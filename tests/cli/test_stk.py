"""One STK prompt, and every way in which it can end."""

from __future__ import annotations

from decimal import Decimal

import pytest

from cli.kit import NORMALISED, PHONE, Shell
from momopay.sandbox import Account, Fault, Outcome, Sandbox, phone_for
from sandbox.kit import Receiver

PROMPT = ("stk", "--amount", "100", "--reference", "INV-42", "--description", "Order 42")
ASKED = (*PROMPT, "--phone", PHONE)
LIVE = {"MOMOPAY_API_KEY": "pk_live_secret", "MOMOPAY_BASE_URL": "https://service.invalid/v1"}
NOT_REACHED = 6
"""What a live key ends with once it is let go: the host does not exist."""


def posts(sandbox: Sandbox) -> int:
    return [request.path for request in sandbox.requests].count("/payments/stk")


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
    assert "Result" not in shown.out
    made = shown.out.split()[1]
    assert shown.err == f"momopay transactions wait {made} waits for its end\n"
    assert "Result" not in momopay("transactions", "get", made).out
    sandbox.advance(120)
    assert "Result" in momopay("transactions", "get", made).out


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
    [("--phone", "0312345678"), ("--amount", "0.5"), ("--amount", "nan"), ("--reference", "INV-1234567890")],
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
