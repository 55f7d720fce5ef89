from base64 import b64encode
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import httpx
import pytest

from momopay.sandbox import Refusal, Sandbox
from momopay.sandbox._throttling import RateWindow
from sandbox.kit import data, refusal


def _basic(text: str) -> str:
    return f"Basic {b64encode(text.encode()).decode()}"


@pytest.mark.parametrize(
    "authorization",
    [
        None,
        "",
        "Basic",
        "Basic ???",
        "Bearer pk_test_a",
        _basic("pk_test_a"),
        _basic("pk_live_a:"),
        _basic("pk_test_:"),
        _basic(":"),
        _basic("sk_test_a:"),
        f"Basic {b64encode(bytes([255])).decode()}",
    ],
)
def test_any_other_key_is_refused(sandbox: Sandbox, authorization: str | None) -> None:
    headers = {} if authorization is None else {"Authorization": authorization}
    for method, path in (("GET", "/transactions"), ("POST", "/payments/stk"), ("GET", "/transactions/x")):
        response = httpx.request(method, sandbox.base_url + path, headers=headers, trust_env=False)
        assert refusal(response) == (401, "INVALID_API_KEY")


def test_the_password_is_ignored_and_each_key_is_an_account(sandbox: Sandbox) -> None:
    def balance(authorization: str) -> Any:
        headers = {"Authorization": authorization}
        return data(httpx.get(f"{sandbox.base_url}/wallets/service/balance", headers=headers, trust_env=False))

    one = balance(_basic("pk_test_one:"))
    assert balance(_basic("pk_test_one:some:password")) == one
    assert balance(_basic("pk_test_two:"))["tenantId"] != one["tenantId"]
    assert one["availableBalance"] == one["ledgerBalance"] == 10_000


def test_the_61st_request_of_a_minute_is_refused(sandbox: Sandbox, api: httpx.Client) -> None:
    account = sandbox.account("pk_test_suite")
    account.rate_limit = 60
    for _ in range(60):
        data(api.get("/wallets/service/balance"))
    sandbox.advance(20)
    response = api.get("/wallets/service/balance")
    assert refusal(response) == (429, "RATE_LIMIT_EXCEEDED")
    assert response.json()["error"]["details"] == {"limit": 60, "remaining": 0, "resetInSeconds": 40}
    assert response.headers["retry-after"] == "40"
    assert httpx.get(
        f"{sandbox.base_url}/wallets/service/balance", auth=("pk_test_other", ""), trust_env=False
    ).is_success
    sandbox.advance(39)
    assert refusal(api.get("/transactions")) == (429, "RATE_LIMIT_EXCEEDED")
    sandbox.advance(1)
    data(api.get("/transactions"))


def _admitted(window: Literal["fixed", "sliding"], seconds: list[float]) -> list[bool]:
    rate, start = RateWindow(), datetime(2026, 1, 1, tzinfo=UTC)
    admitted: list[bool] = []
    for second in seconds:
        try:
            rate.admit(start + timedelta(seconds=second), 2, window)
        except Refusal:
            admitted.append(False)
        else:
            admitted.append(True)
    return admitted


def test_a_fixed_window_opens_with_its_first_request_and_lets_bursts_meet() -> None:
    assert _admitted("fixed", [0, 59, 59.9, 60, 61, 62]) == [True, True, False, True, True, False]


def test_a_sliding_window_never_lets_more_through_in_any_minute() -> None:
    assert _admitted("sliding", [0, 59, 59.9, 60, 61, 119]) == [True, True, False, True, False, True]
