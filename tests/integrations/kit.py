"""A shop in memory: an app of one framework, and the service that its client reaches."""

import asyncio
from collections.abc import Callable
from typing import Any

import httpx

from bodies import envelope, refusal, transaction
from drivers import KEY
from integrations.apps import django_asgi_app, django_wsgi_app, fastapi_app, flask_app
from momopay import AsyncClient, Client, Payment

BASE = "https://api.example/v1"


class WebShop:
    """An app of one framework, whose client reaches a service in memory; and what happened, in order."""

    def __init__(self, make: Callable[..., Any], client_kind: str, handler_kind: str, **options: Any) -> None:
        self.happened: list[str] = []
        self.statuses: list[str] = []  # that were handled
        self.refusal: str | None = None
        self.record: dict[str, Any] | None = transaction(
            "the-id", "SUCCESS", type="B2C", amount=10, accountReference="SAL-1"
        )
        """What the service has; None if it has no such transaction."""
        self._runner = asyncio.Runner()  # one loop for all requests, as a server has
        kind: Any = AsyncClient if client_kind == "async" else Client
        self.client: Any = kind(KEY, base_url=BASE, budget=None, transport=httpx.MockTransport(self._serve), **options)
        self._handle = self._handle_async if handler_kind == "async" else self._handle_blocking
        self._make = make
        self.blocks = make in {flask_app, django_wsgi_app}

    def post(self, *bodies: bytes, **options: Any) -> list[int]:
        """Call the app back with each body; return the statuses of its responses."""
        return [self.send("POST", body, **options).status_code for body in bodies]

    def send(
        self,
        method: str,
        body: bytes,
        query: str = "",
        route: str = "momo",
        headers: dict[str, str] | None = None,
        **options: Any,
    ) -> httpx.Response:
        options = {"client": self.client, **options}
        app, url = self._make(self._handle, **options), f"http://testserver/{route}?{query}"
        if self.blocks:
            with httpx.Client(transport=httpx.WSGITransport(app)) as http:
                return http.request(method, url, content=body, headers=headers)

        async def run() -> httpx.Response:
            async with httpx.AsyncClient(transport=httpx.ASGITransport(app)) as http:
                return await http.request(method, url, content=body, headers=headers)

        return self._runner.run(run())

    def close(self) -> None:
        if isinstance(self.client, AsyncClient):
            self._runner.run(self.client.aclose())
        else:
            self.client.close()
        self._runner.close()

    def _serve(self, request: httpx.Request) -> httpx.Response:
        self.happened.append(f"{request.method} {request.url.path}")
        if self.record is None or self.refusal:
            return httpx.Response(404, json=refusal(self.refusal or "TRANSACTION_NOT_FOUND"))
        return httpx.Response(200, json=envelope(self.record))

    def _handle_blocking(self, payment: Payment) -> None:
        self.happened.append(f"handled {payment.reference}")
        self.statuses.append(payment.status)

    async def _handle_async(self, payment: Payment) -> None:
        await asyncio.sleep(0)
        self._handle_blocking(payment)


SHOPS: dict[str, tuple[Callable[..., Any], str, str]] = {
    "fastapi, async client and handler": (fastapi_app, "async", "async"),
    "fastapi, async client, blocking handler": (fastapi_app, "async", "blocking"),
    "fastapi, blocking client, async handler": (fastapi_app, "blocking", "async"),
    "fastapi, blocking client and handler": (fastapi_app, "blocking", "blocking"),
    "flask, blocking handler": (flask_app, "blocking", "blocking"),
    "flask, async handler": (flask_app, "blocking", "async"),
    "django-wsgi, blocking handler": (django_wsgi_app, "blocking", "blocking"),
    "django-asgi, async client and handler": (django_asgi_app, "async", "async"),
    "django-asgi, blocking client, async handler": (django_asgi_app, "blocking", "async"),
}
