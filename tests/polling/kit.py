"""A service whose transactions end at given times, and both clients in virtual time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from math import inf
from typing import Any
from urllib.parse import parse_qs, urlsplit

import anyio
import httpx
import trio
import trio.testing

from momopay import AsyncClient, Client, Lane, RateBudget
from scale.simulation import TrioIO
from virtual import VirtualIO, envelope, install_backend, refusal, transaction, virtual_client

BASE = "https://api.example/v1"
OVERVIEW = {"total": 0, "completed": 0, "failed": 0, "pending": 0}
START = datetime(2026, 11, 20, 10, tzinfo=UTC)
WINDOW = 61.0
"""The window of a `RateBudget`, seconds."""


class Service:
    """Transactions whose status is a function of time. Each one is a second newer than the one before."""

    def __init__(self) -> None:
        self.moves: dict[str, list[tuple[float, str]]] = {}
        self.fields: dict[str, dict[str, Any]] = {}
        self.unlisted: set[str] = set()
        self.failures: list[tuple[int, Any]] = []
        """What the next requests are answered, instead."""
        self.broken: dict[str, tuple[int, Any]] = {}
        """What reads of these transactions are always answered, instead."""
        self.requests: list[tuple[float, str]] = []
        self.clock: Callable[[], float] = lambda: 0.0

    def add(self, identity: str, *moves: tuple[float, str], **fields: Any) -> str:
        created = START + timedelta(seconds=len(self.moves))
        self.moves[identity] = list(moves)
        self.fields[identity] = {"createdAt": created.isoformat(), **fields}
        return identity

    def add_many(self, count: int, *moves: tuple[float, str], prefix: str = "t") -> list[str]:
        return [self.add(f"{prefix}{number}", *moves) for number in range(count)]

    @property
    def paths(self) -> list[str]:
        return [path for _, path in self.requests]

    @property
    def times(self) -> list[float]:
        return [when for when, _ in self.requests]

    def record(self, identity: str) -> dict[str, Any]:
        status = next((move for when, move in reversed(self.moves[identity]) if self.clock() >= when), "PENDING")
        return transaction(identity, status, **self.fields[identity])

    def __call__(self, method: str, target: str) -> tuple[int, Any]:
        path, query = urlsplit(target).path, parse_qs(urlsplit(target).query)
        cursor = query.pop("cursor", [""])[0]
        self.requests.append((round(self.clock(), 2), f"{path}?{cursor}" if cursor else path))
        if self.failures:
            return self.failures.pop(0)
        if path == "/transactions":
            assert query == {"limit": ["100"]}  # a page of the newest, whatever their status
            return 200, envelope(self.page(int(cursor or 0)))
        identity = path.rpartition("/")[2]
        if identity in self.broken:
            return self.broken[identity]
        if identity not in self.moves:
            return 404, refusal("TRANSACTION_NOT_FOUND")
        return 200, envelope(self.record(identity) | {"resultCode": "0", "resultDesc": "done"})

    def page(self, start: int) -> dict[str, Any]:
        listed = [identity for identity in reversed(self.moves) if identity not in self.unlisted]
        return {
            "items": [self.record(identity) for identity in listed[start : start + 100]],
            "overview": OVERVIEW,
            "nextCursor": str(start + 100) if start + 100 < len(listed) else None,
        }

    def respond(self, request: httpx.Request) -> httpx.Response:
        """Answer as a transport of httpx does."""
        status, answer = self("GET", str(request.url).partition("/v1")[2])
        return (
            httpx.Response(status, content=answer) if isinstance(answer, bytes) else httpx.Response(status, json=answer)
        )


class CountingBudget(RateBudget):
    """A budget that knows which lanes were asked for, and fails a test that asks without end."""

    def __init__(self) -> None:
        super().__init__()
        self.lanes: list[Lane] = []

    def reserve(self, now: float, lane: Lane, within: float = inf) -> float:
        self.lanes.append(lane)
        assert len(self.lanes) < 500
        return super().reserve(now, lane, within)


def waiting_client(service: Service, **options: Any) -> tuple[Client, VirtualIO]:
    """Return a blocking client in virtual time that begins at 0; without a budget unless one is given."""
    client, backend = virtual_client(service, **options)
    service.clock = lambda: backend.clock - 1000.0
    return client, backend


def slow_client(service: Service, seconds: float) -> Client:
    """Return a blocking client in virtual time, each of whose requests takes so long, as if it queued for its slot."""
    client, backend = waiting_client(service)

    def respond(method: str, path: str) -> tuple[int, Any]:
        backend.clock += seconds
        return service(method, path)

    backend.handler = respond
    return client


def in_trio(
    service: Service,
    work: Callable[[AsyncClient], Awaitable[None]],
    budget: RateBudget | None = None,
    transport: httpx.AsyncBaseTransport | None = None,
) -> float:
    """Run tasks in virtual time that begins at 0; return how long they took."""

    async def main() -> float:
        begun = trio.current_time()
        service.clock = lambda: trio.current_time() - begun
        async with AsyncClient("pk_test_polling", base_url=BASE, budget=budget) as client:
            install_backend(client, TrioIO(transport or httpx.MockTransport(service.respond)))
            await work(client)
        return service.clock()

    return trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


async def wait_for_each(client: AsyncClient, identities: list[str], **options: Any) -> None:
    """Wait for each transaction in a task of its own."""
    async with anyio.create_task_group() as tasks:
        for identity in identities:

            async def wait(identity: str = identity) -> None:
                await client.transactions.wait(identity, **options)

            tasks.start_soon(wait)


def callback(identity: str, status: str) -> bytes:
    """Return the body of a callback."""
    return (
        f'{{"event_type": "transaction.{status.lower()}", "transaction": {{"id": "{identity}", "type": "STK",'
        f' "status": "{status}", "amount": 100, "phone_number": "254712345678",'
        ' "created_at": "2026-11-20T10:00:00Z", "updated_at": "2026-11-20T10:00:00Z"}}'
    ).encode()
