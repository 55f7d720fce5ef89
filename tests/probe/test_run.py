"""A whole run: every switch that reads can find, at each value, and nothing that it must not do."""

import math
from pathlib import Path
from typing import Any

import httpx
import pytest

from in_turn import in_turn, some_by_default
from momopay import APIConnectionError, Client, InvalidApiKeyError, Journal, ProtocolError, RateBudget
from momopay.probe import ROWS, Cost, Spend, probe
from momopay.sandbox import Fault, Outcome, Sandbox, phone_for
from momopay.sandbox._accounts import load_profile
from momopay.types import Lane
from probe.kit import Scene, error_response

SWITCHES = {row.name: row for row in ROWS if row.is_switch}
BUILT_IN = ("contract", "met")
MOST_VALUES = max(len(row.values) for row in SWITCHES.values())
PATHS = ("/wallets/service/balance", "/transactions", "/transactions/{id}", "/payment-wallet/channels")


def test_the_table_has_every_switch_with_its_values(scene: Scene) -> None:
    switches = scene.account.switches
    assert set(SWITCHES) == set(vars(switches))
    for name, row in SWITCHES.items():
        assert getattr(switches, name) in row.values or not row.values
        for value in row.values:
            setattr(switches, name, value)
            assert getattr(switches, name) == value
        # No other value: the sandbox refuses it, or takes it for one of these.
        with pytest.raises(ValueError, match=name):
            setattr(switches, name, "neither")


def switches_of(number: int) -> dict[str, Any]:
    """Return the switches with their first values, with their second ones, and so on; or those of a profile."""
    if number >= MOST_VALUES:
        return load_profile(BUILT_IN[number - MOST_VALUES]).model_dump()
    reachable = [row for row in SWITCHES.values() if row.values and row.cost not in {Cost.OUTSIDE, Cost.RATE}]
    return {row.name: row.values[number % len(row.values)] for row in reachable} | {
        "receipt_field": "acme_receipt",
        "channel_reads": True,  # else no channel is created
        "customer_in_reads": number < 2,
        "strict_fields": number == 2,  # elsewhere, a payout's callback URL may have a name that the SDK does not send
    }


@pytest.mark.usefixtures("few_requests")
@pytest.mark.parametrize("number", some_by_default(range(MOST_VALUES + len(BUILT_IN)), 2))
def test_a_probe_finds_each_value_and_does_again(scene: Scene, journal: Journal, tmp_path: Path, number: int) -> None:
    switches, path = switches_of(number), tmp_path / "service.toml"
    expected = {name: value for name, value in switches.items() if SWITCHES[name].cost is not Cost.OUTSIDE}
    for name in ("rate_window", "rate_limit_code"):
        expected.pop(name, None)  # test_window.py has what --rate finds
    if expected["payout_callback_field"] == "either":
        expected["payout_callback_field"] = "callbackUrl"  # the SDK sends that one
    if not switches["receipt_in_reads"]:
        expected["receipt_field"] = "unknown"
    if not switches["customer_in_reads"]:
        expected["payout_callback_field"] = "unknown"
    # An expired prompt that reads as FAILED looks like one that failed after the PIN: only watching it tells.
    if expected["expired_reads_as"] == "FAILED":
        expected["expired_reads_as"] = "unknown"
    scene.account.rate_limit = 10_000  # without a limit, no answer has headers about it
    scene.prepare(switches)
    found = scene.probe(write=True, spend=Spend(21, phone_for(Outcome.cancelled), journal))
    assert {name: found.switches[name] for name in expected} == expected
    for name, value in expected.items():
        is_seen = found.findings[name].request_ids or value in {"unknown", "empty"}
        assert is_seen or SWITCHES[name].cost is Cost.SPEND, name
    found.save(path)
    with Sandbox(speed=0, profile=path) as sandbox, Journal(f"sqlite:///{tmp_path / 'again.db'}") as other:
        again = Scene(sandbox, scene.key, sandbox.account(scene.key))
        again.account.rate_limit = 10_000
        again.prepare({"strict_fields": switches["strict_fields"]})
        second = again.probe(write=True, spend=Spend(21, phone_for(Outcome.cancelled), other))
        again.client.close()
    assert (second.changes_since(found), second.not_compared(found)) == ([], [])


def test_channels_that_cannot_be_read_stop_nothing(scene: Scene) -> None:
    scene.account.switches.channel_reads = False
    found = scene.probe(write=True)
    assert (found.switches["channel_reads"], found.switches["created_status"]) == (False, "unknown")
    assert (found.switches["transaction_not_found_status"], scene.methods) == (404, {"GET"})


@pytest.mark.parametrize(("key", "value"), [("pk_test_other", "unknown"), ("ab_test_other", "any")])
def test_of_key_prefixes_only_that_of_the_key_is_seen(tmp_path: Path, key: str, value: str) -> None:
    with Sandbox(speed=0, profile="contract") as contract:
        scene = Scene(contract, key, contract.account(key))
        found = scene.probe()
        scene.client.close()
    assert found.switches["key_prefixes"] == value
    found.save(tmp_path / "service.toml")
    with Sandbox(speed=0, profile=tmp_path / "service.toml") as again:
        assert again.account(key).switches.cursor_field == "next_cursor"


def test_what_was_not_asked_says_what_it_would_take(scene: Scene) -> None:
    found = scene.probe()
    for row in ROWS:
        if row.cost is not Cost.READS:
            finding = found.findings[row.name]
            assert (finding.value, row.cost.value.lower() in finding.sentence.lower()) == ("unknown", True)
    assert "--spend" in found.findings["naming"].sentence
    assert (list(found.findings), scene.methods, scene.notes) == ([row.name for row in ROWS], {"GET"}, [])
    assert len(scene.sent) <= 20
    scene.prompt(Outcome.success)
    scene.probe()
    assert len(scene.sent) <= 20


def test_endpoints_that_fail_are_facts(scene: Scene) -> None:
    for path in PATHS:
        scene.sandbox.fail_next("GET", path, Fault.html_502, times=100)
    found = scene.probe()
    failed = ("balance_read", "channels_read", "list_read", "transaction_not_found")
    assert [found.facts[name] for name in failed] == ["502 with a body that is no envelope"] * 4
    assert found.facts["unknown_path"] == "404 NOT_FOUND"
    assert found.facts["invalid_cursor"] == "unknown"  # the list fails in any case
    assert len(scene.sent) < 30  # a service that is down is not asked three times about each row


def test_a_failure_that_passes_is_asked_about_again(scene: Scene) -> None:
    scene.sandbox.fail_next("GET", "/transactions/{id}", Fault.error_before_commit)
    assert (scene.probe().switches["transaction_not_found_status"], scene.time.slept) == (404, [2.0])


def test_a_refused_key_ends_it(scene: Scene) -> None:
    with (
        Client("ab_test_revoked", base_url=scene.sandbox.base_url, budget=None) as client,
        pytest.raises(InvalidApiKeyError),
    ):
        probe(client)
    assert len(scene.sandbox.requests) == 3  # a key may be without the right to read one of them


@in_turn(
    ("path", "name"),
    [
        *(("/wallets", "balance_read"), ("/channels", "channels_read"), ("/transactions?limit=100", "list_read")),
        *(("/momopay-probe", "unknown_path"), ("cursor=", "invalid_cursor")),
    ],
)
def test_a_401_on_one_path_is_a_fact_about_it(scene: Scene, path: str, name: str) -> None:
    scene.answer("GET", path, lambda: error_response(401, "NO_RIGHT"))
    found = scene.probe()
    assert (found.facts[name], found.switches["transaction_not_found_status"]) == ("401 NO_RIGHT", 404)


def test_a_key_that_is_revoked_meanwhile_keeps_what_was_found(scene: Scene) -> None:
    scene.prompt(Outcome.success)

    def revoked(_request: httpx.Request) -> httpx.Response | None:
        asked = any("cursor" in str(request.query) for request in scene.sandbox.requests)
        return error_response(401, "INVALID_API_KEY") if asked else None

    scene.service.instead = revoked
    with pytest.raises(InvalidApiKeyError):
        scene.probe(write=True)
    assert scene.saved[-1].about["asked"] == ["reads"], "nothing is written then"
    assert scene.saved[-1].switches["transaction_not_found_status"] == 404
    assert scene.saved[-1].facts["invalid_amount_filter"] == "unknown"  # not "401 ..."


@pytest.mark.parametrize(("status", "error"), [(503, APIConnectionError), (200, ProtocolError)])
def test_pages_of_a_proxy_are_not_written_to(scene: Scene, status: int, error: type[Exception]) -> None:
    methods: list[str] = []

    def page(request: httpx.Request) -> httpx.Response:
        methods.append(request.method)
        return httpx.Response(status, content=b"<html>")

    scene.service.instead = page
    with pytest.raises(error, match=str(status)):
        scene.probe(write=True)
    assert (set(methods), scene.saved) == ({"GET"}, [])


def test_the_rate_budget_is_kept_to(scene: Scene) -> None:
    taken: list[Lane] = []

    class Counted(RateBudget):
        def reserve(self, now: float, lane: Lane, within: float = math.inf) -> float:
            taken.append(lane)
            return super().reserve(now, lane, within)

    probe(scene.client.with_options(budget=Counted()))
    assert (len(taken), set(taken)) == (len(scene.sandbox.requests), {Lane.READ})


@pytest.mark.parametrize(("budget", "slept"), [(None, [60.0]), (RateBudget(), pytest.approx([60.0, 1.0], abs=0.01))])
def test_a_429_is_waited_for(scene: Scene, budget: RateBudget | None, slept: Any) -> None:
    scene.account.rate_limit = 10
    assert probe(scene.client.with_options(budget=budget)).facts["invalid_amount_filter"] == "400 VALIDATION_ERROR"
    assert scene.time.slept == slept


@pytest.mark.usefixtures("few_requests")
@pytest.mark.parametrize(
    "stop", [KeyboardInterrupt(), APIConnectionError("gone")], ids=lambda stop: type(stop).__name__
)
def test_each_step_saves(scene: Scene, journal: Journal, stop: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise stop

    monkeypatch.setattr(type(scene.client.stk), "collect_once", fail)
    with pytest.raises(type(stop)):
        scene.probe(write=True, rate=True, spend=Spend(1, phone_for(Outcome.success), journal))
    assert [len(profile.about["asked"]) for profile in scene.saved][:3] == [1, 2, 3]
    assert scene.saved[-1].switches["delete_answer"] == "envelope"
    # An error of one step does not keep it from the next.
    assert ("rate" in scene.saved[-1].about["asked"]) is not isinstance(stop, KeyboardInterrupt)
