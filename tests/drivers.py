"""One client of either kind, used alike."""

import asyncio
import inspect
import os
from collections.abc import Callable
from typing import Any, TypeAlias
from uuid import uuid4

import httpx

import momopay
from bodies import envelope, wallet

Drive: TypeAlias = "Callable[..., Driver]"
"""Makes a driver with these options of its client, and closes it after the test."""
KEY = "pk_test_0123456789"
PROFILE = os.environ.get("MOMOPAY_SANDBOX_PROFILE") or None
"""The profile of the sandboxes of tests/durable and tests/examples; other tests expect that there is none."""
LOOPBACK = "http://127.0.0.1:1/v1"


def unique_key() -> str:
    """Give a key whose budget and account nobody else uses."""
    return f"pk_test_{uuid4().hex}"


def learn_key(journal: momopay.Journal, base_url: str) -> None:
    """Have a journal know whose `KEY` is, so that the next durable call begins with what it sends."""
    own = wallet(tenantId="0c9f8a34-5a37-4f5e-8a37-0f1a2b3c4d5e")  # that of tests/wire.py
    answer = httpx.Response(200, json=envelope(own))
    transport = httpx.MockTransport(lambda _request: answer)
    with momopay.Client(KEY, base_url=base_url, budget=None, transport=transport) as client:
        journal.reconcile_all(client)


def session_of(client: Any) -> Any:
    """Return what the copies of a client share, for what no public name shows."""
    return client._session


class Driver:
    def __init__(self, client_kind: str, **options: Any) -> None:
        options = {"api_key": KEY, "base_url": "https://api.example/v1", "budget": None, **options}
        self.client_kind = client_kind
        self._runner = asyncio.Runner() if client_kind == "async" else None
        kind: Any = momopay.AsyncClient if client_kind == "async" else momopay.Client
        self.client: Any = kind(**options)

    def __call__(self, use: Callable[[Any], Any]) -> Any:
        if self._runner is None:
            return use(self.client)
        return self._runner.run(_awaited(use, self.client))

    def collect(self, use: Callable[[Any], Any]) -> list[Any]:
        if self._runner is None:
            return list(use(self.client))
        return self._runner.run(_collected(use, self.client))

    def close(self) -> None:
        if self._runner is None:
            self.client.close()
        else:
            self._runner.run(self.client.aclose())
            self._runner.close()


def hasty(use: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Make a call that does not wait long for what a server leaves hanging, and long enough for a busy one."""
    return lambda client: use(client.with_options(timeout=0.5))


async def _awaited(use: Callable[[Any], Any], client: Any) -> Any:
    result = use(client)
    return await result if inspect.isawaitable(result) else result


async def _collected(use: Callable[[Any], Any], client: Any) -> list[Any]:
    return [each async for each in use(client)]
