"""The records of payment channels."""

from __future__ import annotations

import momopay
from models.kit import CHANNEL, ID, PAYBILL, parse
from momopay.models.account import ChannelItems
from momopay.models.records import note_response

TILL = {**PAYBILL.camel, "id": ID, "type": "TILL_NUMBER", "accountNumber": None, "isDefault": False}


def test_a_list_keeps_the_order_of_the_service() -> None:
    listed = parse(ChannelItems, {"items": [PAYBILL.camel, TILL]})
    assert [each.id for each in listed.items] == [CHANNEL, ID]
    assert [each.account_number for each in listed.items] == ["ACC-1", None]
    assert [each.is_default for each in listed.items] == [True, False]


def test_a_channel_is_not_the_default_unless_it_is_said() -> None:
    data = {name: value for name, value in PAYBILL.camel.items() if name != "isDefault"}
    assert parse(momopay.PaymentChannel, data).is_default is False


def test_each_channel_of_a_list_knows_its_response() -> None:
    info = momopay.ResponseInfo("r-1", 200, {}, attempts=1, elapsed=0.0)
    listed = parse(ChannelItems, {"items": [PAYBILL.camel, TILL]})
    note_response(listed, info)
    assert [each.response for each in listed.items] == [info, info]
