"""The probe of a service that is not our sandbox: what it finds depends on no habit of the sandbox."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from momopay import Client
from momopay._transport.sync_backend import SyncBackend
from momopay.probe import Profile, probe
from probe.other_service import PHONE, OtherService

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
        "unknown_status_filter": "accepted",
        "top_up_type": "wallet_topup",
        "read_times": "an offset",
        "list_fee_field": "transaction_fee",
        "read_fee_field": "none",
        "q_finds_references": True,
        "q_finds_ids": True,
        "q_finds_phones": False,
        "time_formats": ["time", "date"],
        "invalid_body": "422 INVALID_REQUEST",
        "channel_created_status": 201,
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
        assert found_by(client).to_toml()


async def no_sleep(_backend: SyncBackend, _seconds: float) -> None:
    pass
