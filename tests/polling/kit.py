"""A service whose transactions end at given times, and both clients in virtual time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any
from urllib.parse import parse_qs, urlsplit

import anyio
import httpx
import trio

from bodies import envelope, page, refusal, transaction
from drivers import Driver, unique_key
from journal.records import callback
from momopay import AsyncClient, Callback, Client, MomoPayError, RateBudget, Transaction
from scale.simulation import TrioIO, in_virtual_time
from virtual import VirtualIO, install_backend, virtual_client, waking

BASE = "https://api.example/v1"
START = datetime(2026, 11, 20, 10, tzinfo=UTC)
MakeSdk = Callable[..., "Sdk"]
WINDOW = 61.0  # the window of a `RateBudget`, seconds


class TimedService:
    """Transactions whose status is a function of time. Each one is a second newer than the one before."""

    def __init__(self) -> None:
        self.moves: dict[str, list[tuple[float, str]]] = {}
        self.fields: dict[str, dict[str, Any]] = {}
        self.unlisted: set[str] = set()
        self.failures: list[tuple[int, Any]] = []  # what the next requests are answered, instead
        self.broken: dict[str, tuple[int, Any]] = {}  # what reads of these transactions are always answered, instead
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
        if method == "POST":  # a prompt: it is the first transaction
            return 200, envelope(self.record(next(iter(self.moves))))
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
        items = [self.record(identity) for identity in listed[start : start + 100]]
        return page(items, str(start + 100) if start + 100 < len(listed) else None)

    def respond(self, request: httpx.Request) -> httpx.Response:
        """Answer as a transport of httpx does."""
        status, answer = self("GET", str(request.url).partition("/v1")[2])
        return (
            httpx.Response(status, content=answer) if isinstance(answer, bytes) else httpx.Response(status, json=answer)
        )


def waiting_client(service: TimedService, **options: Any) -> tuple[Client, VirtualIO]:
    """Return a blocking client in virtual time that begins at 0; without a budget unless one is given."""
    client, backend = virtual_client(service, **options)
    service.clock = lambda: backend.clock - 1000.0
    return client, backend


class AsyncVirtualIO(VirtualIO):
    """The same virtual time for an asynchronous client, on any event loop."""

    is_async = True

    def bind_to_loop(self) -> None:
        pass


class Sdk(Driver):
    """A client of either kind, in virtual time that begins at 0."""

    def __init__(self, client_kind: str, service: TimedService, **options: Any) -> None:
        super().__init__(client_kind, api_key=unique_key(), **options)
        self._backend = VirtualIO(service) if client_kind == "blocking" else AsyncVirtualIO(service)
        self._clock = service.clock = lambda: self._backend.clock - 1000.0
        install_backend(self.client, self._backend)

    def at(self, seconds: float, action: Callable[[Any], None]) -> None:
        self._backend.at(seconds, waking(lambda: action(self.client)))

    def ends(self, *ids: Any, **options: Any) -> list[tuple[float, Transaction]]:
        """Wait for many, and return when each one ended; `ended` has them even if the iteration raises."""
        ends = self.client.transactions.wait_all(ids, **options)
        self.ended = list[tuple[float, Transaction]]()
        if self.client_kind == "blocking":
            for each in ends:
                self.ended.append((self._clock(), each))
            return self.ended

        async def collect(_client: Any) -> None:
            async for each in ends:
                self.ended.append((self._clock(), each))

        self(collect)
        return self.ended


def in_trio(
    service: TimedService,
    work: Callable[[AsyncClient], Awaitable[Any]],
    budget: RateBudget | None = None,
    transport: httpx.AsyncBaseTransport | None = None,
    **options: Any,
) -> float:
    """Run tasks in virtual time that begins at 0; return how long they took."""

    async def main() -> float:
        begun = trio.current_time()
        service.clock = lambda: trio.current_time() - begun
        async with AsyncClient("pk_test_polling", base_url=BASE, budget=budget, **options) as client:
            install_backend(client, TrioIO(transport or httpx.MockTransport(service.respond)))
            await work(client)
        return service.clock()

    return in_virtual_time(main)


def callers(client: Any, kind: str = "waits") -> list[Any]:
    """Return the calls that take part in polling. Nothing public shows that a thread waits already."""
    of_kind: list[Any] = getattr(client._poll_loops.get(), kind).calls
    return of_kind


async def wait_for_each(client: AsyncClient, identities: list[str], **options: Any) -> None:
    async with anyio.create_task_group() as tasks:
        for identity in identities:

            async def wait(identity: str = identity) -> None:
                await client.transactions.wait(identity, **options)

            tasks.start_soon(wait)


def reported(identity: str, status: str = "SUCCESS", **fields: Any) -> Callback:
    """Return a genuine callback, or one with other fields."""
    return callback(identity, identity, status, **{"type": "STK", "amount": 100, **fields})


class Concurrent:
    """Calls of one asynchronous client, each in a task of its own: what each came to, and when."""

    def __init__(self, service: TimedService) -> None:
        self.service = service
        self.seen: dict[str, Transaction] = {}
        self.errors: dict[str, Exception] = {}
        self.ended_at: dict[str, float] = {}
        self.scopes: dict[str, anyio.CancelScope] = {}

    async def run(self, name: str, call: Awaitable[Transaction]) -> None:
        with anyio.CancelScope() as self.scopes[name]:
            try:
                self.seen[name] = await call
            except MomoPayError as error:
                self.errors[name] = error
            self.ended_at[name] = round(self.service.clock(), 2)

    async def wait(self, client: AsyncClient, identity: str, **options: Any) -> None:
        await self.run(identity, client.transactions.wait(identity, **options))

    async def wait_for_all(self, client: AsyncClient, **options: Any) -> None:
        async with anyio.create_task_group() as tasks:
            for identity in self.service.moves:
                tasks.start_soon(partial(self.wait, client, identity, **options))
