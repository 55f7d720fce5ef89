"""A whole run: every switch that it can reach, at each value, and nothing that it must not do."""

from __future__ import annotations

import math
import typing
from pathlib import Path
from typing import Any

import pytest

from momopay import APIConnectionError, Client, InvalidApiKeyError, Journal, Lane, RateBudget
from momopay.probe import ROWS, Cost, Spend, probe
from momopay.sandbox import Fault, Outcome, Sandbox, Switches, phone_for
from probe.kit import Scene
from virtual import install_backend

OTHER = Switches(
    naming="snake_case",
    cancel_ends_as="FAILED",
    fee_refunded_on_failure=True,
    strict_fields=True,
    rate_window="sliding",
    created_status=201,
    delete_answer="empty",
    immutable_channel_fields="ignore",
    patch_unknown_channel="TRANSACTION_NOT_FOUND",
    transaction_not_found_status=400,
    list_phone="masked",
    list_amount="with_fee",
    list_type="lower",
    list_times="local",
)
"""Every switch that a probe can reach, and not as it is by default."""

SWITCHES = {row.name: row for row in ROWS if row.is_switch}


def reached(cost: Cost) -> list[tuple[str, Any]]:
    return [(row.name, value) for row in SWITCHES.values() if row.cost is cost for value in row.values]


def test_the_table_has_every_switch_with_its_values() -> None:
    assert set(SWITCHES) == set(Switches.model_fields)
    for name, field in Switches.model_fields.items():
        choices = typing.get_args(field.annotation) if typing.get_origin(field.annotation) is typing.Literal else ()
        allowed = {False, True} if field.annotation is bool else set(choices)
        assert set(SWITCHES[name].values) == allowed


@pytest.mark.parametrize(("name", "value"), reached(Cost.READS))
def test_a_read_finds_the_value_of_a_switch(scene: Scene, name: str, value: Any) -> None:
    setattr(scene.account.switches, name, value)
    for outcome in (Outcome.cancelled, Outcome.expired, Outcome.success):
        scene.prompt(outcome)
    # An expired prompt that reads as FAILED looks like one that failed after the PIN: only watching it tells.
    expected = "unknown" if (name, value) == ("expired_reads_as", "FAILED") else value
    found = scene.probe()
    assert found.switches[name] == expected
    assert found.findings[name].request_ids or expected == "unknown"


def test_what_was_not_asked_says_what_it_would_take(scene: Scene) -> None:
    found = scene.probe()
    for row in ROWS:
        if row.cost is not Cost.READS:
            finding = found.findings[row.name]
            assert finding.value == "unknown"
            assert row.cost.value.lower() in finding.sentence.lower()
    assert found.switches["naming"] == "unknown"
    assert "--spend" in found.findings["naming"].sentence
    assert list(found.findings) == [row.name for row in ROWS]
    assert scene.methods == {"GET"}
    assert scene.notes == []
    assert len(scene.sent) <= 30


def test_any_answer_is_tolerated(scene: Scene) -> None:
    for path in ("/wallets/service/balance", "/transactions", "/transactions/{id}", "/payment-wallet/channels"):
        scene.sandbox.fail_next("GET", path, Fault.html_502, times=100)
    found = scene.probe()
    assert {name: value for name, value in found.facts.items() if value != "unknown"} == {
        "request_id": "always a UUID",
        "rate_headers": [],
        "deprecation_headers": [],
        "unknown_path": "404 NOT_FOUND",
    }
    assert "502 with a body that is no envelope" in found.findings["invalid_cursor"].sentence
    assert len(scene.sent) < 30  # a service that is down is not asked three times about each row


def test_a_failure_that_passes_is_asked_about_again(scene: Scene) -> None:
    scene.sandbox.fail_next("GET", "/transactions/{id}", Fault.error_before_commit)
    assert scene.probe().switches["transaction_not_found_status"] == 404
    assert scene.time.slept == [2.0]


def test_a_refused_key_ends_it(scene: Scene) -> None:
    with (
        Client("pk_test_", base_url=scene.sandbox.base_url, budget=None) as client,
        pytest.raises(InvalidApiKeyError),
    ):
        probe(client)
    assert len(scene.sandbox.requests) == 1


def test_a_service_that_is_not_there_ends_it(scene: Scene) -> None:
    with Client(scene.key, base_url="http://127.0.0.1:1/v1", budget=None) as client:
        install_backend(client, scene.time)
        with pytest.raises(APIConnectionError):
            probe(client)


def test_the_rate_budget_is_kept_to(scene: Scene) -> None:
    taken: list[Lane] = []

    class Counted(RateBudget):
        def reserve(self, now: float, lane: Lane, within: float = math.inf) -> float:
            taken.append(lane)
            return super().reserve(now, lane, within)

    probe(scene.client.with_options(budget=Counted()))
    assert len(taken) == len(scene.sandbox.requests)
    assert set(taken) == {Lane.READ}


def test_a_429_is_waited_for(scene: Scene) -> None:
    scene.account.rate_limit = 10
    found = scene.probe()
    assert found.facts["invalid_amount_filter"] == "400 VALIDATION_ERROR"
    assert scene.time.slept == [60.0]


def test_a_sandbox_with_the_profile_is_probed_to_the_same(scene: Scene, journal: Journal, tmp_path: Path) -> None:
    scene.account.switches = OTHER
    scene.account.rate_limit = 60
    path = tmp_path / "service.toml"
    first = scene.probe(write=True, rate=True, spend=Spend(1, phone_for(Outcome.cancelled), journal))
    first.save(path)
    with Sandbox(speed=0, profile=path) as sandbox, Journal(f"sqlite:///{tmp_path / 'again.db'}") as other:
        again = Scene(sandbox, scene.key, sandbox.account(scene.key))
        second = again.probe(write=True, rate=True, spend=Spend(1, phone_for(Outcome.cancelled), other))
        again.client.close()
    assert second.changes_since(first) == []
    assert second.not_compared(first) == []
    known = {name: value for name, value in second.switches.items() if value != "unknown"}
    assert known == {name: getattr(OTHER, name) for name in known}
    assert len(known) == 14
