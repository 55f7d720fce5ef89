"""A blocking port in virtual time: sleeping moves the clock, and a script answers."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from drivers import unique_key
from momopay import Client
from momopay._transport.attempt import Headers, Progress, RawResponse
from momopay._transport.sync_backend import SyncBackend

Handler = Callable[[str, str], tuple[int, Any]]


class VirtualSignal:
    def __init__(self, port: SyncBackend) -> None:
        self._port = port
        self._called = False

    def set(self) -> None:
        self._called = True

    async def wait(self, seconds: float) -> None:
        if not self._called:
            await self._port.sleep(seconds)
        self._called = False


class VirtualIO(SyncBackend):
    """Counts requests and knows when each was sent; `at` runs things when their time comes."""

    def __init__(self, handler: Handler) -> None:
        super().__init__()
        self.clock = 1000.0
        self.handler = handler
        self.requests: list[tuple[float, str, str]] = []
        self.slept: list[float] = []
        self.agenda: list[tuple[float, Callable[[], None]]] = []

    def at(self, seconds: float, action: Callable[[], None]) -> None:
        self.agenda.append((1000.0 + seconds, action))
        self.agenda.sort(key=lambda entry: entry[0])

    async def send(
        self, method: str, url: str, headers: Headers, body: bytes | None, *, timeout: float, progress: Progress | None
    ) -> RawResponse:
        path = url.partition("/v1")[2]
        self.requests.append((self.clock - 1000.0, method, path))
        status, answer = self.handler(method, path)
        content = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        return RawResponse(status, Headers(), content)

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        end = self.clock + seconds
        while self.agenda and self.agenda[0][0] <= end:
            when, action = self.agenda.pop(0)
            self.clock = max(self.clock, when)
            action()
            if isinstance(action, _Waking):
                return
        self.clock = end

    def now(self) -> float:
        return self.clock

    def signal(self) -> Any:
        return VirtualSignal(self)


class _Waking:
    """An action that also wakes the sleeper, as a signal would."""

    def __init__(self, action: Callable[[], None]) -> None:
        self._action = action

    def __call__(self) -> None:
        self._action()


def waking(action: Callable[[], None]) -> Callable[[], None]:
    return _Waking(action)


def install_backend(client: Any, backend: Any) -> None:
    """Have a client that was not used yet send, sleep and wake by this backend."""
    client._backend.made = backend


def virtual_client(handler: Handler, **options: Any) -> tuple[Client, VirtualIO]:
    """A client over virtual time, without a budget unless one is given."""
    arguments: dict[str, Any] = {"budget": None, **options}
    client = Client(unique_key(), base_url="https://api.example/v1", **arguments)
    port = VirtualIO(handler)
    install_backend(client, port)
    return client, port
