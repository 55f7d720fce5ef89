"""Under which names the sandbox answers, and where callbacks may go."""

from typing import Any

import httpx
import pytest

from momopay.sandbox import Refusal, Sandbox
from momopay.sandbox._control_api import ACTIONS, VIEWS
from momopay.sandbox._hosts import check_callback_url, host_names, is_loopback, may_be_sent
from sandbox.kit import data, refusal

LOOPBACK = ["http://127.0.0.1:9/x", "https://localhost/x", "http://[::1]:9/x"]
PUBLIC = ["https://shop.example/momo", "https://8.8.8.8/momo", "https://shop.example.:8443/momo"]


@pytest.mark.parametrize("url", [*LOOPBACK, *PUBLIC])
def test_public_https_and_loopback_are_accepted(url: str) -> None:
    assert check_callback_url(url, strict=False) == url


def test_strictly_loopback_is_refused_too() -> None:
    for url in [*LOOPBACK, "https://a.localhost/x"]:
        with pytest.raises(Refusal, match="public host"):
            check_callback_url(url, strict=True)
    assert check_callback_url(PUBLIC[0], strict=True) == PUBLIC[0]
    assert check_callback_url(None, strict=True) is None


@pytest.mark.parametrize(
    "url",
    [
        "not a url",
        "ftp://shop.example/momo",
        "http://shop.example/momo",
        "https://shop.example/mo mo",
        "https://shop.example/\u00e9",
        "https://shop.example\t/momo",
        "https://10.0.0.5/momo",
        "https://192.168.1.5/momo",
        "https://224.0.0.1/momo",
        "https://intranet/momo",
        "https://printer.local/momo",
        "https://shop.example:99999/momo",
        "https://[oops/momo",
        "https:///momo",
        # What a resolver takes for an address, or for this machine.
        "https://10.1/momo",
        "https://127.1/momo",
        "https://0x7f.1/momo",
        "https://10.0.0.0x1/momo",
        "https://localhost./momo",
        "https://./momo",
    ],
)
def test_anything_else_is_refused(url: str) -> None:
    with pytest.raises(Refusal, match="callbackUrl"):
        check_callback_url(url, strict=False)


def test_callbacks_go_to_loopback_alone() -> None:
    assert all(map(may_be_sent, LOOPBACK))
    assert not any(map(may_be_sent, [*PUBLIC, "https://192.168.1.5/x", "ftp://127.0.0.1/x"]))
    assert is_loopback("127.8.8.8")
    assert not is_loopback("localhost.evil.example")


def test_a_host_that_was_named_is_accepted_and_sent_to_and_no_other() -> None:
    hosts = host_names(["App", "10.0.0.5", "fd00::5"])
    for url in ("http://app:3000/momo", "https://APP/momo", "http://10.0.0.5/x", "http://[fd00::5]:9/x"):
        assert check_callback_url(url, strict=False, hosts=hosts) == url
        assert may_be_sent(url, hosts)
    for url in ("http://db:3000/momo", "http://app.example/momo", "http://my-app/momo", "http://10.0.0.6/x"):
        assert not may_be_sent(url, hosts)
        with pytest.raises(Refusal, match="public host"):
            check_callback_url(url, strict=False, hosts=hosts)
    with pytest.raises(Refusal, match="public host"):
        check_callback_url("http://app:3000/momo", strict=True, hosts=hosts)


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
