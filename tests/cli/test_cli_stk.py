"""One STK prompt, and every way in which it can end."""

from __future__ import annotations

import json
from decimal import Decimal

import pytest

from cli.kit import PHONE, Shell
from momopay.sandbox import Account, Fault, Outcome, Sandbox, phone_for
from sandbox.kit import Receiver

PROMPT = ("stk", "--amount", "100", "--reference", "INV-42", "--description", "Order 42")
SOON = ("--wait", "--every", "0.1", "--timeout", "1")


def pushed(sandbox: Sandbox) -> int:
    return [request.path for request in sandbox.requests].count("/payments/stk")


def test_a_prompt(momopay: Shell, sandbox: Sandbox, receiver: Receiver) -> None:
    accepted = momopay(*PROMPT, "--phone", PHONE, "--callback-url", receiver.url, "--json")
    assert accepted.code == 0
    assert (accepted.json["status"], accepted.json["amount"]) == ("PENDING", "100")
    (request,) = sandbox.requests
    assert request.json == {
        "amount": 100,
        "phone": "254712345678",
        "accountReference": "INV-42",
        "transactionDesc": "Order 42",
        "callbackUrl": receiver.url,
    }
    assert accepted.json["result_code"] == "0"
    shown = momopay(*PROMPT, "--phone", PHONE, "--amount", "99.50")
    assert "PENDING" in shown.out
    assert "Result" not in shown.out  # the provider's 0 says that the prompt was accepted: nobody has paid
    made = shown.out.split()[1]
    assert shown.err == f"momopay transactions wait {made} follows it\n"
    assert "Result" not in momopay("transactions", "get", made).out
    sandbox.advance(120)
    assert "Result" in momopay("transactions", "get", made).out


def test_a_prompt_that_is_not_answered_says_how_to_go_on(momopay: Shell, sandbox: Sandbox) -> None:
    waited = momopay(*PROMPT, "--phone", phone_for(Outcome.never_answers), *SOON, "--json")
    assert waited.code == 6
    assert waited.json["status"] == "PENDING"
    assert f"momopay transactions wait {waited.json['transaction_id']}" in waited.err
    assert pushed(sandbox) == 1


@pytest.mark.parametrize(
    ("change", "code", "told"),
    [
        ({"service_balance": Decimal(0)}, 1, "top up the service wallet"),
        ({"channels": []}, 1, "create a payment channel"),
    ],
)
def test_a_refusal_brings_its_remedy(
    momopay: Shell, sandbox: Sandbox, account: Account, change: dict[str, object], code: int, told: str
) -> None:
    for name, value in change.items():
        setattr(account, name, value)
    refused = momopay(*PROMPT, "--phone", PHONE)
    assert refused.code == code
    assert told in refused.err
    assert sandbox.ledger == []


@pytest.mark.parametrize("fault", [Fault.reset_after_commit, Fault.error_after_commit, Fault.html_502])
def test_an_unclear_end_exits_4_and_is_not_repeated(momopay: Shell, sandbox: Sandbox, fault: Fault) -> None:
    sandbox.fail_next("POST", "/payments/stk", fault)
    unclear = momopay(*PROMPT, "--phone", PHONE)
    assert unclear.code == 4
    assert "do not send it again" in unclear.err
    assert pushed(sandbox) == 1


@pytest.mark.parametrize(
    "wrong",
    [
        ("--phone", "0312345678"),
        ("--phone", PHONE, "--amount", "0.5"),
        ("--phone", PHONE, "--amount", "nan"),
        ("--phone", PHONE, "--amount", "1e400"),
        ("--phone", PHONE, "--reference", "INV-1234567890"),
        ("--phone", PHONE, "--amount", "1.005"),
        (),
    ],
)
def test_wrong_arguments_exit_2_and_send_nothing(momopay: Shell, sandbox: Sandbox, wrong: tuple[str, ...]) -> None:
    assert momopay(*PROMPT, *wrong).code == 2
    assert sandbox.requests == []


LIVE = {"MOMOPAY_API_KEY": "pk_live_secret", "MOMOPAY_BASE_URL": "https://service.invalid/v1"}
ASKED = (*PROMPT, "--phone", PHONE)


def test_a_live_key_needs_consent(momopay: Shell) -> None:
    unasked = momopay.process(*ASKED, **LIVE)
    assert unasked.code == 2
    assert "--confirm-live" in unasked.err
    other = momopay.process(*ASKED, "--confirm-live", "10", **LIVE)
    assert other.code == 2
    assert "KES 10.00, and KES 100.00 may move" in other.err
    declined = momopay.at_a_terminal(ASKED, [("Type yes", "y")], **LIVE)
    assert declined.code == 1
    assert "real money will move" in declined.out
    for done in (unasked, other, declined):
        assert "secret" not in done.out + done.err


@pytest.mark.parametrize(
    ("piped", "code", "told"),
    [
        ("", 2, "nobody is there"),
        ("y\n", 1, "not confirmed"),
        ("\n", 1, "not confirmed"),
        ("100\n", 1, "not confirmed"),
        ("yes\n", 6, ""),  # the host does not exist: not to be reached is to have been let go
    ],
)
def test_a_piped_answer_must_be_typed_in_full_too(momopay: Shell, piped: str, code: int, told: str) -> None:
    done = momopay.process(*ASKED, piped=piped, **LIVE)
    assert done.code == code
    assert told in done.err
    assert done.out == ""
    assert ("Type yes to go on" in done.err) == bool(piped)


def test_a_live_key_in_a_test_run_is_refused_whatever_is_piped(momopay: Shell) -> None:
    refused = momopay(*ASKED, piped="yes\n", **LIVE, MOMOPAY_TEST_RUN="1")
    assert refused.code == 3
    assert "a live key in a test run" in refused.err


def test_an_interrupt_at_the_question_sends_nothing(momopay: Shell) -> None:
    interrupted = momopay.at_a_terminal(ASKED, [("Type yes", "\x04")], **LIVE)
    assert interrupted.code == 130
    assert "Interrupted." in interrupted.out


def test_consent_lets_a_live_prompt_go(momopay: Shell) -> None:
    """The host does not exist: not to be reached is to have been let go."""
    assert momopay.process(*ASKED, "--confirm-live", "100.00", **LIVE).code == 6
    assert momopay.at_a_terminal(ASKED, [("Type yes", "yes")], **LIVE).code == 6


def test_a_key_is_asked_for_and_not_shown(momopay: Shell, key: str, sandbox: Sandbox) -> None:
    del momopay.settings["MOMOPAY_API_KEY"]
    done = momopay.at_a_terminal(["balance"], [("API key", key)])
    assert done.code == 0
    assert "10,000.00" in done.out
    assert key not in done.out
    refused = momopay("balance")
    assert refused.code == 3
    assert "MOMOPAY_API_KEY" in refused.err
    assert len(sandbox.requests) == 1


def test_a_piped_key_is_read_and_not_shown(momopay: Shell, key: str, sandbox: Sandbox) -> None:
    del momopay.settings["MOMOPAY_API_KEY"]
    for run in (momopay, momopay.process):
        done = run("balance", piped=f"{key}\r\n")
        assert done.code == 0
        assert "10,000.00" in done.out
        assert key not in done.out + done.err
        assert "Warning" not in done.err
    for piped in ("", "\n", "  "):
        refused = momopay.process("balance", "--json", piped=piped)
        assert (refused.code, refused.out) == (3, "")
        assert "MOMOPAY_API_KEY" in json.loads(refused.err)["remedy"]
    assert len(sandbox.requests) == 2
