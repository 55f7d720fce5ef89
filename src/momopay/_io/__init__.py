"""The two colours of input and output: the only room that knows httpx, anyio and time.sleep.

Both ports have one shape: `send`, `sleep`, `now`, `in_thread`, `signal`, `close`. They speak to the transport
itself, so redirects, cookies, environment proxies and httpx's own logging of URLs never come into play. Times
are in seconds.
"""

from __future__ import annotations

from httpx import Headers

from momopay._io.answers import Answer, NoAnswerError, NoReplyError, NotSentError, Progress
from momopay._io.requests import common_headers

__all__ = [
    "Answer",
    "Headers",
    "NoAnswerError",
    "NoReplyError",
    "NotSentError",
    "Progress",
    "common_headers",
]
