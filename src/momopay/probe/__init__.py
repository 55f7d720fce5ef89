"""Finds out what a service does where its description leaves that open, and keeps what was seen in a profile.

``momopay probe`` does this from a terminal. A sandbox that loads a profile behaves as the service did.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import momopay
from momopay._redaction import key_mode
from momopay.errors import MomoPayError
from momopay.probe.channels import ask_by_channel, own_channels
from momopay.probe.profile import FORMAT, ROWS, Change, Cost, Finding, Findings, Profile, Row
from momopay.probe.prompt import Spend, ask_by_spending
from momopay.probe.reads import add_what_is_common, ask_for_window, look_at_transactions, read_account
from momopay.probe.wire import Wire

__all__ = ["ROWS", "Change", "Cost", "Finding", "Profile", "Row", "Spend", "probe"]

logger: logging.Logger = logging.getLogger("momopay")


def probe(
    client: momopay.Client,
    *,
    write: bool = False,
    rate: bool = False,
    spend: Spend | None = None,
    note: Callable[[str], object] = logger.warning,
    save: Callable[[Profile], object] = lambda _profile: None,
) -> Profile:
    """Ask a service what its description leaves open, and return what was seen.

    By default it only reads, about 20 times, within the client's rate budget. Every response is evidence: HTML, a 5xx
    or a 401 makes a finding, or leaves one unknown. An error in one step does not stop the next one; the first error is
    raised at the end.

    Args:
        client: The client whose key, address, connections and rate budget are used.
        write: Also create, change and delete a channel of its own. The channel is always deleted and the default
            channel restored. If the process is killed, the next run with `write` deletes the channel.
        rate: Also use up a minute's requests. Until a minute after it, other programs with the key get 429.
        spend: Also send and follow one or two prompts; and send a payout, and again with its key, at once and after 15
            minutes.
        note: Called with a sentence before each step that leaves a trace. The default logs it.
        save: Called after each step with what was found so far.

    Raises:
        ProtocolError: None of the first responses has the service's envelope. Nothing was written or sent.
        OutcomeUnknownError: A prompt or a payout may have been sent. Probing again with the same journal sends no
            second one.
        ConfigurationError: The journal belongs to another account, or an earlier probe's payment in it has not ended.
    """
    wire = Wire(client)
    findings = Findings(wire.key)
    channels, listed = read_account(wire, findings)
    steps: list[tuple[str, Callable[[], object]]] = [("reads", lambda: look_at_transactions(wire, findings, listed))]
    if write:
        steps.append(("write", lambda: ask_by_channel(wire, findings, channels, note)))
    elif own_channels(channels):
        note("An earlier probe was killed and left a channel: `momopay probe --write` deletes it.")
    if spend is not None:
        steps.append(("spend", lambda: ask_by_spending(client, wire, findings, spend, note)))
    if rate:  # last, because it leaves no request for anything else
        steps.append(("rate", lambda: ask_for_window(wire, findings, note)))
    about: dict[str, Any] = {
        "format": FORMAT,
        "momopay": momopay.__version__,
        "date": datetime.now(UTC).replace(microsecond=0),
    }
    about |= {"host": wire.host, "key": key_mode(wire.key), "asked": []}
    profile = Profile(findings.found, about)
    failures: list[MomoPayError] = []
    for option, ask in steps:
        about = {**about, "asked": sorted([*about["asked"], option])}
        try:
            ask()
        except MomoPayError as error:
            failures.append(error)
            if option == "reads":  # nothing is written or sent to a service that stopped answering
                break
        finally:
            add_what_is_common(findings, wire.reads)
            profile = Profile(dict(findings.found), about)
            save(profile)
    if failures:
        raise failures[0]
    return profile
