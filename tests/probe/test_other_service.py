"""The probe of a service that is not our sandbox: what it finds depends on no habit of the sandbox."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from momopay import Client
from momopay._transport.sync_backend import SyncBackend
from momopay.errors import APIConnectionError, ProtocolError
from momopay.probe import Profile, probe
from probe.other_service import PHONE, OtherService, RefusedError

KEY = "pk_live_secretkey"


@pytest.fixture
def service() -> OtherService:
    return OtherService()


@pytest.fixture
def client(service: OtherService, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    monkeypatch.delenv("MOMOPAY_TEST_RUN", raising=False)
    with Client(KEY, base_url="https://api.example/v1", transport=service, budget=None) as client:
        yield client


def found_by(client: Client) -> Profile:
    return probe(client, write=True, note=lambda _text: None)


def test_its_switches(client: Client, service: OtherService) -> None:
    found = found_by(client)
    assert {name: value for name, value in found.switches.items() if value != "unknown"} == {
        "naming": "snake_case",
        "cancel_ends_as": "FAILED",
        "created_status": 201,
        "delete_answer": "envelope",
        "immutable_channel_fields": "ignore",
        "patch_unknown_channel": "TRANSACTION_NOT_FOUND",
        "transaction_not_found_status": 400,
        "list_phone": "masked",
        "list_amount": "with_fee",
        "list_type": "lower",
        "list_times": "local",
    }
    assert service.channels == []
    assert (found.host, found.key) == ("api.example", "live")


def test_its_facts(client: Client) -> None:
    facts = found_by(client).facts
    expected = {
        "read_statuses": ["200", "203"],
        "request_id": "not always a UUID",
        "error_details": "an object",
        "amounts": "text",
        "rate_headers": ["x-ratelimit-limit", "x-ratelimit-remaining"],
        "unknown_path": "404 with a body that is no envelope",
        "limit_of_zero": "422 INVALID_REQUEST",
        "unknown_status_filter": "accepted, ignored",
        "top_up_type_filter": "accepted, ignored",
        "top_up_type": "wallet_topup",
        "read_times": "an offset",
        "list_fee_field": "transaction_fee",
        "read_fee_field": "none",
        "q_finds_references": True,
        "q_finds_ids": True,
        "q_finds_phones": False,
        "q_finds_parts": False,
        "time_formats": ["time", "date"],
        "invalid_body": "422 INVALID_REQUEST",
        "channel_created_status": 201,
        "channel_changed_status": 200,
        "changed_shortcode": "ignore",
        "changed_type": "ignore",
        "delete_data": ["null"],
        "deleted_channel_delete": "404 CHANNEL_NOT_FOUND",
    }
    assert {name: facts[name] for name in expected} == expected


def test_nothing_secret_is_kept(client: Client) -> None:
    text = found_by(client).to_toml()
    assert "secretkey" not in text
    assert PHONE not in text
    assert '"req-9"' in text


@pytest.mark.parametrize(
    ("answer", "value"),
    [
        ((204, b""), "empty"),
        ((200, b" "), "empty"),
        ((200, b"null"), "unknown"),
        ((200, b'{"deleted":true}'), "unknown"),
        ((202, b'{"success":true}'), "envelope"),
    ],
)
def test_deletions(client: Client, monkeypatch: pytest.MonkeyPatch, answer: tuple[int, bytes], value: str) -> None:
    monkeypatch.setattr(OtherService, "deleted", answer)
    assert found_by(client).switches["delete_answer"] == value


BODIES = [
    b"",
    b"null",
    b"[]",
    b"<html>",
    b"{",
    b'{"success":true}',
    b'{"success":true,"data":[]}',
    b'{"success":true,"data":{"items":5}}',
    b'{"success":true,"data":{"items":[null,{"transactionId":7,"amount":true,"phone":[],"createdAt":0}]}}',
    b'{"success":true,"data":{"items":[{"transactionId":"a","amount":"NaN","type":{},"name":3}],"id":{}}}',
    b'{"success":false,"error":"no"}',
    b'{"success":false,"error":{"code":3,"details":[]},"requestId":5}',
    b"[" * 100_000,
    b"\xff\xfe",
]


@pytest.mark.parametrize("body", BODIES, ids=lambda body: repr(body[:30]))
@pytest.mark.parametrize(
    "status", [200, 400, *(pytest.param(status, marks=pytest.mark.whole) for status in (201, 302, 403, 418))]
)
def test_any_answer_is_tolerated(status: int, body: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SyncBackend, "sleep", no_sleep)

    def answer(_request: httpx.Request) -> httpx.Response:
        return httpx.Response(status, content=body)

    address = "https://api.example/v1"
    with Client("pk_test_x", base_url=address, transport=httpx.MockTransport(answer), budget=None) as client:
        if b"success" in body:
            assert found_by(client).to_toml()
        else:
            with pytest.raises(ProtocolError, match="no answer has the service's envelope"):
                found_by(client)


async def no_sleep(_backend: SyncBackend, _seconds: float) -> None:
    pass


def test_a_service_that_is_down_is_not_written_to(service: OtherService, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SyncBackend, "sleep", no_sleep)
    methods: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        methods.append(request.method)
        return httpx.Response(503, content=b"<html>")

    address = "https://api.example/v1"
    transport = httpx.MockTransport(answer)
    with (
        Client("pk_test_x", base_url=address, transport=transport, budget=None) as client,
        pytest.raises(APIConnectionError, match="503"),
    ):
        found_by(client)
    assert set(methods) == {"GET"}


@pytest.mark.parametrize(
    ("details", "fields", "shown"),
    [
        ({"name": ["required"], "account_number": ["required"]}, ["name", "accountNumber"], "an object"),
        ({"errors": [{"field": "shortcode", "type": "missing"}]}, ["shortcode"], "an object"),
        ([{"loc": ["body", "name"], "type": "missing"}, {"path": "body.type"}], ["name", "type"], "a list"),
        ([{"pointer": "/isDefault"}], ["isDefault"], "a list"),
        ("nothing to see", "unknown", "text"),
        (None, "unknown", "null"),
    ],
)
def test_details_of_any_shape(
    client: Client, monkeypatch: pytest.MonkeyPatch, details: object, fields: object, shown: str
) -> None:
    def error(code: str, _details: object = None) -> dict[str, object]:
        return {"success": False, "error": {"code": code, "details": details}}

    monkeypatch.setattr(OtherService, "error", staticmethod(error))
    facts = found_by(client).facts
    assert (facts["required_channel_fields"], facts["error_details"]) == (fields, shown)


def test_fields_that_are_named_one_at_a_time(
    client: Client, service: OtherService, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = OtherService.create

    def answer(self: OtherService, body: dict[str, Any]) -> tuple[int, object]:
        for field in ("name", "type", "shortcode"):
            if field not in body:
                raise RefusedError(400, "INVALID_REQUEST", field=field)
        return create(self, body)

    monkeypatch.setattr(OtherService, "create", answer)
    assert found_by(client).facts["required_channel_fields"] == ["name", "type", "shortcode"]
    assert service.channels == []


def test_a_failure_among_the_required_fields_is_no_answer(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(_self: OtherService, body: dict[str, Any]) -> tuple[int, object]:
        raise RefusedError(503 if body else 400, "ANY", field="name")

    monkeypatch.setattr(OtherService, "create", answer)
    assert found_by(client).facts["required_channel_fields"] == "unknown"


def test_a_channel_that_is_accepted_without_its_fields_is_deleted(
    client: Client, service: OtherService, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = OtherService.create

    def named(self: OtherService, body: dict[str, Any]) -> tuple[int, object]:
        return create(self, {"name": "none", **body})

    monkeypatch.setattr(OtherService, "create", named)
    assert found_by(client).facts["invalid_body"] == "accepted"
    assert service.channels == []


def test_a_channel_that_becomes_the_default_is_only_deleted(
    client: Client, service: OtherService, monkeypatch: pytest.MonkeyPatch
) -> None:
    create, notes = OtherService.create, list[str]()

    def as_default(self: OtherService, body: dict[str, Any]) -> tuple[int, object]:
        return create(self, {**body, "isDefault": True})

    monkeypatch.setattr(OtherService, "create", as_default)
    found = probe(client, write=True, note=notes.append)
    assert "check which one is the default now" in notes[-1]
    assert found.facts["changed_shortcode"] == "unknown"
    assert found.switches["delete_answer"] == "envelope"
    assert found.switches["patch_unknown_channel"] == "TRANSACTION_NOT_FOUND"
    assert service.channels == []


def test_a_type_may_be_taken_in_another_way_than_a_shortcode(
    client: Client, service: OtherService, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = OtherService.one_channel

    def answer(self: OtherService, request: httpx.Request, identity: str) -> tuple[int, bytes]:
        body: dict[str, Any] = json.loads(request.content) if request.method == "PATCH" else {}
        if "shortcode" in body:
            raise RefusedError(400, "INVALID_REQUEST")
        if "type" in body:
            service.channels[0].update(body)
        return one(self, request, identity)

    monkeypatch.setattr(OtherService, "one_channel", answer)
    found = found_by(client)
    assert (found.facts["changed_shortcode"], found.facts["changed_type"]) == ("400 INVALID_REQUEST", "change")
    assert found.switches["immutable_channel_fields"] == "refuse"


def test_a_refusal_with_the_status_of_a_success(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    refused = json.dumps({"success": False, "error": {"code": "TRANSACTION_NOT_FOUND"}}).encode()
    read = OtherService.read

    def answer(self: OtherService, identity: str) -> bytes:
        return read(self, identity) if any(each["id"] == identity for each in self.transactions) else refused

    monkeypatch.setattr(OtherService, "read", answer)
    found = found_by(client)
    assert found.facts["transaction_not_found"] == "200 TRANSACTION_NOT_FOUND"
    assert found.switches["transaction_not_found_status"] == "unknown"


def test_fields_of_their_own_do_not_hide_the_style(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    read = OtherService.read

    def answer(self: OtherService, identity: str) -> bytes:
        return read(self, identity).replace(b'"data": {', b'"data": {"_links": [], "brandNew": 1, ')

    monkeypatch.setattr(OtherService, "read", answer)
    assert found_by(client).switches["naming"] == "snake_case"


def test_a_service_that_lists_nothing_for_what_is_no_time(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    listed = OtherService.list

    def answer(self: OtherService, query: dict[str, str]) -> dict[str, object]:
        return {"items": []} if "from" in query else listed(self, query)

    monkeypatch.setattr(OtherService, "list", answer)
    found = found_by(client).findings["time_formats"]
    assert (found.value, found.sentence) == ("unknown", "A list from what is no time was empty.")


def test_a_q_that_is_ignored_finds_nothing(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    listed = OtherService.list

    def answer(self: OtherService, query: dict[str, str]) -> dict[str, object]:
        return listed(self, query | {"q": ""})

    monkeypatch.setattr(OtherService, "list", answer)
    found = found_by(client).findings["q_finds_references"]
    assert (found.value, len(found.request_ids)) == (False, 1)


def test_nonsense_that_selects_nothing(client: Client, service: OtherService, monkeypatch: pytest.MonkeyPatch) -> None:
    listed = OtherService.list

    def answer(self: OtherService, query: dict[str, str]) -> dict[str, object]:
        return {"items": []} if "cursor" in query else listed(self, query)

    monkeypatch.setattr(OtherService, "list", answer)
    assert found_by(client).facts["invalid_cursor"] == "accepted, nothing listed"
    service.transactions = []
    assert found_by(client).facts["invalid_cursor"] == "unknown"


def test_a_page_is_no_channel(client: Client, service: OtherService, monkeypatch: pytest.MonkeyPatch) -> None:
    handle = OtherService.handle_request

    def answer(self: OtherService, request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, content=b"<html>") if request.method == "POST" else handle(self, request)

    monkeypatch.setattr(OtherService, "handle_request", answer)
    found = found_by(client)
    assert found.switches["created_status"] == found.facts["channel_created_status"] == "unknown"
    assert found.findings["delete_status"].sentence == "Asked with --write, and no answer showed it."
