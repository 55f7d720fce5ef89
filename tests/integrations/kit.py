"""What is sent to a view: a callback that the service never sent, and bodies without an end."""

import io
from typing import Any

from django.test import RequestFactory

from durable.receiving import BODY

LARGEST, TOO_LARGE = (BODY + b" " * (size - len(BODY)) for size in (65_536, 65_537))


class EndlessBody(io.RawIOBase):
    """A body that never ends; it counts what was read."""

    taken = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self.taken += len(buffer)
        return len(buffer)


def send_endlessly(app: Any, **stated: Any) -> tuple[str, int]:
    """Send an endless body to a WSGI app; return the status, and how many bytes it read."""
    body, statuses = EndlessBody(), list[str]()
    environ = {**RequestFactory().generic("POST", "/momo").environ, "wsgi.input": body, **stated}

    def start_response(status: str, *_more: Any) -> None:
        statuses.append(status)

    b"".join(app(environ, start_response))
    return statuses[0], body.taken


ENDLESS: list[dict[str, Any]] = [{"CONTENT_LENGTH": str(10**12)}, {"wsgi.input_terminated": True}]
