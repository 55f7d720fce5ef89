"""The other end: a bare asyncio server that answers canned bytes, and the bodies that it cans.

A script of its own process: it prints its address and serves until its standard input closes.
"""

import asyncio
import json
import sys
from typing import Any, Final, cast
from urllib.parse import parse_qs, urlsplit

PAGES: Final = 50
ITEMS_ON_A_PAGE: Final = 100
SLOW: Final = "slow"
"""The id of the record that is answered after `SLOWNESS` seconds."""
SLOWNESS: Final = 0.02
ID: Final = "3f0c8a52-7a0e-4f0a-9d57-0c2f5e5b6d11"

_TIMES = {"createdAt": "2026-01-05T09:00:00.000Z", "updatedAt": "2026-01-05T09:01:00.000Z"}
_SUMMARY: dict[str, Any] = {
    "transactionId": ID,
    "type": "STK",
    "status": "SUCCESS",
    "amount": 100.5,
    "currency": "KES",
    "phone": "254712345678",
    "accountReference": "INV-42",
    "transactionFee": 1,
    **_TIMES,
}
_RECORD: dict[str, Any] = {
    **_SUMMARY,
    "tenantId": ID,
    "channelId": None,
    "transactionDesc": "Order 42",
    "provider": "MPESA",
    "providerRequestId": "29115-34620561-1",
    "providerCheckoutId": "ws_CO_191220191020363925",
    "resultCode": "0",
    "resultDesc": "The service request is processed successfully.",
}
_OVERVIEW = {"total": PAGES * ITEMS_ON_A_PAGE, "completed": PAGES * ITEMS_ON_A_PAGE, "failed": 0, "pending": 0}


def _page(number: int) -> dict[str, Any]:
    items = [
        {**_SUMMARY, "transactionId": f"{ID[:-6]}{number:03}{place:03}", "accountReference": f"INV-{number}-{place}"}
        for place in range(ITEMS_ON_A_PAGE)
    ]
    return {"items": items, "overview": _OVERVIEW, "nextCursor": str(number + 1) if number + 1 < PAGES else None}


def _answer(body: dict[str, Any]) -> bytes:
    text = json.dumps(body, separators=(",", ":")).encode()
    return b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(text), text)


def _enveloped(data: dict[str, Any]) -> bytes:
    return _answer({"success": True, "data": data, "requestId": ID})


class _Answers(asyncio.Protocol):
    one = _enveloped(_RECORD)
    pages = tuple(_enveloped(_page(number)) for number in range(PAGES))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._unread = b""

    def data_received(self, data: bytes) -> None:
        *heads, self._unread = (self._unread + data).split(b"\r\n\r\n")
        for head in heads:
            self._reply(head.split(b" ", 2)[1].decode())

    def _reply(self, target: str) -> None:
        if target.endswith(SLOW):
            asyncio.get_running_loop().call_later(SLOWNESS, self._transport.write, self.one)
        elif "?" in target:
            self._transport.write(self.pages[int(parse_qs(urlsplit(target).query).get("cursor", ["0"])[0])])
        else:
            self._transport.write(self.one)


async def _serve() -> None:
    server = await asyncio.get_running_loop().create_server(_Answers, "127.0.0.1", 0, backlog=512)
    async with server:
        sys.stdout.write(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1\n")
        sys.stdout.flush()
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(_serve())
