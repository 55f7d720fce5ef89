"""What reads of the wallet and the channels show, and how the service refuses."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final
from uuid import uuid4

from momopay.probe.answers import Answer, field_of, is_uuid
from momopay.probe.findings import UNKNOWN, Findings
from momopay.probe.history import History, Seen
from momopay.probe.wire import THROTTLED, Wire, segment

CHANNELS: Final = "/payment-wallet/channels"
LIST: Final = "/transactions"
BALANCE: Final = "/wallets/service/balance"


def read_balance(wire: Wire, findings: Findings) -> None:
    """Read the service wallet."""
    answer = wire.get(BALANCE)
    if not answer.data:
        return
    names = sorted(answer.data)
    findings.add("balance_fields", names, "These are the fields of the service wallet.", answer)
    available = field_of(answer.data, "availableBalance", "available_balance")
    if available is not None:
        kind = "text" if isinstance(available, str) else "numbers"
        findings.add("amounts", kind, f"The balance of the service wallet is shown as {kind}.", answer)


def read_channels(wire: Wire, findings: Findings) -> Answer:
    """List the channels, and return the answer."""
    answer = wire.get(CHANNELS)
    if answer.items:
        names = sorted({name for channel in answer.items for name in channel})
        findings.add("channel_fields", names, "The channels have these fields.", answer)
        categories = sorted({str(channel["category"]) for channel in answer.items if channel.get("category")})
        findings.add("channel_categories", categories, "These categories are in the list of channels.", answer)
    return answer


def read_history(wire: Wire) -> History:
    """Return the newest transactions."""
    return History(wire.get(LIST, limit="100"))


def read_one(wire: Wire, transaction_id: str) -> tuple[Seen, Answer]:
    """Read one transaction by its id."""
    answer = wire.get(f"{LIST}/{segment(transaction_id)}")
    return Seen(answer.data), answer


def read_refusals(wire: Wire, findings: Findings) -> None:
    """Ask for what does not exist."""
    missing = wire.get(f"/transactions/{uuid4()}")
    add_outcome(findings, "transaction_not_found", "A transaction that does not exist", missing)
    if missing.is_refusal and missing.status is not None and not missing.is_page:
        sentence = f"A read of a transaction that does not exist got {missing.summary}."
        findings.add("transaction_not_found_status", missing.status, sentence, missing)
        if missing.error:
            details: object = missing.error.get("details")
            kinds: dict[type, str] = {dict: "an object", list: "a list", str: "text"}
            shown = "missing" if "details" not in missing.error else kinds.get(type(details), "null")
            findings.add("error_details", shown, f"The details of a refusal without any are {shown}.", missing)
    malformed = wire.get("/transactions/momopay-probe")
    add_outcome(findings, "malformed_transaction_id", "An id that is no UUID", malformed)
    nowhere = wire.get("/momopay-probe")
    add_outcome(findings, "unknown_path", "A path that does not exist", nowhere)


def add_outcome(findings: Findings, name: str, what: str, answer: Answer) -> None:
    """Record how the service answered a request that it may refuse."""
    if answer.is_success and answer.envelope:  # a page of a proxy may be a 200, too
        findings.add(name, "accepted", f"{what} was accepted.", answer)
    elif answer.is_refusal:
        findings.add(name, answer.summary, f"{what} got {answer.summary}.", answer)
    else:
        findings.add(name, UNKNOWN, f"{what} got {answer.summary}.", answer)


def note_all(findings: Findings, answers: Iterable[Answer]) -> None:
    """Record what all answers have in common."""
    answers = list(answers)
    failed = [each for each in answers if each.status is not None and each.status >= 500 and each.code]  # noqa: PLR2004
    if failed:
        codes = ", ".join(sorted({each.code for each in failed if each.code}))
        findings.add("server_error_code", codes, f"{len(failed)} reads failed.", *failed)
    # What has no envelope may come from a proxy on the way.
    enveloped = [each for each in answers if "success" in each.envelope and each.status != THROTTLED]
    successes = [each for each in enveloped if each.is_success]
    if successes:
        statuses = sorted({str(each.status) for each in successes})
        findings.add("read_statuses", statuses, f"{len(successes)} reads succeeded.", *successes)
    if enveloped:
        always = all(is_uuid(each.envelope.get("requestId")) for each in enveloped)
        kind = "always a UUID" if always else "not always a UUID"
        findings.add("request_id", kind, f"The requestId of {len(enveloped)} answers is {kind}.", *enveloped)
        names = headers_about_rate(enveloped)
        sentence = f"{len(enveloped)} ordinary answers had {', '.join(names) or 'no headers'} about the limit."
        findings.add("rate_headers", names, sentence, *enveloped)
        found = sorted({name for each in enveloped for name in each.headers if name in {"deprecation", "sunset"}})
        sentence = f"{len(enveloped)} answers had {', '.join(found) or 'no header'} about a deprecation."
        findings.add("deprecation_headers", found, sentence, *enveloped)


def headers_about_rate(answers: Iterable[Answer]) -> list[str]:
    """Return the names of the headers that show a rate limit."""
    return sorted({name for each in answers for name in each.headers if "ratelimit" in name or "rate-limit" in name})
