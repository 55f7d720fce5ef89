"""Payment channels: order, the default, changes and deletion."""

import httpx

from momopay.sandbox import Sandbox
from sandbox.kit import KEY, Routes, client, data, error_of

PATH = "/payment-wallet/channels"


def test_at_most_one_default_which_comes_first_then_newest_to_oldest(service: Routes, api: httpx.Client) -> None:
    first, second, _ = (data(service.channel(name=name, isDefault=name == "a")) for name in "abc")
    listed = data(api.get(PATH))["items"]
    assert [item["name"] for item in listed] == ["a", "c", "b", "Sandbox Paybill"]
    assert [item["isDefault"] for item in listed] == [True, False, False, False]
    assert data(api.patch(f"{PATH}/{second['id']}", json={"isDefault": True}))["isDefault"] is True
    assert [item["name"] for item in data(api.get(PATH))["items"] if item["isDefault"]] == ["b"]
    assert data(api.get(f"{PATH}/{first['id']}"))["isDefault"] is False
    assert data(api.patch(f"{PATH}/{second['id']}", json={"isDefault": False}))["isDefault"] is False
    assert not any(item["isDefault"] for item in data(api.get(PATH))["items"])


def test_a_paybill_needs_an_account_number(service: Routes, api: httpx.Client) -> None:
    assert error_of(service.channel(type="PAYBILL")) == (400, "VALIDATION_ERROR")
    paybill = data(service.channel(type="PAYBILL", accountNumber="A1"))
    assert paybill["accountNumber"] == "A1"
    assert error_of(api.patch(f"{PATH}/{paybill['id']}", json={"accountNumber": None})) == (409, "VALIDATION_ERROR")
    assert data(service.channel(accountNumber="unused"))["accountNumber"] is None
    send_money = data(service.channel(type="SEND_MONEY", accountNumber="x"))
    assert data(api.patch(f"{PATH}/{send_money['id']}", json={"accountNumber": None}))["accountNumber"] is None


def test_only_what_is_sent_changes(service: Routes, api: httpx.Client) -> None:
    record = data(service.channel(type="PAYBILL", accountNumber="A1", isDefault=True))
    path = f"{PATH}/{record['id']}"
    assert data(api.patch(path, json={})) == record
    assert data(api.patch(path, json={"name": "New"})) == {**record, "name": "New"}
    assert data(api.patch(path, json={"accountNumber": "A2"})) == {**record, "name": "New", "accountNumber": "A2"}
    assert error_of(api.patch(path, json={"name": None})) == (400, "VALIDATION_ERROR")


def test_type_and_shortcode_cannot_change(service: Routes, api: httpx.Client, sandbox: Sandbox) -> None:
    record = data(service.channel())
    path = f"{PATH}/{record['id']}"
    for body in ({"type": "PAYBILL"}, {"shortcode": "9"}):
        assert error_of(api.patch(path, json=body)) == (400, "VALIDATION_ERROR")
    assert data(api.patch(path, json={"type": "TILL_NUMBER", "shortcode": "512345"})) == record
    sandbox.account(KEY).switches.immutable_channel_fields = "ignore"
    assert data(api.patch(path, json={"type": "PAYBILL", "shortcode": "9"})) == record


def test_no_read_returns_a_deleted_channel(service: Routes, api: httpx.Client) -> None:
    identifier = data(service.channel(isDefault=True))["id"]
    path = f"{PATH}/{identifier}"
    assert data(api.delete(path)) == {}
    for response in (api.get(path), api.patch(path, json={}), api.delete(path)):
        assert error_of(response) == (404, "CHANNEL_NOT_FOUND")
    assert error_of(service.stk(channelId=identifier)) == (400, "CHANNEL_NOT_FOUND")
    assert identifier not in [item["id"] for item in data(api.get(PATH))["items"]]


def test_neither_a_used_nor_a_foreign_channel_is_deleted(service: Routes, api: httpx.Client, sandbox: Sandbox) -> None:
    used, customers, payout = (data(service.channel())["id"] for _ in range(3))
    service.stk(channelId=used)
    service.payout(channelId=payout)
    sandbox.account(KEY).channels[2].customers = 1
    with client(sandbox.base_url, "pk_test_other") as other:
        for identifier in (used, customers, payout):
            assert error_of(api.delete(f"{PATH}/{identifier}")) == (409, "CHANNEL_IN_USE")
            for unknown in (other.get(f"{PATH}/{identifier}"), other.delete(f"{PATH}/{identifier}")):
                assert error_of(unknown) == (404, "CHANNEL_NOT_FOUND")
