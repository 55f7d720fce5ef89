"""A service in this process: it answers at once, so that what is measured is the SDK and not a connection."""

import json
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any, Final

import httpx

from benchmarks.processes import KEY
from bodies import encoded, envelope, page, transaction, wallet
from momopay import Client, RateBudget

WALLET: Final = envelope(wallet(tenantId="tenant"))
"""What a journal asks once of a key that it does not know; it belongs to no pass and to no call."""


def mocked_client(handler: Callable[[httpx.Request], httpx.Response], **options: Any) -> Client:
    transport = httpx.MockTransport(handler)
    budget = RateBudget(requests=10_000_000)  # in force, and never empty
    return Client(KEY, base_url="http://127.0.0.1:1/v1", transport=transport, budget=budget, **options)


class Accepts:
    def __init__(self, prefix: str = "new") -> None:
        """`prefix` begins the ids of transactions, which differ between processes that share a journal."""
        self._numbers, self._prefix = count(), prefix

    def __call__(self, request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("/balance"):
            return httpx.Response(200, json=WALLET)
        asked = json.loads(request.content)
        fields = {"accountReference": asked["reference"], "amount": asked["amount"], "tenantId": "tenant"}
        return httpx.Response(
            201, json=envelope(transaction(f"{self._prefix}-{next(self._numbers)}", type="B2C", **fields))
        )


class Pages:
    """Transactions, each by its id, and their list, the newest first, in pages of 100 that are written beforehand."""

    def __init__(self, items: Sequence[dict[str, Any]]) -> None:
        self.requests = 0
        self._items = {item["transactionId"]: item for item in items}
        pages = [items[start : start + 100] for start in range(0, len(items), 100)]
        cursors = [*(str(number) for number in range(1, len(pages))), None]
        self._pages = [encoded(envelope(page(each, cursor))) for each, cursor in zip(pages, cursors, strict=True)]

    def __call__(self, request: httpx.Request) -> httpx.Response:
        """Answer with the page that the cursor names, or with one transaction."""
        if request.url.path.endswith("/balance"):
            return httpx.Response(200, json=WALLET)
        self.requests += 1
        identity = request.url.path.partition("/transactions/")[2]
        if identity:
            return httpx.Response(200, json=envelope(self._items[identity]))
        content = self._pages[int(request.url.params.get("cursor", "0"))]
        return httpx.Response(200, content=content, headers={"Content-Type": "application/json"})
