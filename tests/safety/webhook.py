"""A shop's endpoint for callbacks, of the framework that goes with the client."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import httpx
from fastapi import FastAPI
from flask import Flask

import momopay.integrations.fastapi
import momopay.integrations.flask
from momopay import Callback, CallbackSigner

SIGNER = CallbackSigner("a secret that is long enough to be kept")


@dataclass
class Webhook:
    """FastAPI with an async handler beside the async client, else Flask; `handled` has ids and statuses."""

    post: Callable[[str, dict[str, Any]], int]
    handled: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])

    def signed(self, reference: str, body: dict[str, Any]) -> int:
        """Deliver a callback to the URL that was signed for a reference; return the status."""
        url = SIGNER.url("http://127.0.0.1/momo", reference=reference)
        return self.post("/momo?" + url.partition("?")[2], body)


def make_webhook(client_kind: str, **options: Any) -> Webhook:
    """Make an endpoint with the options of `callback_endpoint`."""
    handled: list[tuple[str, str]] = []

    def handle(callback: Callback) -> None:
        handled.append((callback.transaction_id, str(callback.transaction.status)))

    async def handle_later(callback: Callback) -> None:
        await asyncio.sleep(0)
        handle(callback)

    if client_kind == "blocking":
        flask = Flask("shop")
        view: Any = momopay.integrations.flask.callback_endpoint(handle, **options)
        flask.add_url_rule("/momo", view_func=view, methods=["POST"])
        browser = flask.test_client()
        return Webhook(lambda path, body: browser.post(path, data=json.dumps(body)).status_code, handled)
    app = FastAPI()
    endpoint = momopay.integrations.fastapi.callback_endpoint(handle_later, **options)
    app.add_api_route("/momo", endpoint, methods=["POST"])

    async def send(path: str, body: dict[str, Any]) -> int:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1") as client:
            return (await client.post(path, content=json.dumps(body))).status_code

    return Webhook(lambda path, body: asyncio.run(send(path, body)), handled)
