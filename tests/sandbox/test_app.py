"""The application: the envelope around everything, and the pages."""

import httpx
import pytest

from in_turn import in_turn
from momopay.sandbox import Sandbox
from momopay.sandbox._control_api import ACTIONS, VIEWS
from sandbox.kit import data, refusal


def test_unknown_paths_and_methods_get_an_envelope(api: httpx.Client, control: httpx.Client) -> None:
    ids = set[str]()
    for client, path in ((api, "/nope"), (control, "/nope"), (control, "/v1"), (api, "/transactions/")):
        answer = client.get(path)
        assert refusal(answer) == (404, "NOT_FOUND")
        ids.add(answer.json()["requestId"])
    assert len(ids) == 4
    assert api.head("/transactions").status_code == 405


def test_a_defect_of_the_sandbox_is_an_envelope_too(control: httpx.Client, sandbox: Sandbox) -> None:
    engine = vars(sandbox)["_runner"].engine
    vars(engine)["catch_up"] = None
    response = control.get("/sandbox/state")
    del vars(engine)["catch_up"]
    assert refusal(response) == (500, "INTERNAL_ERROR")


@pytest.mark.parametrize("path", ["/", "/docs"])
def test_a_page_may_run_its_own_script_only(control: httpx.Client, path: str) -> None:
    response = control.get(path)
    assert response.headers["content-type"].startswith("text/html")
    policy = response.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'sha256-" in policy
    assert "frame-ancestors 'none'" in policy
    assert "https://" not in response.text
    assert "innerHTML" not in response.text


# Under which names it answers, and to whose pages.


@in_turn(
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
    sandbox.clear_planned()
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


def test_a_name_that_was_allowed_is_the_sandboxs_own_and_another_site_stays_another() -> None:
    with Sandbox(allow_hosts=["Sandbox"]) as sandbox, httpx.Client(base_url=sandbox.url, trust_env=False) as control:
        named = f"sandbox:{control.base_url.port}"
        own = {"Origin": f"http://{named}", "Sec-Fetch-Site": "same-origin"}
        data(control.post("/sandbox/reset", headers={"Host": named, **own}))
        for name in ("SANDBOX", f"localhost:{control.base_url.port}"):
            data(control.get("/sandbox/state", headers={"Host": name}))
        assert control.get("/", headers={"Host": named}).status_code == 200
        for headers in (
            {"Host": "other"},
            {"Host": f"evil.{named}"},
            {"Host": named, "Origin": "https://evil.example"},
            {"Host": named, "Origin": "http://sandbox:1"},
            {"Host": named, "Sec-Fetch-Site": "cross-site"},
        ):
            assert refusal(control.get("/sandbox/state", headers=headers)) == (403, "FORBIDDEN")
