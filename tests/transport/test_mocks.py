"""Tools that replay or invent responses of httpx: they see what the SDK sends, and it believes what they answer."""

import asyncio
import re
from importlib import import_module
from pathlib import Path
from typing import Any

import httpx
import pytest
import respx
from pytest_httpx import HTTPXMock

from momopay import AsyncClient, Client, OutcomeUnknownError
from momopay.sandbox import Sandbox

vcr: Any = import_module("vcr")  # it has no types

ADDRESS = "https://api.example/v1"
BALANCE = {
    "walletId": "w-1",
    "tenantId": "t-1",
    "currency": "KES",
    "availableBalance": 250.5,
    "ledgerBalance": 250.5,
    "updatedAt": "2026-11-20T10:00:00Z",
}


@respx.mock
def test_the_balance() -> None:
    answer = {"success": True, "data": BALANCE, "requestId": "r-1"}
    route = respx.get(f"{ADDRESS}/wallets/service/balance").respond(json=answer)
    with Client("pk_test_x", base_url=ADDRESS) as client:
        assert str(client.wallet.balance().available_balance) == "250.5"
    assert route.call_count == 1


def test_a_lost_answer_is_not_a_refusal(httpx_mock: HTTPXMock) -> None:
    httpx_mock.add_exception(httpx.ReadTimeout("no answer"), method="POST")

    async def pay() -> None:
        async with AsyncClient("pk_test_x", base_url="https://api.example/v1") as client:
            with pytest.raises(OutcomeUnknownError):
                await client.payouts.initiate(amount=100, phone="0712345678", reference="R-1")

    asyncio.run(pay())
    assert len(httpx_mock.get_requests()) == 1  # it is not sent again


PRIVATE = re.compile(rb"(?:\+?254|\b0)[17]\d{8}|momo_token=[^\"&]*")


def hide_in_request(request: Any) -> Any:
    request.uri = PRIVATE.sub(b"hidden", request.uri.encode()).decode()
    if request.body:
        request.body = PRIVATE.sub(b"hidden", request.body)
    return request


def hide_in_response(response: Any) -> Any:
    body = PRIVATE.sub(b"254700000000", response["body"]["string"])
    return {**response, "body": {"string": body}}


recorder = vcr.VCR(
    filter_headers=["authorization"],
    before_record_request=hide_in_request,
    before_record_response=hide_in_response,
)


def collect(client: Client) -> str:
    prompt = client.stk.initiate(
        amount=100,
        phone="0712345678",
        callback_url="https://shop.example/momo?momo_token=s3cret",
    )
    (found,) = client.transactions.list(q="254712345678")
    assert found.transaction_id == prompt.transaction_id
    return found.transaction_id


def test_a_cassette_is_recorded_and_played(tmp_path: Path) -> None:
    cassette = tmp_path / "collect.yaml"
    with Sandbox() as sandbox, recorder.use_cassette(cassette):
        address = sandbox.base_url
        with Client("pk_test_vcr_key", base_url=address) as client:
            recorded = collect(client)
    # Without the sandbox: everything comes from the cassette.
    with recorder.use_cassette(cassette, record_mode="none") as played:
        with Client("pk_test_another", base_url=address) as client:
            assert collect(client) == recorded
        assert played.play_count == 2

    text = cassette.read_text()
    assert "712345678" not in text
    assert "s3cret" not in text
    assert "uthorization" not in text
