"""Names that do not exist and that many guess: the error says what to write, and right names cost nothing."""

import asyncio
import inspect
import re
import tomllib
from collections.abc import Callable, Iterator
from importlib.resources import files
from typing import Any

import pytest

import momopay
from in_turn import in_turn
from momopay import AsyncClient, CallbackError, Client, _hints, parse_callback

URL = "http://127.0.0.1:1/v1"
NAMES: dict[str, dict[str, str]] = tomllib.loads(files("momopay").joinpath("wrong_names.toml").read_text())
ROWS = [(section, name, instead) for section, names in NAMES.items() for name, instead in names.items()]
CLIENTS: list[Any] = [Client("pk_test_x", base_url=URL), AsyncClient("pk_test_x", base_url=URL)]


def owner(client: Any, section: str) -> Any:
    return {"momopay": momopay, "client": client}.get(section) or getattr(client, section)


def calls(section: str, client: Any) -> Iterator[Callable[..., object]]:
    if section == "options":
        yield from (type(client), client.with_options)
    elif section == "arguments":
        for path in (("stk", "collect_once"), ("payouts", "initiate")):
            fresh = type(client)("pk_test_x", base_url=URL)  # an AsyncClient belongs to one event loop
            yield getattr(getattr(fresh, path[0]), path[1])


def error_of(client: Any, call: Callable[..., Any], **arguments: object) -> str:
    def run() -> None:
        made = call(**arguments)
        if isinstance(client, AsyncClient):
            asyncio.run(made)

    with pytest.raises(TypeError) as caught:
        run()
    return str(caught.value)


def test_the_table_is_short() -> None:
    assert 0 < len(ROWS) <= 30


@in_turn(("section", "name", "instead"), ROWS)
def test_a_wrong_name_is_told_the_right_one(section: str, name: str, instead: str) -> None:
    for client in CLIENTS:
        for call in calls(section, client):
            text = error_of(client, call, **{name: "x"})
            assert (f"keyword argument {name!r}" in text, text.endswith(f": write {instead}")) == (True, True), text
        if section in {"options", "arguments"}:
            continue
        with pytest.raises(AttributeError) as caught:
            getattr(owner(client, section), name)
        awaited = "await " if client is CLIENTS[1] and section != "momopay" else ""
        assert str(caught.value) == f"there is no {section}.{name}: write {awaited}{instead}"
        assert not hasattr(owner(client, section), name)
        assert name not in dir(owner(client, section))


@in_turn(("section", "name", "instead"), ROWS)
def test_what_to_write_exists(section: str, name: str, instead: str) -> None:
    client = CLIENTS[0]
    for path in re.findall(r"\bclient((?:\.\w+)+)\(", instead):
        found = client
        for part in path.strip(".").split("."):
            found = getattr(found, part)
    for path in re.findall(r"momopay\.(\w+)\(", instead):
        assert path in momopay.__all__
    if section in {"options", "arguments"}:
        wanted = instead.partition("=")[0]
        code: Any = Client if section == "options" else client.stk.collect_once
        assert wanted in inspect.signature(code).parameters


def test_an_import_of_a_wrong_name_is_told_too() -> None:
    with pytest.raises(ImportError, match=r"write momopay\.Client\("):
        exec("from momopay import MomoPay")
    with pytest.raises(ImportError, match="cannot import name 'nonsense'"):
        exec("from momopay import nonsense")
    for client in CLIENTS:
        with pytest.raises(AttributeError, match=r"^'(Async)?Client' object has no attribute 'nonsense'$"):
            client.nonsense  # noqa: B018
        with pytest.raises(AttributeError, match=r"has no attribute 'nonsense'$"):
            client.stk.nonsense  # noqa: B018
        assert "write" not in error_of(client, next(calls("arguments", client)), nonsense=1)
    assert "write" not in error_of(Client, Client, nonsense=1)


def test_an_error_of_the_users_own_is_left_alone() -> None:
    class Shop(Client):
        @property
        def order(self) -> str:
            raise AttributeError("no order is open")

    with pytest.raises(AttributeError, match=r"^no order is open$"):
        Shop("pk_test_x", base_url=URL).order  # noqa: B018


def test_right_names_do_not_read_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(_section: str, _name: str) -> None:
        pytest.fail("the table was read")

    monkeypatch.setattr(_hints, "hint", unreachable)
    for kind in (Client, AsyncClient):
        client: Any = kind("pk_test_x", base_url=URL)
        for each in (client.stk.collect_once, client.with_options(timeout=3).payouts.pay_once, client._session):
            assert each is not None
        assert not hasattr(client, "__deepcopy__")
        with pytest.raises(pytest.fail.Exception):  # control
            client.nonsense  # noqa: B018


class StarletteRequest(dict[str, str]):
    async def body(self) -> bytes:
        return b""


class FlaskRequest:
    def get_data(self) -> bytes:
        return b""


class DjangoRequest:
    @property
    def body(self) -> bytes:
        return b""


class AiohttpRequest:
    async def read(self) -> bytes:
        return b""


@in_turn(
    ("request_class", "instead"),
    [
        (StarletteRequest, "pass await request.body()"),
        (FlaskRequest, "pass request.get_data()"),
        (DjangoRequest, "pass request.body"),
        (AiohttpRequest, "pass await request.read()"),
        (object, "bytes, text or a mapping are needed"),
    ],
)
def test_a_request_in_place_of_its_body_is_told_how_to_read_it(request_class: Any, instead: str) -> None:
    with pytest.raises(CallbackError, match=f"{re.escape(instead)}$"):
        parse_callback(request_class())


def test_a_body_that_was_not_awaited_is_told_so() -> None:
    body: Any = StarletteRequest().body()
    with pytest.raises(CallbackError, match=r"await it first$"):
        parse_callback(body)
    body.close()
