"""The door for a scheduler: who knows the secret starts one sweep at a time, in each framework."""

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, cast

import httpx
import pytest

from in_turn import in_turn
from integrations.apps import flask_app
from integrations.kit import SHOPS, WebShop
from journal.constants import ACCEPTED
from journal.kit import found, put
from momopay import AsyncClient, Client, ConfigurationError, JournalError
from momopay.integrations import django, fastapi, flask
from momopay.integrations._receiver import SweepView

SECRET = "0123456789abcdef"
RIGHT = {"Authorization": f"Bearer {SECRET}"}
REPORT = {"settled": 1, "open": 0, "unknown": 0, "handled": 1, "failed": 0, "unread": 0, "skipped": 0}

two = pytest.mark.parametrize(
    "shop", [SHOPS["fastapi, async client and handler"], (flask_app, "blocking", "blocking")], indirect=True
)
"""For what every view leaves to `SweepView`."""


def sweep(shop: WebShop, headers: dict[str, str] | None = None, method: str = "POST", **options: Any) -> httpx.Response:
    return shop.send(method, b"", "", "sweep", headers, **{"secret": SECRET, **options})


def test_who_knows_the_secret_sweeps(shop: WebShop) -> None:
    put(shop.client.journal, "SAL-1", ACCEPTED, transaction_id="the-id")
    response = sweep(shop, RIGHT)
    assert (response.status_code, response.json()) == (200, REPORT)
    assert response.headers["content-type"].startswith("application/json")
    assert response.headers["cache-control"] == "no-store"
    assert found(shop.client.journal, "SAL-1").status == "SUCCESS"
    assert [each for each in shop.happened if each.startswith("handled")] == ["handled SAL-1"]
    assert sweep(shop, {"Authorization": f"bearer  {SECRET}"}).json() == dict.fromkeys(REPORT, 0)


def test_nobody_else_does(shop: WebShop) -> None:
    put(shop.client.journal, "SAL-1", ACCEPTED, transaction_id="the-id")
    for value in (
        None,
        "",
        "Bearer",
        "Bearer ",
        SECRET,
        f"Basic {SECRET}",
        f"Bearer {SECRET[:-1]}",
        f"Bearer {SECRET}x",
    ):
        response = sweep(shop, None if value is None else {"Authorization": value})
        assert (response.status_code, response.text) == (403, "Forbidden")
    assert shop.send("POST", b"", f"secret={SECRET}", "sweep", secret=SECRET).status_code == 403
    for method in ("GET", "PUT", "PATCH", "DELETE"):
        response = sweep(shop, RIGHT, method)
        assert (response.status_code, response.headers["allow"]) == (405, "POST")
    assert shop.happened == []


@two
def test_a_sweep_that_fails_is_503_and_logged(shop: WebShop, caplog: pytest.LogCaptureFixture) -> None:
    put(shop.client.journal, "SAL-1", ACCEPTED, transaction_id="the-id")
    shop.refusal = "INVALID_API_KEY"
    assert sweep(shop, RIGHT).status_code == 503
    assert "a sweep failed" in caplog.text
    shop.refusal = None
    assert sweep(shop, RIGHT).json() == REPORT


@two
def test_a_handler_that_raises_is_counted_and_called_again(shop: WebShop) -> None:
    put(shop.client.journal, "SAL-1", ACCEPTED, transaction_id="the-id")
    handle, parts = shop._handle, vars(shop)

    def fail(*_arguments: object) -> None:
        raise LookupError

    parts["_handle"] = fail
    assert sweep(shop, RIGHT).json() == {**REPORT, "handled": 0, "failed": 1}
    parts["_handle"] = handle
    assert sweep(shop, RIGHT).json() == {**REPORT, "settled": 0}


def wrong(*_arguments: object, **_options: object) -> int:
    return 1 // 0


def test_one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    began, may_end = threading.Event(), threading.Event()
    client = Client("pk_test_1", base_url="https://api.example/v1", journal="sqlite:///never.db")

    def slow(*_arguments: object, **_options: object) -> None:
        began.set()
        may_end.wait(10)
        raise JournalError("away")

    monkeypatch.setattr(type(client.transactions), "sweep", slow)
    view = SweepView(client, None, SECRET)
    first = threading.Thread(target=view.respond, args=("POST", f"Bearer {SECRET}"))
    first.start()
    assert began.wait(10)
    assert view.respond("POST", f"Bearer {SECRET}").status == 409
    assert view.respond("POST", "Bearer wrong").status == 403
    may_end.set()
    first.join()
    monkeypatch.setattr(type(client.transactions), "sweep", wrong)
    with suppress(ZeroDivisionError):
        view.respond("POST", f"Bearer {SECRET}")
    monkeypatch.setattr(type(client.transactions), "sweep", slow)
    assert view.respond("POST", f"Bearer {SECRET}").status == 503, "whatever a sweep raised, the next one may begin"


def nothing(_payment: object) -> None: ...


def generator(_payment: object) -> Any:
    yield


@in_turn("module", [fastapi, flask, django])
def test_a_senseless_one_is_refused(module: Any) -> None:
    make: Callable[..., Any] = module.sweep_endpoint
    good: dict[str, Any] = {
        "client": Client("pk_test_1", base_url="https://api.example/v1", journal="sqlite:///never.db"),
        "handler": nothing,
        "secret": SECRET,
    }
    make(**good)
    make(**{**good, "handler": None})
    secrets = (None, "", "0123456789abcde", f"{SECRET}\n", f" {SECRET}", 10**20, SECRET.encode())
    wrongs = {"secret": secrets, "client": (None, "client", Client, AsyncClient), "handler": ("handler", generator)}
    for name, wrong in ((name, value) for name, values in wrongs.items() for value in values):
        with pytest.raises(ConfigurationError):
            make(**{**good, name: wrong})


@two
def test_a_client_may_be_a_function_that_returns_it(shop: WebShop) -> None:
    put(shop.client.journal, "SAL-1", ACCEPTED, transaction_id="the-id")
    calls = list[int]()

    def client() -> Any:
        calls.append(1)
        return shop.client

    assert sweep(shop, RIGHT, client=client).json() == REPORT
    assert len(calls) == 1, "at each request, and not before"
    assert shop.post(b"{", client=client) == [400]
    with pytest.raises(ConfigurationError, match="not async"):
        fastapi.callback_endpoint(nothing, client=cast("Any", _async_client))


async def _async_client() -> Any: ...
