"""One run of the probe, from the cheapest question to the dearest."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import UTC, datetime

import momopay
from momopay.errors import APIConnectionError, ProtocolError
from momopay.probe.answers import Answer
from momopay.probe.channels import ask_by_channel, own_channels, remove_left_over
from momopay.probe.filters import ask_for_formats, ask_for_refusals, ask_for_texts
from momopay.probe.findings import UNKNOWN, Findings
from momopay.probe.profile import Profile
from momopay.probe.prompt import Spend, ask_by_prompt
from momopay.probe.reads import note_all, read_balance, read_channels, read_history, read_refusals
from momopay.probe.transactions import look_at_history
from momopay.probe.window import WindowProbe
from momopay.probe.wire import Wire

logger: logging.Logger = logging.getLogger("momopay")


def probe(
    client: momopay.Client,
    *,
    write: bool = False,
    rate: bool = False,
    spend: Spend | None = None,
    note: Callable[[str], object] = logger.warning,
) -> Profile:
    """Ask a service what its description leaves open, and return what was seen.

    Without options it only reads, about 30 times, within the rate budget of the client. Any answer is evidence: HTML, a
    5xx or a missing envelope makes a finding, or leaves one unknown. If the first reads get nothing else, it ends.

    Args:
        client: The client whose key, address, connections and rate budget are used.
        write: Also create, change and delete a channel of its own. It is deleted at the end, also after an error or
            an interrupt; if the process is killed, the next run with `write` finds it by its name, and deletes it.
        rate: Also find the window of the rate limit, at the end, by using up a minute's requests in about three
            minutes. Until a minute after it, other programs with the key get 429.
        spend: Also send one prompt, and follow it for five minutes at most. If an earlier one in its journal has not
            ended, that is followed instead. It moves this amount at most, and the service's fee.
        note: Called with a sentence before each thing that leaves a trace; by default it is logged.

    Returns:
        What was found.

    Raises:
        InvalidApiKeyError: The service refused the key.
        APIConnectionError: The service was not reached, or answered each of the first reads with a 5xx.
        ProtocolError: None of the first answers has the service's envelope. Nothing was written or sent.
        BudgetExhaustedError: Others used up the rate budget of the key for minutes.
        OutcomeUnknownError: The prompt may have been sent, and the customer may pay it. Probe again with the same
            journal: it searches, and sends no other one.
        ConfigurationError: The journal belongs to another account, or has an open prompt to another phone.
    """
    wire = Wire(client)
    findings = Findings([wire.key])
    read_balance(wire, findings)
    channels = read_channels(wire, findings)
    read_refusals(wire, findings)
    history = read_history(wire)
    _check_that_it_is_the_service(wire)
    look_at_history(wire, findings, history)
    no_time = ask_for_refusals(wire, findings, history)
    created: list[Answer] = []
    if write:
        remove_left_over(wire, channels, note)
        created.append(ask_by_channel(wire, findings, note))
    elif own_channels(channels):
        note("An earlier probe was killed and left a channel: `momopay probe --write` deletes it.")
    if spend is not None:
        prompt = ask_by_prompt(client, wire, findings, spend, note)
        created += [] if prompt is None else [prompt]
        history = read_history(wire)  # now it has a transaction
    _note_created(findings, created)
    ask_for_formats(wire, findings, history, no_time)
    ask_for_texts(wire, findings, history)
    note_all(findings, wire.reads)
    if rate:  # last, as it leaves no request for anything else
        WindowProbe(wire, findings).run(note)
    asked = {"reads": True, "write": write, "rate": rate, "spend": spend is not None}
    kind = "test" if wire.key.startswith("pk_test_") else "live"
    options = tuple(name for name, wanted in asked.items() if wanted)
    return Profile(findings.all(asked=options), wire.host, kind, options, datetime.now(UTC))


def _check_that_it_is_the_service(wire: Wire) -> None:
    """Raise before anything is written or sent to a proxy's pages, or an earlier profile is replaced by them."""
    statuses = sorted({answer.status for answer in wire.reads if answer.status is not None})
    shown = ", ".join(map(str, statuses))
    if all(status >= 500 for status in statuses):  # noqa: PLR2004  the server's own
        raise APIConnectionError(f"the service failed at every read ({shown})")
    if not any("success" in answer.envelope for answer in wire.reads):
        raise ProtocolError(f"no answer has the service's envelope ({shown})", status_code=statuses[0])


def _note_created(findings: Findings, created: list[Answer]) -> None:
    answers = [answer for answer in created if answer.is_success]
    statuses = {answer.status for answer in answers if answer.status is not None}
    if statuses:
        sentence = f"What was created got {', '.join(map(str, sorted(statuses)))}."
        findings.add("created_status", statuses.pop() if len(statuses) == 1 else UNKNOWN, sentence, *answers)
