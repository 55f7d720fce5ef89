"""Payment channels: each operation, from the call to the request and back to the record."""

import json
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import httpx
import pytest

import momopay
from bodies import refusal
from drivers import Drive
from in_turn import in_turn
from models.kit import CHANNEL, PAYBILL, parse
from momopay import ChannelType
from resources.kit import Recorder, assert_came_with_its_response, assert_sent, exchange

FOLDER = "/v1/payment-wallet/channels"
OURS = parse(PAYBILL.kind, PAYBILL.camel)


def test_channels_are_listed_and_deleted(drive: Drive) -> None:
    service = Recorder({"items": [PAYBILL.camel]})
    (channel,) = drive(transport=service.transport)(lambda client: client.channels.list())
    assert_sent(service.requests[0], "GET", FOLDER)
    assert drive(transport=service.transport)(lambda client: client.channels.delete(OURS)) is None
    assert_sent(service.requests[1], "DELETE", f"{FOLDER}/{CHANNEL}")
    assert channel == OURS
    assert_came_with_its_response(channel)


CHANGES: dict[str, tuple[Callable[[Any], Any], tuple[str, str, dict[str, Any] | None]]] = {
    "get": (lambda client: client.channels.get(CHANNEL), ("GET", f"{FOLDER}/{CHANNEL}", None)),
    "get by record": (lambda client: client.channels.get(OURS), ("GET", f"{FOLDER}/{CHANNEL}", None)),
    "get an odd id": (lambda client: client.channels.get("../x"), ("GET", f"{FOLDER}/..%2Fx", None)),
    "create": (
        lambda client: client.channels.create(
            name="Shop", type=ChannelType.PAYBILL, shortcode="600100", account_number="ACC-1", is_default=False
        ),
        (
            "POST",
            FOLDER,
            {"name": "Shop", "type": "PAYBILL", "shortcode": "600100", "accountNumber": "ACC-1", "isDefault": False},
        ),
    ),
    "create with the least": (
        lambda client: client.channels.create(name="Shop", type="TILL_NUMBER", shortcode="600100"),
        ("POST", FOLDER, {"name": "Shop", "type": "TILL_NUMBER", "shortcode": "600100"}),
    ),
    "update to null": (
        lambda client: client.channels.update(OURS, account_number=None),
        ("PATCH", f"{FOLDER}/{CHANNEL}", {"accountNumber": None}),
    ),
    "update all": (
        lambda client: client.channels.update(CHANNEL, name="New", account_number="ACC-2", is_default=False),
        ("PATCH", f"{FOLDER}/{CHANNEL}", {"name": "New", "accountNumber": "ACC-2", "isDefault": False}),
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_channel_is_sent_and_read_as_the_service_states(drive: Drive, name: str) -> None:
    call, sent = CHANGES[name]
    assert exchange(drive, PAYBILL, call, *sent) == OURS


@pytest.mark.usefixtures("no_backoff")
@in_turn(("status", "code"), [(404, "CHANNEL_NOT_FOUND"), (404, "TRANSACTION_NOT_FOUND"), (409, "CHANNEL_IN_USE")])
def test_an_unclear_delete_was_a_success_if_the_channel_is_not_found(drive: Drive, status: int, code: str) -> None:
    service = Recorder(httpx.Response(500), httpx.Response(status, json=refusal(code)))
    sdk = drive(transport=service.transport)
    with nullcontext() if status == 404 else pytest.raises(momopay.ChannelInUseError):
        sdk(lambda client: client.channels.delete(CHANNEL))
    assert len(service.requests) == 2


PARTIAL: dict[str, Any] = {
    "the id alone": {"id": CHANNEL},
    "nothing": {},
    "null": None,
    "a list": [],
    "text": "updated",
    "its change": {"name": "New"},
    "a field of another kind": {**PAYBILL.camel, "isDefault": "no", "name": "New"},
    "a field that is null": {**PAYBILL.camel, "type": None, "shortcode": None, "name": "New"},
}


@in_turn("data", [*PARTIAL.values(), httpx.Response(200, json={"success": True})])
def test_a_change_whose_answer_lacks_fields_has_happened(drive: Drive, data: Any) -> None:
    changed = {**PAYBILL.camel, "name": "New"}
    service = Recorder(data, changed)
    known = drive(transport=service.transport)(lambda client: client.channels.update(OURS, name="New"))
    assert (known.name, known.shortcode, known.type, known.id) == ("New", OURS.shortcode, OURS.type, CHANNEL)
    assert [request.method for request in service.requests] == ["PATCH"]
    assert known.response.status_code == 200
    service = Recorder(data, changed)
    read = drive(transport=service.transport)(lambda client: client.channels.update(CHANNEL, name="New"))
    assert (read.name, read.shortcode, read.account_number) == ("New", OURS.shortcode, OURS.account_number)
    is_read = '"shortcode": "' not in json.dumps(data, default=str)
    assert [request.method for request in service.requests] == ["PATCH", *["GET"] * is_read]


@pytest.mark.usefixtures("no_backoff")
@in_turn("failure", [httpx.Response(404, json=refusal("NOT_FOUND")), httpx.Response(500), httpx.ConnectError("gone")])
def test_no_failure_after_a_change_is_an_error(drive: Drive, failure: Any, caplog: pytest.LogCaptureFixture) -> None:
    service = Recorder({"isDefault": True}, failure)
    sdk = drive(transport=service.transport, max_attempts=1)
    channel = sdk(lambda client: client.channels.update(CHANNEL, is_default=True, account_number=None))
    assert (channel.id, channel.is_default, channel.account_number) == (CHANNEL, True, None)
    assert (channel.type, channel.shortcode) == ("", "")
    assert "the channel was changed" in caplog.text
    caplog.clear()


@in_turn("answer", [httpx.Response(204), *(httpx.Response(200, content=text) for text in (b"<html>", b"[]", b"{}"))])
def test_what_is_not_the_services_own_answer_is_no_change(drive: Drive, answer: httpx.Response) -> None:
    service = Recorder(answer)
    with pytest.raises(momopay.ProtocolError):
        drive(transport=service.transport)(lambda client: client.channels.update(CHANNEL, name="New"))


@in_turn("data", [{"id": CHANNEL}, {"id": CHANNEL, "type": None}, {**PAYBILL.camel, "isDefault": "no"}])
def test_a_new_channel_needs_its_id_alone(drive: Drive, data: Any) -> None:
    given: dict[str, Any] = {"name": "Shop", "type": "PAYBILL", "shortcode": "600100", "account_number": "ACC-1"}
    service = Recorder(data)
    made = drive(transport=service.transport)(lambda client: client.channels.create(**given))
    assert (made.id, made.type, made.shortcode) == (CHANNEL, ChannelType.PAYBILL, "600100")
    assert_came_with_its_response(made)
    for nothing in ({}, {**data, "id": None}, None):
        service = Recorder(nothing)
        with pytest.raises(momopay.OutcomeUnknownError):
            drive(transport=service.transport)(lambda client: client.channels.create(**given))
        assert len(service.requests) == 1
