"""Keys of HTTP Basic authentication, and who is let in."""

from base64 import b64encode

import httpx
import pytest

from momopay.sandbox import Refusal, Sandbox
from momopay.sandbox._authentication import key_of
from sandbox.kit import KEY, client, data, refusal


def basic(text: str) -> str:
    return f"Basic {b64encode(text.encode()).decode()}"


@pytest.mark.parametrize(
    ("authorization", "key"),
    [(basic("pk_test_a:"), "pk_test_a"), (basic("k:some:password"), "k"), (basic("k:").replace("Basic", "bASIC"), "k")],
)
def test_the_user_name_is_the_key_and_the_password_is_ignored(authorization: str, key: str) -> None:
    assert key_of(authorization) == key


@pytest.mark.parametrize(
    "authorization", [None, "", "Basic", "Basic ???", "Bearer pk_test_a", basic("pk_test_a"), "Basic /w=="]
)
def test_no_readable_key(authorization: str | None) -> None:
    with pytest.raises(Refusal, match="INVALID_API_KEY"):
        key_of(authorization)


@pytest.mark.parametrize("key", ["", "pk_test_", "pk_live_a", "sk_test_a"])
def test_any_other_key_than_a_test_key_is_refused(sandbox: Sandbox, key: str) -> None:
    with client(sandbox.base_url, key) as api:
        assert refusal(api.post("/payments/stk")) == (401, "INVALID_API_KEY")


def test_a_request_without_credentials_learns_the_scheme(sandbox: Sandbox) -> None:
    response = httpx.get(f"{sandbox.base_url}/transactions", trust_env=False)
    assert refusal(response) == (401, "INVALID_API_KEY")
    assert response.headers["www-authenticate"].startswith("Basic ")


def test_each_key_is_an_account_with_a_rate_limit_of_its_own(sandbox: Sandbox, api: httpx.Client) -> None:
    sandbox.account(KEY).rate_limit = 60
    mine = data(api.get("/wallets/service/balance"))
    for _ in range(59):
        data(api.get("/transactions"))
    sandbox.advance(20)
    response = api.get("/wallets/service/balance")
    assert refusal(response) == (429, "RATE_LIMIT_EXCEEDED")
    assert response.json()["error"]["details"] == {"limit": 60, "remaining": 0, "resetInSeconds": 40}
    assert response.headers["retry-after"] == "40"
    with client(sandbox.base_url, "pk_test_other") as other:
        assert data(other.get("/wallets/service/balance"))["tenantId"] != mine["tenantId"]
        sandbox.advance(40)
    data(api.get("/transactions"))
