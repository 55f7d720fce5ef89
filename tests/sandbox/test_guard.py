"""Other web sites are kept out of the pages and the control routes."""

import httpx
import pytest

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
def test_other_sites_are_refused(control: httpx.Client, headers: dict[str, str]) -> None:
    for method, path in (("POST", "/sandbox/reset"), ("GET", "/sandbox/state"), ("GET", "/sandbox/events")):
        assert refusal(control.request(method, path, headers=headers)) == (403, "FORBIDDEN")


def test_a_link_may_lead_to_a_page_but_not_under_another_name(control: httpx.Client) -> None:
    for path in ("/", "/docs"):
        assert control.get(path, headers={"Sec-Fetch-Site": "cross-site"}).status_code == 200
        assert refusal(control.get(path, headers={"Host": "evil.example"})) == (403, "FORBIDDEN")


def test_its_own_page_is_let_in(control: httpx.Client) -> None:
    origin = str(control.base_url).rstrip("/")
    data(control.post("/sandbox/reset", headers={"Origin": origin, "Sec-Fetch-Site": "same-origin"}))
    data(control.get("/sandbox/state", headers={"Host": f"localhost:{control.base_url.port}"}))
