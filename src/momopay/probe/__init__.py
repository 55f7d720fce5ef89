"""Finds out what a service does where its description leaves that open, and keeps what was seen in a profile.

``momopay probe`` does this from a terminal. A sandbox that loads a profile behaves as the service did.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import UTC, datetime

import momopay
from momopay._redaction import key_mode
from momopay.errors import MomoPayError
from momopay.probe.channels import ask_by_channel, own_channels
from momopay.probe.profile import FORMAT, ROWS, Change, Cost, Finding, Findings, Profile, Row
from momopay.probe.prompt import Spend, ask_by_spending
from momopay.probe.reads import add_what_is_common, look_at_transactions, read_account, read_list
from momopay.probe.window import ask_for_window
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

    By default it only reads, about 40 times, within the client's rate budget. Every response is evidence: HTML, a 5xx
    or a 401 makes a finding, or leaves one unknown. An error in one step does not stop the next one; the first error is
    raised at the end.

    Args:
        client: The client whose key, address, connections and rate budget are used.
        write: Also create, change and delete a channel of its own. The channel is always deleted and the default
            channel restored. If the process is killed, the next run with `write` deletes the channel.
        rate: Also use up a minute's requests. Until a minute after it, other programs with the key get 429.
        spend: Also send and follow one or two prompts, or follow one of an earlier run that has not ended; and send a
            payout again with its key, at once and after 15 minutes.
        note: Called with a sentence before each step that leaves a trace. The default logs it.
        save: Called after each step with what was found so far.

    Raises:
        ProtocolError: None of the first responses has the service's envelope. Nothing was written or sent.
        OutcomeUnknownError: A prompt or a payout may have been sent. Probing again with the same journal sends no
            second one.
        ConfigurationError: The journal belongs to another account, or has an open prompt to another phone.
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
        if not listed.transactions:  # there may be one then
            steps.append(("spend", lambda: look_at_transactions(wire, findings, read_list(wire))))
    if rate:  # last, because it leaves no request for anything else
        steps.append(("rate", lambda: ask_for_window(wire, findings, note)))
    asked: list[str] = []
    failures: list[MomoPayError] = []
    for option, ask in steps:
        asked.append(option)
        try:
            ask()
        except MomoPayError as error:
            failures.append(error)
            if option == "reads":  # nothing is written or sent to a service that stopped answering
                break
        finally:
            save(_profile(wire, findings, asked))
    if failures:
        raise failures[0]
    return _profile(wire, findings, asked)


def _profile(wire: Wire, findings: Findings, asked: list[str]) -> Profile:
    add_what_is_common(findings, wire.reads)
    about = {
        "format": FORMAT,
        "momopay": momopay.__version__,
        "date": datetime.now(UTC).replace(microsecond=0),
        "host": wire.host,
        "key": key_mode(wire.key),
        "asked": sorted(set(asked)),
    }
    return Profile(dict(findings.found), about)
