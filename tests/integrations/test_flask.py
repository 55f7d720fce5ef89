"""What is particular to the view of Flask."""

import sys
from io import RawIOBase
from typing import Any

import pytest
from django.test import RequestFactory

from durable.receiving import client_of, handle_later, unreachable
from in_turn import in_turn
from integrations.apps import django_wsgi_app, flask_app
from momopay import ConfigurationError
from momopay.integrations import flask

CLIENT = client_of()


class EndlessBody(RawIOBase):
    """A body that never ends; it counts what was read."""

    taken = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self.taken += len(buffer)
        return len(buffer)


def test_without_its_extra_an_async_handler_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "asgiref", None)
    with pytest.raises(ConfigurationError, match=r"flask\[async\]"):
        flask.callback_endpoint(handle_later, client=CLIENT)
    flask.callback_endpoint(unreachable, client=CLIENT)


@in_turn("app", [flask_app, django_wsgi_app])
@in_turn("stated", [{"CONTENT_LENGTH": str(10**12)}, {"wsgi.input_terminated": True}])
def test_at_most_64_kib_of_a_body_are_read(app: Any, stated: dict[str, Any]) -> None:
    body, statuses = EndlessBody(), list[str]()
    environ = {**RequestFactory().generic("POST", "/momo").environ, "wsgi.input": body, **stated}

    def start_response(status: str, *_headers: Any) -> None:
        statuses.append(status)

    app(unreachable, client=CLIENT)(environ, start_response)
    assert [each.upper() for each in statuses] == ["400 BAD REQUEST"]
    assert body.taken <= 2 * 65_536
