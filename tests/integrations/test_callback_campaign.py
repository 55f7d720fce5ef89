"""A storm of callbacks through each adapter: one effect for each genuine one. Without a safety the check fails."""

import asyncio
import logging
import os
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from random import SystemRandom
from typing import Any

import httpx
import pytest

from integrations.apps import django_wsgi_app, fastapi_app, flask_app
from integrations.storm import Deliver, Storm
from momopay import Journal

SEED = int(os.environ.get("MOMOPAY_SEED") or SystemRandom().randrange(2**32))


def through_wsgi(app: Any) -> Any:
    @contextmanager
    def connect() -> Generator[Deliver]:
        with httpx.Client(transport=httpx.WSGITransport(app), base_url="http://127.0.0.1") as http:
            yield lambda query, body: http.post(f"/momo?{query}", content=body).status_code

    return connect


def through_asgi(app: Any) -> Any:
    @contextmanager
    def connect() -> Generator[Deliver]:
        http = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1")
        with asyncio.Runner() as runner:
            yield lambda query, body: runner.run(http.post(f"/momo?{query}", content=body)).status_code
            runner.run(http.aclose())

    return connect


def by_fastapi(storm: Storm, **options: Any) -> Any:
    return through_asgi(fastapi_app(storm.effects.handle_async, **options))


def by_flask(storm: Storm, **options: Any) -> Any:
    return through_wsgi(flask_app(storm.effects.handle, **options))


def by_django(storm: Storm, **options: Any) -> Any:
    return through_wsgi(django_wsgi_app(storm.effects.handle, **options))


ADAPTERS = pytest.mark.parametrize("by", [by_fastapi, by_flask, by_django], ids=["fastapi", "flask", "django"])


@pytest.fixture
def seed(caplog: pytest.LogCaptureFixture) -> int:
    for name in ("momopay", "django.request"):
        caplog.set_level(logging.CRITICAL, name)  # each callback that is refused is logged there
    print(f"MOMOPAY_SEED={SEED}")  # noqa: T201  what replays a failure
    return SEED


def run(storm: Storm, by: Callable[..., Any], journal: Journal) -> None:
    begun = time.perf_counter()
    statuses = storm.blow(by(storm, signer=storm.signer, journal=journal))
    seconds = time.perf_counter() - begun
    print(f"{len(storm.sent)} callbacks, {len(storm.genuine)} genuine, in {seconds:.0f} s: {sorted(statuses.items())}")  # noqa: T201  the report
    assert storm.wrong() == {}
    by_kind = {kind: {status for of, status in statuses if of == kind} for kind, _ in statuses}
    assert by_kind["forged"] == by_kind["replayed"] == {403}
    assert by_kind["garbage"] == {400}
    assert by_kind["genuine"] | by_kind["duplicate"] <= {200, 500, 503}


@ADAPTERS
def test_each_genuine_callback_has_one_effect(by: Any, seed: int, journal: Journal) -> None:
    run(Storm(seed, 700), by, journal)


@pytest.mark.campaign
@ADAPTERS
def test_each_of_many_genuine_callbacks_has_one_effect(by: Any, seed: int, journal: Journal) -> None:
    run(Storm(seed, int(os.environ.get("MOMOPAY_STORM") or 100_000)), by, journal)


@ADAPTERS
def test_without_a_signer_the_check_fails(by: Any, seed: int, journal: Journal) -> None:
    storm = Storm(seed, 200)
    storm.blow(by(storm, journal=journal))
    assert set(storm.wrong()) - storm.genuine
    assert {count for key, count in storm.effects.counted.items() if key in storm.genuine} == {1}


@ADAPTERS
def test_without_a_journal_the_check_fails(by: Any, seed: int) -> None:
    storm = Storm(seed, 500)
    storm.blow(by(storm, signer=storm.signer))
    assert set(storm.wrong()) <= storm.genuine
    assert max(storm.wrong().values()) > 1
