"""A storm of callbacks, sync and async handlers: one effect for each genuine one. Without a safety the check fails."""

import logging
import os
import time
from random import SystemRandom
from typing import Any

import pytest

from integrations.kit import awaited, blocking
from integrations.storm import Storm
from momopay import Journal

SEED = int(os.environ.get("MOMOPAY_SEED") or SystemRandom().randrange(2**32))


ways = pytest.mark.parametrize("way", [blocking, awaited])


@pytest.fixture
def seed(caplog: pytest.LogCaptureFixture) -> int:
    caplog.set_level(logging.CRITICAL, "momopay")  # each callback that is refused is logged there
    print(f"MOMOPAY_SEED={SEED}")  # noqa: T201  what replays a failure
    return SEED


def run(storm: Storm, way: Any, journal: Journal) -> None:
    begun = time.perf_counter()
    statuses = storm.blow(way(storm.effects, storm.signer, journal))
    seconds = time.perf_counter() - begun
    print(f"{len(storm.sent)} callbacks, {len(storm.genuine)} genuine, in {seconds:.0f} s: {sorted(statuses.items())}")  # noqa: T201  the report
    assert storm.wrong() == {}
    by_kind = {kind: {status for of, status in statuses if of == kind} for kind, _ in statuses}
    assert by_kind["forged"] == by_kind["replayed"] == {403}
    assert by_kind["garbage"] == {400}
    assert by_kind["genuine"] | by_kind["duplicate"] <= {200, 500, 503}


@ways
def test_each_genuine_callback_has_one_effect(way: Any, seed: int, journal: Journal) -> None:
    run(Storm(seed, 700), way, journal)


@pytest.mark.campaign
@ways
def test_each_of_many_genuine_callbacks_has_one_effect(way: Any, seed: int, journal: Journal) -> None:
    run(Storm(seed, int(os.environ.get("MOMOPAY_STORM") or 100_000)), way, journal)


@ways
def test_the_check_fails_without_a_signer_and_without_a_journal(way: Any, seed: int, journal: Journal) -> None:
    storm = Storm(seed, 200)
    storm.blow(way(storm.effects, None, journal))
    assert set(storm.wrong()) - storm.genuine
    assert {count for key, count in storm.effects.counted.items() if key in storm.genuine} == {1}
    storm = Storm(seed, 500)
    storm.blow(way(storm.effects, storm.signer, None))
    assert set(storm.wrong()) <= storm.genuine
    assert max(storm.wrong().values()) > 1
