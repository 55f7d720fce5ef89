"""One run of the probe, from the cheapest question to the dearest."""

from __future__ import annotations

from datetime import UTC, datetime

import momopay
from momopay.probe.filters import ask_for_formats, ask_for_refusals, ask_for_texts
from momopay.probe.findings import Findings
from momopay.probe.profile import Profile
from momopay.probe.reads import note_all, read_balance, read_channels, read_history, read_refusals
from momopay.probe.transactions import look_at_history
from momopay.probe.wire import Wire


def probe(client: momopay.Client) -> Profile:
    """Ask a service what its description leaves open, and return what was seen.

    Any answer is evidence: HTML, a 5xx or a missing envelope makes a finding, or leaves one unknown. Only a key that is
    refused, and a service that is never reached, end it. About 30 reads, within the rate budget of the client.

    Args:
        client: The client whose key, address, connections and rate budget are used.

    Raises:
        InvalidApiKeyError: The service refused the key.
        APIConnectionError: The service was not reached.
        BudgetExhaustedError: Others used up the rate budget of the key for minutes.
    """
    wire = Wire(client)
    findings = Findings([wire.key])
    read_balance(wire, findings)
    read_channels(wire, findings)
    read_refusals(wire, findings)
    history = read_history(wire)
    look_at_history(wire, findings, history)
    ask_for_refusals(wire, findings)
    ask_for_formats(wire, findings, history)
    ask_for_texts(wire, findings, history)
    note_all(findings, wire.answers)
    kind = "test" if wire.key.startswith("pk_test_") else "live"
    return Profile(findings.all(), wire.host, kind, ("reads",), datetime.now(UTC))
