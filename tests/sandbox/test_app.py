"""The application: the envelope around everything, and the pages."""

import httpx
import pytest

from momopay.sandbox import Sandbox
from sandbox.kit import KEY, Service, data, refusal


def test_unknown_paths_and_methods_get_an_envelope(api: httpx.Client, control: httpx.Client) -> None:
    for client, path in ((api, "/nope"), (control, "/nope"), (control, "/v1"), (api, "/transactions/")):
        assert refusal(client.get(path)) == (404, "NOT_FOUND")
    response = api.put("/payments/stk")
    assert refusal(response) == (405, "METHOD_NOT_ALLOWED")
    assert response.headers["allow"] == "POST"
    assert api.head("/transactions").status_code == 405


def test_a_defect_of_the_sandbox_is_an_envelope_too(control: httpx.Client, sandbox: Sandbox) -> None:
    engine = vars(sandbox)["_runner"].engine
    vars(engine)["catch_up"] = None
    response = control.get("/sandbox/state")
    del vars(engine)["catch_up"]
    assert refusal(response) == (500, "INTERNAL_ERROR")


def test_every_request_has_an_id_of_its_own(api: httpx.Client) -> None:
    ids = {api.get(path).json()["requestId"] for path in ("/wallets/service/balance", "/transactions", "/nope") * 2}
    assert len(ids) == 6


def test_the_status_of_a_creation_is_a_switch(service: Service, sandbox: Sandbox) -> None:
    sandbox.account(KEY).switches.created_status = 201
    for response in (service.stk(), service.payout(), service.top_up(), service.channel()):
        assert response.status_code == 201
    assert service.api.get("/transactions").status_code == 200


def test_the_answer_to_a_deletion_is_a_switch(service: Service, sandbox: Sandbox) -> None:
    path = "/payment-wallet/channels/"
    assert data(service.api.delete(path + data(service.channel())["id"])) == {}
    sandbox.account(KEY).switches.delete_answer = "empty"
    response = service.api.delete(path + data(service.channel())["id"])
    assert (response.status_code, response.content) == (204, b"")


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
