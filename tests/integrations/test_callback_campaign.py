"""A storm of callbacks, sync and async handlers: one effect for each genuine one. Without a safety the check fails."""

import asyncio
import logging
import os
import time
from collections.abc import Generator
from contextlib import contextmanager
from random import SystemRandom
from typing import Any

import pytest

from integrations.storm import Deliver, Storm
from momopay import Journal
from momopay.integrations._receiver import CallbackReceiver

SEED = int(os.environ.get("MOMOPAY_SEED") or SystemRandom().randrange(2**32))


@contextmanager
def blocking(storm: Storm, signer: Any = None, journal: Journal | None = None) -> Generator[Deliver]:
    receive = CallbackReceiver(storm.effects.handle, signer, journal).receive
    yield lambda query, body: receive("POST", query, body)


@contextmanager
def awaited(storm: Storm, signer: Any = None, journal: Journal | None = None) -> Generator[Deliver]:
    receive = CallbackReceiver(storm.effects.handle_async, signer, journal).receive_async
    with asyncio.Runner() as runner:
        yield lambda query, body: runner.run(receive("POST", query, body))


ways = pytest.mark.parametrize("way", [blocking, awaited])


@pytest.fixture
def seed(caplog: pytest.LogCaptureFixture) -> int:
    caplog.set_level(logging.CRITICAL, "momopay")  # each callback that is refused is logged there
    print(f"MOMOPAY_SEED={SEED}")  # noqa: T201  what replays a failure
    return SEED


def run(storm: Storm, way: Any, journal: Journal) -> None:
    begun = time.perf_counter()
    statuses = storm.blow(lambda: way(storm, storm.signer, journal))
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
    storm.blow(lambda: way(storm, journal=journal))
    assert set(storm.wrong()) - storm.genuine
    assert {count for key, count in storm.effects.counted.items() if key in storm.genuine} == {1}
    storm = Storm(seed, 500)
    storm.blow(lambda: way(storm, storm.signer))
    assert set(storm.wrong()) <= storm.genuine
    assert max(storm.wrong().values()) > 1
