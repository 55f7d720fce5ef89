"""Findings: no secret gets past them, and what is unknown replaces nothing."""

from __future__ import annotations

import json

from momopay.probe.answers import Answer
from momopay.probe.findings import Findings

KEY = "a-key-of-another-shape"


def answer(**envelope: object) -> Answer:
    return Answer(200, {}, json.dumps({"success": True, **envelope}).encode())


def test_no_secret_gets_past() -> None:
    findings = Findings([KEY, ""])
    texts = [KEY, "254712345678", "0712 345 678", "pk_live_secret", "fine\x1b[2J\n"]
    ids = [answer(requestId=KEY), answer(requestId="0712345678"), answer(requestId="254712345678")]
    findings.add("list_fields", texts, " ".join(texts), *ids)
    findings.add("unknown_path", f"404 {KEY}", "", Answer(404, {"x-request-id": "of-the-header"}))
    found = findings.all()
    shown = repr([found["list_fields"], found["unknown_path"]])
    for secret in (KEY, "712345678", "712 345 678", "secret", "\x1b"):
        assert secret not in shown
    assert found["unknown_path"].request_ids == ("of-the-header",)


def test_the_unknown_replaces_nothing() -> None:
    findings = Findings([])
    findings.add("delete_answer", "empty", "Seen.")
    findings.add("delete_answer", "unknown", "Not seen.")
    assert findings.all()["delete_answer"].sentence == "Seen."
    findings.add("delete_answer", "envelope", "Seen later.")
    assert findings.all()["delete_answer"].value == "envelope"


def test_a_value_that_the_sandbox_does_not_have_is_unknown() -> None:
    findings = Findings([])
    findings.add("transaction_not_found_status", 422, "It got 422.")
    assert findings.all()["transaction_not_found_status"].value == "unknown"
    assert "422" in findings.all()["transaction_not_found_status"].sentence
