"""`momopay listen` in a terminal: what it shows, how it ends, and what it refuses. The rules are the listener's."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest

from cli.kit import NORMALISED, PHONE, Shell, signalling
from momopay import CallbackSigner, Client
from momopay.sandbox import Sandbox
from sandbox.kit import Receiver

SECRET = "0123456789abcdef0123"


def once_forwarded(client: Client, sandbox: Sandbox, receiver: Receiver) -> Callable[[], bool]:
    """Make a payment once the command has polled, and return whether its end has been forwarded and shown."""
    paid, polls_when_forwarded = list[str](), list[int]()

    def polls() -> int:
        return [request.path for request in sandbox.requests].count("/transactions")

    def holds() -> bool:
        if polls() and not paid:
            paid.append(client.stk.initiate(amount=5, phone=PHONE, account_reference=PHONE).transaction_id)
            sandbox.advance(60)
        if receiver.bodies and not polls_when_forwarded:
            polls_when_forwarded.append(polls())
        # The command has not read the answer yet when the application has the body. It polls again once it has.
        return bool(polls_when_forwarded) and polls() > polls_when_forwarded[0]

    return holds


def test_an_end_is_shown_until_ctrl_c(momopay: Shell, client: Client, sandbox: Sandbox, receiver: Receiver) -> None:
    receiver.answer = lambda _body: 503
    with signalling([signal.SIGINT], once_forwarded(client, sandbox, receiver)):
        done = momopay("listen", "--forward-to", receiver.url, "--every", "1")
    assert done.code == 130
    (body,) = receiver.bodies
    line, summary = done.out.splitlines()
    assert body["transaction"]["id"] in line
    assert line.endswith("SUCCESS  503; again in 10 s")
    assert summary == "0 ends acknowledged, 1 deliveries without a 2xx response"
    assert "not signed" in done.err
    assert NORMALISED not in done.out + done.err
    assert PHONE not in done.out + done.err


def test_the_same_for_a_machine_with_a_signed_url(
    momopay: Shell, client: Client, sandbox: Sandbox, receiver: Receiver
) -> None:
    secret = {"SHOP_SECRET": SECRET}
    command = ("listen", "--forward-to", receiver.url, "--every", "1", "--secret-env", "SHOP_SECRET", "--json")
    with signalling([signal.SIGINT], once_forwarded(client, sandbox, receiver)):
        done = momopay(*command, **secret)
    assert done.code == 130
    delivery, summary = done.lines
    assert summary == {"acknowledged": 1, "failed": 0}
    assert (delivery["status"], delivery["http_status"], delivery["attempt"]) == ("SUCCESS", 200, 1)
    assert CallbackSigner(SECRET).verify(receiver.paths[0]) == PHONE
    assert "momo_token" not in done.out + done.err


@pytest.mark.parametrize("url", ["https://shop.example/momo", "http://192.168.1.4/momo", "ftp://localhost/x"])
def test_only_this_machine(momopay: Shell, sandbox: Sandbox, url: str) -> None:
    refused = momopay("listen", "--forward-to", url)
    assert refused.code == 2
    assert "--forward-to: " in refused.err
    assert ("--allow-host" if "this machine" in refused.err else "give one") in refused.err
    assert sandbox.requests == []


@pytest.mark.parametrize(
    ("option", "value"), [("--since", "yesterday"), ("--every", "0.5"), ("--secret-env", "NOT_SET")]
)
def test_what_else_is_refused(momopay: Shell, sandbox: Sandbox, receiver: Receiver, option: str, value: str) -> None:
    refused = momopay("listen", "--forward-to", receiver.url, option, value)
    assert refused.code == 2
    assert option in refused.err
    assert sandbox.requests == []


@pytest.mark.usefixtures("no_backoff")
def test_a_live_key_is_said_to_be_one(momopay: Shell, receiver: Receiver) -> None:
    live = {"MOMOPAY_API_KEY": "pk_live_abcdef", "MOMOPAY_BASE_URL": "https://api.invalid/v1"}
    done = momopay("listen", "--forward-to", receiver.url, "--allow-host", "shop.example", **live)
    assert done.code == 6
    assert "real payments" in done.err
    assert "Nothing but reads" in done.err
