"""The two pages as they are served; `test_page_html.py` runs them in a browser."""

import httpx
import pytest


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
