"""Other web sites are kept out of the pages and the control routes."""

from typing import Any

import httpx
import pytest

from momopay.sandbox import Sandbox
from momopay.sandbox._control_api import ACTIONS, VIEWS
from sandbox.kit import data, refusal


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": "evil.example:8787"},
        {"Host": "[oops"},
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_other_sites_are_refused(control: httpx.Client, sandbox: Sandbox, headers: dict[str, str]) -> None:
    sandbox.end_next("cancelled")
    routes = [("POST", f"/sandbox/{name}") for name in ACTIONS]
    routes += [("GET", f"/sandbox/{name}") for name in (*VIEWS, "events")]
    for method, path in routes:
        assert refusal(control.request(method, path, headers=headers)) == (403, "FORBIDDEN")
    assert len(data(control.get("/sandbox/state"))["outcomes"]) == 1


def test_a_link_may_lead_to_a_page_but_not_under_another_name(control: httpx.Client) -> None:
    for path in ("/", "/docs"):
        assert control.get(path, headers={"Sec-Fetch-Site": "cross-site"}).status_code == 200
        assert refusal(control.get(path, headers={"Host": "evil.example"})) == (403, "FORBIDDEN")


def test_its_own_page_is_let_in(control: httpx.Client) -> None:
    origin = str(control.base_url).rstrip("/")
    data(control.post("/sandbox/reset", headers={"Origin": origin, "Sec-Fetch-Site": "same-origin"}))
    data(control.get("/sandbox/state", headers={"Host": f"localhost:{control.base_url.port}"}))


def test_a_name_that_was_allowed_is_the_sandboxs_own_and_another_site_stays_another() -> None:
    with Sandbox(allow_hosts=["Sandbox"]) as sandbox, httpx.Client(base_url=sandbox.url, trust_env=False) as control:
        named = f"sandbox:{control.base_url.port}"
        data(control.get("/sandbox/state", headers={"Host": named, "Origin": f"http://{named}"}))
        data(control.get("/sandbox/state", headers={"Host": "SANDBOX"}))
        assert control.get("/", headers={"Host": named}).status_code == 200
        for headers in (
            {"Host": "other"},
            {"Host": f"evil.{named}"},
            {"Host": named, "Origin": "https://evil.example"},
            {"Host": named, "Origin": "http://sandbox:1"},
            {"Host": named, "Sec-Fetch-Site": "cross-site"},
        ):
            assert refusal(control.get("/sandbox/state", headers=headers)) == (403, "FORBIDDEN")


@pytest.mark.parametrize("name", ["*", "", "http://app", "app:80", "a b", "app/x", "*.example"])
def test_a_host_is_named_alone(name: str) -> None:
    for option in ("allow_hosts", "callback_hosts"):
        options: Any = {option: [name]}
        with pytest.raises(ValueError, match="not a host name or address alone"):
            Sandbox(**options).start()
