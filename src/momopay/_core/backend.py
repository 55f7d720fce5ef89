"""The type parameter that tells the parts of a blocking client from those of an asynchronous one.

It stands alone so that building a client, which names it, does not import httpx.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from momopay._transport.async_backend import AsyncBackend
    from momopay._transport.sync_backend import SyncBackend

BackendT = TypeVar("BackendT", "SyncBackend", "AsyncBackend")
