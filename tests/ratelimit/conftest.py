"""A server for all tests of the folder, one of its own for a test that breaks it, and clients of shared budgets."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import pytest

from momopay import RedisRateBudget
from ratelimit.kit import Caller
from redis_server import RedisServer, need_redis


@pytest.fixture(scope="session")
def server() -> Iterator[RedisServer]:
    need_redis()
    with RedisServer() as running:
        yield running


@pytest.fixture
def own_server() -> Iterator[RedisServer]:
    need_redis()
    with RedisServer() as running:
        yield running


@pytest.fixture
def account_hash() -> str:
    return uuid4().hex


@pytest.fixture
def caller(account_hash: str) -> Iterator[Callable[..., Caller]]:
    """Make a process's place at the budget of one account; each call stands for another process."""
    callers: list[Caller] = []

    def make(given: Any, *, is_async: bool = False, **options: Any) -> Caller:
        callers.append(Caller(RedisRateBudget(given, **options), account_hash, is_async=is_async))
        return callers[-1]

    yield make
    for each in callers:
        each.close()
