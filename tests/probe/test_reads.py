"""What one answer proves: that the service accepted a request, that it refused it, or nothing."""

from __future__ import annotations

import pytest

from momopay.probe.answers import Answer
from momopay.probe.findings import Findings
from momopay.probe.reads import add_outcome


@pytest.mark.parametrize(
    ("status", "body", "found"),
    [
        (200, b'{"success": true, "data": {}}', "accepted"),
        (404, b'{"success": false, "error": {"code": "GONE"}}', "404 GONE"),
        (200, b"<html>Please log in</html>", "unknown"),
        (200, b"", "unknown"),
        (None, b"", "unknown"),
    ],
)
def test_a_page_of_a_proxy_is_no_acceptance(status: int | None, body: bytes, found: str) -> None:
    findings = Findings([])
    add_outcome(findings, "unknown_path", "A path that does not exist", Answer(status, {}, body))
    assert findings.all()["unknown_path"].value == found
