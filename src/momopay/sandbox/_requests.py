"""The log of requests that reached a socket, without the key they came with."""

import json
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import islice

# Enough for any test, and a bound on the memory of a load run that goes on for hours.
KEPT = 100_000


@dataclass(slots=True)
class ReceivedRequest:
    """One request: `path` is relative to /v1 and as sent; `status` is None when no status line went back.

    `key` is the API key as it may be shown, `tenant_id` the account of a `pk_test_` key.
    """

    method: str
    path: str
    query: str
    headers: dict[str, str]
    at: datetime
    body: bytes = b""
    status: int | None = None
    key: str = ""
    tenant_id: str | None = None

    # Bytes are kept, because a test may want to see exactly what was sent; most want this.
    @property
    def json(self) -> object:
        """The body as JSON, or None where it is not JSON."""
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):
            return None


class RequestLog:
    """The newest requests, oldest first."""

    def __init__(self) -> None:
        """Begin empty."""
        self._entries: deque[ReceivedRequest] = deque(maxlen=KEPT)
        self.total = 0
        self.version = 0

    def add(self, request: ReceivedRequest) -> None:
        """Add a request as soon as its head was read."""
        self._entries.append(request)
        self.total += 1
        self.version += 1

    def set_status(self, request: ReceivedRequest, status: int) -> None:
        """Set the status that went back."""
        request.status = status
        self.version += 1

    def newest(self, count: int) -> Iterator[tuple[int, ReceivedRequest]]:
        """Yield the newest requests, newest first, each with its number (the first ever has 1)."""
        for place, request in enumerate(islice(reversed(self._entries), count)):
            yield self.total - place, request

    def clear(self) -> None:
        """Forget all."""
        self._entries.clear()
        self.total = 0
        self.version += 1

    def all(self) -> list[ReceivedRequest]:
        """Return a copy, oldest first; any thread may call."""
        return list(self._entries)
