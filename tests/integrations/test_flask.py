"""What is particular to the view of Flask."""

from __future__ import annotations

import sys
import typing
from functools import partial
from typing import Any

import pytest
from flask import Flask

from integrations.apps import flask_app
from integrations.kit import (
    BODY,
    ENDLESS,
    LARGEST,
    QUERY,
    SIGNER,
    TOO_LARGE,
    Handler,
    handle_later,
    send_endlessly,
    unreachable,
)
from momopay import CallbackSigner, ConfigurationError, Journal
from momopay.integrations import flask


def test_a_body_and_a_signed_query_are_passed_on() -> None:
    handler = Handler()
    response = flask_app(handler.handle, signer=SIGNER).test_client().post(f"/momo?{QUERY}", data=BODY)
    assert (response.status_code, response.data, response.headers["Allow"]) == (200, b"OK", "POST")
    assert len(handler.calls) == 1


@pytest.mark.parametrize("handler", [handle_later, partial(handle_later)], ids=["def", "partial"])
def test_an_async_handler_is_awaited(handler: Any) -> None:
    assert flask_app(handler).test_client().post("/momo", data=BODY).status_code == 200


def test_without_its_extra_an_async_handler_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "asgiref", None)
    with pytest.raises(ConfigurationError, match=r"flask\[async\]"):
        flask.callback_endpoint(handle_later)
    flask.callback_endpoint(unreachable)


def test_a_body_of_64_kib_is_accepted_and_a_larger_one_refused() -> None:
    http = flask_app(handle_later).test_client()
    assert [http.post("/momo", data=body).status_code for body in (LARGEST, TOO_LARGE)] == [200, 400]


@pytest.mark.parametrize("stated", ENDLESS, ids=["length", "chunked"])
def test_at_most_64_kib_of_a_body_are_read(stated: dict[str, Any]) -> None:
    status, taken = send_endlessly(flask_app(unreachable), **stated)
    assert status == "400 BAD REQUEST"
    assert taken <= 2 * 65_536


def test_views_are_named_after_their_handlers() -> None:
    app = Flask("shop")
    app.post("/one")(flask.callback_endpoint(unreachable))
    app.post("/two")(flask.callback_endpoint(handle_later))
    assert {"unreachable", "handle_later"} <= set(app.view_functions)


def test_annotations_resolve() -> None:
    hints = typing.get_type_hints(flask.callback_endpoint)
    assert (hints["signer"], hints["journal"]) == (CallbackSigner | None, Journal | None)
