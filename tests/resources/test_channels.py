"""Payment channels: each operation, from the call to the request and back to the record."""

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
