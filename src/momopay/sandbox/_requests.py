"""The log of requests that reached a socket, without the key they came with."""

import json
from collections import deque
from dataclasses import dataclass
from datetime import datetime

# Enough for any test, and a bound on the memory of a load run that goes on for hours.
KEPT = 100_000


@dataclass(slots=True)
class ReceivedRequest:
    """One request: `path` is relative to /v1 and as sent; `status` is None when no status line went back."""

    method: str
    path: str
    query: str
    headers: dict[str, str]
    at: datetime
    body: bytes = b""
    status: int | None = None

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

    def add(self, request: ReceivedRequest) -> None:
        """Add a request as soon as its head was read."""
        self._entries.append(request)

    def clear(self) -> None:
        """Forget all."""
        self._entries.clear()

    def all(self) -> list[ReceivedRequest]:
        """Return a copy, oldest first; any thread may call."""
        return list(self._entries)
