"""The safety rules broken on purpose: the counting server then sees what they prevent, so the counting can fail."""

import dataclasses
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import pytest

import momopay
import wire
from core.kit import create_channel, initiate_payout, initiate_stk
from drivers import Drive, unique_key
from momopay._core import retry as _retry
from momopay._core.endpoint import Endpoint
from momopay.resources import channels, payouts, stk
from wire import Server, Step

pytestmark = pytest.mark.usefixtures("no_backoff")


def paid(drive: Drive, server: Server, call: Callable[[Any], Any], **options: Any) -> int:
    """How many payments the server counts after one call, however it ends."""
    driver = drive(base_url=server.base_url, api_key=unique_key(), **options)
    try:
        driver(call)
    except momopay.MomoPayError:
        assert server.requests
    return server.payments


SENT_ONCE = {
    "stk": (initiate_stk, stk, "INITIATE"),
    "payout": (initiate_payout, payouts, "INITIATE"),
    "create": (create_channel, channels, "CREATE"),
}
REPEATS_ALL = dataclasses.replace(_retry.SAFE, retries_on=frozenset(_retry.FailureKind))
LOST = wire.resets(commits=True)
GARBLED = wire.Step(wire.html(200).play, commits=True)


@pytest.mark.parametrize(("policy", "step"), [(_retry.SAFE, LOST), (REPEATS_ALL, GARBLED)], ids=["lost", "garbled"])
@pytest.mark.parametrize(("call", "module", "name"), SENT_ONCE.values(), ids=SENT_ONCE)
def test_the_rule_of_a_payment_is_what_keeps_it_from_being_paid_twice(
    drive: Drive,
    monkeypatch: pytest.MonkeyPatch,
    call: Callable[[Any], Any],
    module: Any,
    name: str,
    policy: _retry.RetryPolicy,
    step: Step,
) -> None:
    with patch.object(Endpoint, "__post_init__"):  # which refuses such a rule
        monkeypatch.setattr(module, name, dataclasses.replace(getattr(module, name), retry_policy=policy))
    with wire.serve(step, wire.succeeds()) as server:
        assert paid(drive, server, call) > 1
