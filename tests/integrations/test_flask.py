"""What is particular to the view of Flask."""

import sys
from typing import Any

import pytest

from durable.receiving import client_of, handle_later, unreachable
from in_turn import in_turn
from integrations.apps import django_wsgi_app, flask_app
from integrations.kit import ENDLESS, send_endlessly
from momopay import ConfigurationError
from momopay.integrations import flask

CLIENT = client_of()


def test_without_its_extra_an_async_handler_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "asgiref", None)
    with pytest.raises(ConfigurationError, match=r"flask\[async\]"):
        flask.callback_endpoint(handle_later, client=CLIENT)
    flask.callback_endpoint(unreachable, client=CLIENT)


@in_turn("app", [flask_app, django_wsgi_app])
@in_turn("stated", ENDLESS)
def test_at_most_64_kib_of_a_body_are_read(app: Any, stated: dict[str, Any]) -> None:
    status, taken = send_endlessly(app(unreachable, client=CLIENT), **stated)
    assert status.upper() == "400 BAD REQUEST"
    assert taken <= 2 * 65_536
