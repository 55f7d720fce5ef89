"""A small real server for callbacks: it tells whoever asked for them, or loses them on purpose."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable
from types import TracebackType
from typing import Self


class Receiver:
    """An HTTP server on loopback, one URL for each key; a lost callback is answered 503, at every attempt."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self._hear: dict[str, tuple[Callable[[bytes], None], float]] = {}
        self._lost: dict[str, bool] = {}
        self._server: asyncio.Server

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        await self._server.wait_closed()

    def url(self, key: str, hear: Callable[[bytes], None], lost: float) -> str:
        """Give the address at which callbacks of that key are heard, but for the share that is lost."""
        self._hear[f"/{key}"] = (hear, lost)
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/{key}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
        fields = dict(line.split(": ", 1) for line in head.split("\r\n")[1:] if line)
        body = await reader.readexactly(int(fields["content-length"]))
        hear, lost = self._hear["/" + head.split(" ")[1].strip("/")]
        identity = str(json.loads(body)["transaction"]["id"])
        if self._lost.setdefault(identity, self._chance.random() < lost):
            writer.write(b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        else:
            hear(body)
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        await writer.drain()
        writer.close()
        await writer.wait_closed()
