"""A shop's endpoint for callbacks. Those of each framework are tested in `tests/integrations`."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from flask import Flask
from flask.testing import FlaskClient

import momopay.integrations.flask
from momopay import Callback, CallbackSigner

SIGNER = CallbackSigner("a secret that is long enough to be kept")


@dataclass
class Webhook:
    """A view of Flask; `handled` has ids and statuses."""

    browser: FlaskClient
    handled: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])

    def post(self, path: str, body: dict[str, Any]) -> int:
        return self.browser.post(path, data=json.dumps(body)).status_code

    def signed(self, reference: str, body: dict[str, Any]) -> int:
        """Deliver a callback to the URL that was signed for a reference; return the status."""
        url = SIGNER.url("http://127.0.0.1/momo", reference=reference)
        return self.post("/momo?" + url.partition("?")[2], body)


def serve(**options: Any) -> Webhook:
    """Make an endpoint with the options of `callback_endpoint`."""
    flask = Flask("shop")
    webhook = Webhook(flask.test_client())

    def handle(callback: Callback) -> None:
        webhook.handled.append((callback.transaction_id, str(callback.transaction.status)))

    view: Any = momopay.integrations.flask.callback_endpoint(handle, **options)
    flask.add_url_rule("/momo", view_func=view, methods=["POST"])
    return webhook
