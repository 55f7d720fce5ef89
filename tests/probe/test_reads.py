"""What reads find of a service that is not our sandbox, and that a change of any answer is found again."""

from collections.abc import Callable
from typing import Any

import httpx
import pytest

from in_turn import in_turn
from momopay import ProtocolError
from momopay.probe import Profile
from momopay.sandbox import Outcome
from probe.kit import Scene, error_response
from probe.other_service import PHONE, OtherService, probed

KEY = "pk_live_secretkey"
LIST, READ, WALLET = "/transactions", "", "/wallets/service/balance"


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch, no_pauses: None) -> OtherService:
    monkeypatch.delenv("MOMOPAY_TEST_RUN", raising=False)
    return OtherService()


def found_of(service: httpx.BaseTransport) -> Profile:
    return probed(service, KEY)[0]


def test_another_service(service: OtherService) -> None:
    found = found_of(service)
    switches = {
        "naming": "snake_case",
        "cancel_ends_as": "FAILED",
        "created_status": 201,
        "immutable_channel_fields": "ignore",
        "patch_unknown_channel": "TRANSACTION_NOT_FOUND",
        "transaction_not_found_status": 400,
        "list_phone": "masked",
        "list_amount": "with_fee",
        "list_type": "lower",
        "list_times": "local",
        "cursor_field": "next_cursor",
        "delete_answer": "envelope",
        "item_naming": "camelCase",
        "receipt_in_reads": False,
        "error_messages": "text",
        "customer_in_reads": False,
        "topup_type": "WALLET_TOPUP",
        "minimal_answers": False,
        "more_endpoints": False,
        "field_limits": "specified",
        "channel_reads": True,
        "channel_types": "any",
        "overview": False,
        "raw_keys": True,
    }
    assert {name: value for name, value in found.switches.items() if value != "unknown"} == switches
    assert found.findings["rate_limit_headers"].unnamed == ["x-ratelimit-limit", "x-ratelimit-remaining"]
    assert found.findings["invalid_uuid"].unnamed == "422 INVALID_REQUEST"
    expected = {
        "unusable": ["the refusal of an id that is no UUID: 422 INVALID_REQUEST"],
        "read_statuses": ["200", "203"],
        "envelope_fields": ["data", "requestId", "success"],
        "balance_amounts": "text",
        "balance_fields": ["available_balance", "ledger_balance"],
        "unknown_path": "404 with a body that is no envelope",
        "limit_of_zero": "422 INVALID_REQUEST",
        "unknown_status_filter": "accepted, ignored",
        "page_fields": ["items"],
        "list_amounts": "numbers",
        "list_status": "upper",
        "transaction_read": "accepted",
        "read_time_format": "an offset",
        "read_phone": "whole",
        "read_type": "upper",
    }
    assert {name: found.facts[name] for name in expected} == expected
    assert (found.about["host"], found.about["key"], service.channels) == ("api.example", "live", [])
    text = found.to_toml()
    assert "secretkey" not in text
    assert PHONE not in text
    assert '"req-9"' in text


BODIES = [
    *(b"", b"null", b"[]", b"<html>", b"{", b"\xff\xfe", b"[" * 100_000, b'{"success":true}'),
    b'{"success":true,"data":[]}',
    b'{"success":true,"data":{"items":5}}',
    b'{"success":true,"data":{"items":[null,{"transactionId":7,"amount":true,"phone":[],"createdAt":0}]}}',
    b'{"success":true,"data":{"items":[{"transactionId":"a","amount":"NaN","type":{},"name":3}],"id":{}}}',
    b'{"success":false,"error":"no"}',
    b'{"success":false,"error":{"code":3,"details":[]},"requestId":5}',
]


@pytest.mark.usefixtures("service")
@in_turn("body", BODIES)
@pytest.mark.parametrize("status", [200, pytest.param(403, marks=pytest.mark.whole)])
def test_any_answer_is_tolerated(status: int, body: bytes) -> None:
    transport = httpx.MockTransport(lambda _request: httpx.Response(status, content=body))
    if b"success" in body:
        assert found_of(transport).to_toml()
    else:
        with pytest.raises(ProtocolError, match="no answer has the service's envelope"):
            found_of(transport)


def put(name: str, value: object) -> Callable[[dict[str, Any]], object]:
    return lambda record: record.update({name: value})


def turned(name: str, turn: Callable[[Any], object]) -> Callable[[dict[str, Any]], object]:
    return lambda record: record.update({name: turn(record[name])})


def renamed(name: str, other: str) -> Callable[[dict[str, Any]], object]:
    return lambda record: record.update({other: record.pop(name)})


Change = Callable[[dict[str, Any]], object]
CHANGES: list[dict[str, tuple[str, Change, object]]] = [
    {
        "list_status": (LIST, put("status", "Success"), "mixed case"),
        "list_type": (LIST, put("type", "STK_PUSH"), "STK_PUSH"),
        "list_times": (LIST, put("createdAt", 1_763_632_800), "Z, int ##########"),
        "list_phone": (LIST, turned("phone", "+{}".format), "+############"),
        "list_amounts": (LIST, put("amount", "7.00"), ["numbers", "text"]),
        "read_status": (READ, put("status", "success"), "lower"),
        "read_type": (READ, put("type", "STK_PUSH"), "STK_PUSH"),
        "read_time_format": (READ, put("createdAt", "1763632800000"), ["#############", "Z"]),
        "read_phone": (READ, turned("phone", int), "int ############"),
        "read_amounts": (READ, put("amount", "KES 7"), "a #"),
        "balance_amounts": (WALLET, turned("availableBalance", str), ["numbers", "text"]),
        "balance_time_format": (WALLET, put("updatedAt", 1_763_632_800), "int ##########"),
    },
    {
        "list_status": (LIST, put("status", "COMPLETED"), "COMPLETED"),
        "list_times": (LIST, put("updatedAt", "20/11/2026 10:00"), "##/##/#### ##:##, Z"),
        "list_phone": (LIST, put("phone", "0712345678"), "##########"),
        "list_amount": (LIST, put("amount", 700), "neither"),
        "naming": (READ, renamed("createdAt", "created_at"), "camelCase and snake_case"),
    },
]


def test_changes_of_answers_are_found(scene: Scene) -> None:
    scene.prompt(Outcome.success)
    before = scene.probe()
    identity = next(each.path for each in scene.sent if each.path.count("-") == 4 and each.status == 200)
    for changes in CHANGES:
        scene.edit(*((path or identity, change) for path, change, _ in changes.values()))
        found = {each.name: each.now for each in scene.probe().changes_since(before)}
        assert {name: found.get(name) for name in changes} == {name: seen for name, (_, _, seen) in changes.items()}
    scene.edit((LIST, renamed("transactionId", "txId")))
    assert "list_fields" in {each.name for each in scene.probe().changes_since(before)}


@pytest.mark.parametrize(
    ("path", "change", "problem"),
    [
        (LIST, put("phone", None), "an item of the list: phone: Input should be a valid string"),
        (LIST, put("status", "COMPLETED"), "the status COMPLETED"),
        (LIST, put("status", "Success"), ""),
        (LIST, put("type", "LOAN"), ""),
        (READ, put("amount", None), "a read by id: amount: Field required"),
        (READ, put("phone", None), ""),
    ],
)
def test_what_the_sdk_cannot_use_is_said(scene: Scene, path: str, change: Change, problem: str) -> None:
    scene.prompt(Outcome.success)
    before = scene.probe()
    identity = next(each.path for each in scene.sent if each.path.count("-") == 4 and each.status == 200)
    scene.edit((path or identity, change))
    found = scene.probe()
    assert (before.facts["unusable"], found.facts["unusable"]) == ([], [problem] if problem else [])
    assert ("unusable" in {each.name for each in found.changes_since(before)}) is bool(problem)
    assert "unusable" not in {each.name for each in before.changes_since(found)}, "it is not listed every day"


def test_two_receipts_are_none_that_a_sandbox_could_have(scene: Scene) -> None:
    scene.prompt(Outcome.success)
    scene.edit((LIST, put("acme_receipt", "A1")), (LIST, put("pesaReceipt", "B2")))
    found = scene.probe()
    assert (found.switches["receipt_field"], found.findings["receipt_in_reads"].unnamed) == ("unknown", ["list"])


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        ({"items": []}, "a page of the list: nextCursor: Field required"),
        ({"transactions": []}, "a page of the list: no list of items"),
    ],
)
def test_a_page_that_the_sdk_cannot_use_is_said(scene: Scene, data: dict[str, Any], problem: str) -> None:
    scene.answer("GET", "limit=100", lambda: httpx.Response(200, json={"success": True, "data": data}))
    assert scene.probe().facts["unusable"] == [problem]


def test_other_kinds_of_answers_are_found(scene: Scene) -> None:
    scene.prompt(Outcome.success)
    before = scene.probe()
    for path, answer, name in (
        ("-4", error_response(500, "INTERNAL"), "transaction_not_found"),
        ("/momopay-probe", error_response(500, "INTERNAL"), "malformed_transaction_id"),
        ("limit=100", error_response(403, "FORBIDDEN"), "list_read"),
        ("limit=100", httpx.Response(200, json={"success": True, "data": {"transactions": []}}), "page_fields"),
        ("limit=100", httpx.Response(200, content=b"<html>Please log in</html>"), "list_read"),
        ("/balance", httpx.Response(200, json={"success": True, "result": {}}), "envelope_fields"),
        ("cursor=", error_response(500, "INTERNAL"), "invalid_cursor"),
        ("limit=101", httpx.Response(200, json={"success": True, "data": {"items": []}}), "limit_above_100"),
    ):
        scene.answer("GET", path, lambda: httpx.Response(answer.status_code, content=answer.content))  # noqa: B023  used at once
        assert name in {each.name for each in scene.probe().changes_since(before)}, (path, name)


def test_the_payments_of_another_day_are_no_change(scene: Scene) -> None:
    for outcome in (Outcome.success, Outcome.cancelled, Outcome.expired):
        scene.prompt(outcome)
    before = scene.probe()
    scene.sandbox.reset()
    assert scene.probe().changes_since(before) == []
    scene.prompt(Outcome.timeout)
    now = scene.probe()
    assert (now.changes_since(before), "cancel_ends_as" in now.not_compared(before)) == ([], True)


def test_an_empty_list_proves_no_filter(service: OtherService) -> None:
    service.transactions = {}
    assert found_of(service).facts["unknown_status_filter"] == "unknown"


def test_a_refusal_with_the_status_of_a_success(service: OtherService, monkeypatch: pytest.MonkeyPatch) -> None:
    refused, read = b'{"success": false, "error": {"code": "TRANSACTION_NOT_FOUND"}}', service.read

    def answer(identity: str) -> object:
        return read(identity) if identity in service.transactions else refused

    monkeypatch.setattr(service, "read", answer)
    found = found_of(service)
    assert found.facts["transaction_not_found"] == "200 TRANSACTION_NOT_FOUND"
    finding = found.findings["transaction_not_found_status"]
    assert (finding.value, finding.unnamed) == ("unknown", 200)


@in_turn("content", [b"<html>Please log in</html>", b""])
def test_a_page_with_200_shows_nothing(scene: Scene, content: bytes) -> None:
    scene.prompt(Outcome.success)
    scene.answer("GET", "from=", lambda: httpx.Response(200, content=content))
    found = scene.probe()
    assert str(found.facts["invalid_time_filter"]).startswith("200 with ")  # accepted by nobody
