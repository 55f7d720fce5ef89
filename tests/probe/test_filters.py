"""How a service may take parameters that nothing is specified about, and what the probe makes of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from momopay import Client
from momopay._transport.sync_backend import SyncBackend
from momopay.probe import Profile, probe
from probe.other_service import OtherService

Listed = Callable[[OtherService, dict[str, str]], dict[str, Any]]


@pytest.fixture
def service() -> OtherService:
    service = OtherService()
    service.transactions = [service.transaction("stk", "SUCCESS", 5, 1) for _ in range(130)]
    service.transactions[3] = service.transaction("wallet_topup", "EXPIRED", 5, 0)
    return service


@pytest.fixture
def client(service: OtherService) -> Iterator[Client]:
    with Client("pk_test_x", base_url="https://api.example/v1", transport=service, budget=None) as client:
        yield client


@pytest.fixture
def answer_with(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[Listed, dict[str, str]], Any]], None]:
    """Have the service list in another way: pages of 20, and what the test says."""
    listed: Listed = OtherService.list

    def paged(self: OtherService, query: dict[str, str]) -> dict[str, Any]:
        data = listed(self, {**query, "limit": "1"})
        limit = min(int(query.get("limit", "20")), 100)
        more = {"next_cursor": "more"} if len(data["items"]) > limit else {}
        return {**data, **more, "items": data["items"][:limit]}

    def replace(answer: Callable[[Listed, dict[str, str]], Any]) -> None:
        def other(self: OtherService, query: dict[str, str]) -> Any:
            return answer(lambda _self, query: paged(self, query), query)

        monkeypatch.setattr(OtherService, "list", other)

    return replace


def found_by(client: Client, *, write: bool = False) -> Profile:
    return probe(client, write=write, note=lambda _text: None)


@pytest.mark.parametrize(
    ("limits", "zero", "more"),
    [
        ({"0": "0", "101": "101"}, "accepted as 0", "accepted as 100"),
        ({"0": "1", "101": "20"}, "accepted as 1", "accepted as 20"),
        ({"0": "20", "101": "100"}, "accepted as 20", "accepted as 100"),
    ],
)
def test_limits(
    client: Client, service: OtherService, answer_with: Any, limits: dict[str, str], zero: str, more: str
) -> None:
    def answer(listed: Listed, query: dict[str, str]) -> Any:
        return listed(service, {**query, "limit": limits.get(query["limit"], query["limit"])})

    answer_with(answer)
    facts = found_by(client).facts
    assert (facts["limit_of_zero"], facts["limit_above_100"]) == (zero, more)
    service.transactions = service.transactions[:1]
    assert found_by(client).facts["limit_above_100"] == "unknown"


@pytest.mark.parametrize(
    ("how", "value"), [("ignored", "accepted, ignored"), ("none", "accepted, nothing listed"), ("some", "accepted")]
)
def test_filters_that_are_not_specified(
    client: Client, service: OtherService, answer_with: Any, how: str, value: str
) -> None:
    def answer(listed: Listed, query: dict[str, str]) -> Any:
        data = listed(service, query)
        if how != "ignored" and (query.get("type") == "WALLET_TOPUP" or query.get("status") == "EXPIRED"):
            items = [each for each in data["items"] if each["status"] == "EXPIRED"]
            return {**data, "items": items if how == "some" else []}
        return data

    answer_with(answer)
    facts = found_by(client).facts
    assert (facts["expired_status_filter"], facts["top_up_type_filter"]) == (value, value)


@pytest.mark.parametrize("value", ["time", "date", "seconds", "milliseconds"])
def test_a_service_that_fails_at_other_formats(
    client: Client, service: OtherService, answer_with: Any, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def no_sleep(_backend: SyncBackend, _seconds: float) -> None:
        pass

    forms = {"T": "time", "-": "date", "000000": "milliseconds"}
    handle = OtherService.handle_request

    def fail(self: OtherService, request: httpx.Request) -> httpx.Response:
        given = request.url.params.get("from")
        form = next((name for part, name in forms.items() if part in (given or "")), "seconds")
        if given and (form != value or "PROBE" in given):
            return httpx.Response(500, json=self.error("CAST_FAILED"))
        return handle(self, request)

    monkeypatch.setattr(SyncBackend, "sleep", no_sleep)
    monkeypatch.setattr(OtherService, "handle_request", fail)

    def none_from_then_on(listed: Any, query: Any) -> Any:
        return {"items": []} if "from" in query else listed(service, query)

    answer_with(none_from_then_on)
    facts = found_by(client).facts
    assert (facts["time_formats"], facts["server_error_code"]) == ([value], "CAST_FAILED")


def test_a_service_that_goes_down_understands_nothing(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    async def no_sleep(_backend: SyncBackend, _seconds: float) -> None:
        pass

    handle = OtherService.handle_request

    def fail(self: OtherService, request: httpx.Request) -> httpx.Response:
        is_down = "from" in request.url.params
        return httpx.Response(503, json=self.error("DOWN")) if is_down else handle(self, request)

    monkeypatch.setattr(SyncBackend, "sleep", no_sleep)
    monkeypatch.setattr(OtherService, "handle_request", fail)
    assert found_by(client).facts["time_formats"] == "unknown"


@pytest.mark.parametrize("method", ["PATCH", "DELETE", "GET"])
def test_a_page_with_200_shows_nothing(client: Client, method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    handle = OtherService.handle_request

    def answer(self: OtherService, request: httpx.Request) -> httpx.Response:
        if request.method == method != "GET" or "2999" in str(request.url) or "q=" in str(request.url):
            return httpx.Response(200, content=b"<html>Please log in</html>")
        return handle(self, request)

    monkeypatch.setattr(OtherService, "handle_request", answer)
    found = found_by(client, write=True)
    for name in ("time_formats", "q_finds_ids", "q_finds_phones", "q_finds_references"):
        assert found.facts[name] == "unknown"
    if method == "PATCH":
        assert found.switches["immutable_channel_fields"] == found.facts["channel_changed_status"] == "unknown"
    if method == "DELETE":
        assert found.facts["delete_status"] == found.facts["deleted_channel_delete"] == "unknown"


def test_a_gateway_that_answers_json_has_no_envelope(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    handle = OtherService.handle_request

    def answer(self: OtherService, request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("/momopay-probe"):
            return httpx.Response(404, content=json.dumps({"statusCode": 404}))
        return handle(self, request)

    monkeypatch.setattr(OtherService, "handle_request", answer)
    assert found_by(client).facts["unknown_path"] == "404 with a body that is no envelope"
