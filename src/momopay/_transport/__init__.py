"""Blocking and asynchronous I/O: the only package that knows httpx, anyio and time.sleep.

Both backends have one shape: `send`, `sleep`, `now`, `in_thread`, `signal`, `close`. They speak to httpx transports
directly, so redirects, cookies, environment proxies and httpx's own logging of URLs never come into play. Times are
in seconds.
"""

from __future__ import annotations

from httpx import Headers

from momopay._transport.async_backend import AsyncBackend
from momopay._transport.requests import common_headers
from momopay._transport.response import NoReplyError, NoResponseError, NotSentError, Progress, RawResponse
from momopay._transport.sync_backend import SyncBackend

__all__ = [
    "AsyncBackend",
    "Headers",
    "NoReplyError",
    "NoResponseError",
    "NotSentError",
    "Progress",
    "RawResponse",
    "SyncBackend",
    "common_headers",
]
