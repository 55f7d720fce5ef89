"""How GET /transactions takes its parameters: what it refuses, what it ignores, which formats it understands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final
from uuid import uuid4

from momopay.probe.answers import Answer
from momopay.probe.findings import UNKNOWN, Findings
from momopay.probe.history import History, Seen
from momopay.probe.reads import LIST, add_outcome, read_one
from momopay.probe.wire import Wire

_NONSENSE: Final = "MOMOPAY_PROBE"
_NONSENSES: Final = (
    ("unknown_status_filter", "status", _NONSENSE),
    ("invalid_cursor", "cursor", _NONSENSE),
    ("invalid_time_filter", "from", _NONSENSE),
    ("invalid_amount_filter", "amountMin", _NONSENSE),
    ("invalid_channel_filter", "channelId", _NONSENSE),
)
_LIMITS: Final = (("limit_of_zero", "0"), ("limit_above_100", "101"))
_LARGEST_PAGE: Final = 100
# Milliseconds last: who takes seconds would take these for the year 1,031,000.
_FORMATS: Final = (
    ("time", "2999-01-01T00:00:00Z"),
    ("date", "2999-01-01"),
    ("seconds", "32472144000"),
    ("milliseconds", "32472144000000"),
)


def ask_for_refusals(wire: Wire, findings: Findings, history: History) -> Answer:
    """Ask with parameters that are invalid, or that nothing is specified about; return the answer to no time."""
    for name, limit in _LIMITS:
        _note_limit(findings, name, limit, wire.get(LIST, limit=limit), history)
    outcomes: dict[str, Answer] = {}
    for name, parameter, value in _NONSENSES:
        # A page of one item: only whether it is refused matters.
        query = {"limit": "1", parameter: value}
        answer = wire.get(LIST, **query)
        what = f"A list with {parameter}={value}"
        outcomes[name] = answer
        if not answer.is_success:
            add_outcome(findings, name, what, answer)
        elif not history.items:
            findings.add(name, UNKNOWN, f"{what} was accepted, and there is nothing to list.", answer)
        else:
            # A cursor that starts the list again, or a filter that is ignored, shows what was not asked for.
            effect = "ignored" if answer.items else "nothing listed"
            findings.add(name, f"accepted, {effect}", f"{what} was accepted: {effect}.", answer)
    answer = wire.get(LIST, limit="1", momopayProbe="1")
    add_outcome(findings, "unknown_parameter", "A list with momopayProbe=1", answer)
    answer = wire.get(LIST, limit=str(_LARGEST_PAGE), status="EXPIRED")
    _note_filter(findings, "expired_status_filter", "status=EXPIRED", answer, history, lambda each: each.has_expired)
    answer = wire.get(LIST, limit=str(_LARGEST_PAGE), type="WALLET_TOPUP")
    _note_filter(findings, "top_up_type_filter", "type=WALLET_TOPUP", answer, history, lambda each: each.is_top_up)
    return outcomes["invalid_time_filter"]


def _note_limit(findings: Findings, name: str, limit: str, answer: Answer, history: History) -> None:
    what, count = f"A list with limit={limit}", len(answer.items)
    # A page that may be the whole list shows no limit.
    is_a_page = count < len(history.items) or (count == _LARGEST_PAGE and history.has_more)
    if not answer.is_success:
        add_outcome(findings, name, what, answer)
    elif is_a_page or count > _LARGEST_PAGE:
        taken = "no limit" if count > _LARGEST_PAGE + 1 else str(count)
        findings.add(name, f"accepted as {taken}", f"{what} was accepted, and showed {count} transactions.", answer)
    else:
        sentence = f"{what} was accepted, and the account has too few transactions to tell as which limit."
        findings.add(name, UNKNOWN, sentence, answer)


def _note_filter(
    findings: Findings, name: str, query: str, answer: Answer, history: History, is_meant: Callable[[Seen], bool]
) -> None:
    listed, what = History(answer).items, f"A list with {query}"
    if not answer.is_success or not history.items:
        add_outcome(findings, name, what, answer)
    elif not all(map(is_meant, listed)):
        findings.add(name, "accepted, ignored", f"{what} was accepted, and showed others.", answer)
    elif not listed and any(map(is_meant, history.items)):
        sentence = f"{what} was accepted, and showed none, though the account has some."
        findings.add(name, "accepted, nothing listed", sentence, answer, history.answer)
    else:
        findings.add(name, "accepted", f"{what} was accepted, and showed no others.", answer)


def ask_for_formats(wire: Wire, findings: Findings, history: History, no_time: Answer) -> None:
    """Ask for transactions from a day far in the future: whoever understands the format shows none."""
    if not history.items:
        return
    if no_time.is_success and not no_time.items:
        # As empty as the list of a time that is understood.
        findings.add("time_formats", UNKNOWN, "A list from what is no time was empty.", no_time)
        return
    answers: dict[str, Answer] = {}
    for name, value in _FORMATS:
        if name == "milliseconds" and _is_understood(answers["seconds"]):
            break
        answers[name] = wire.get(LIST, **{"limit": "1", "from": value})
    understood = [name for name, answer in answers.items() if _is_understood(answer)]
    # Who answers what is no time with a 5xx, does so for a format that it does not understand. Or it is down.
    fails = (no_time.status or 0) >= 500 and bool(understood)  # noqa: PLR2004
    if any(not each.is_success and not each.is_refusal and not (fails and each.envelope) for each in answers.values()):
        seen = ", ".join(f"{name}: {answer.summary}" for name, answer in answers.items())
        findings.add("time_formats", UNKNOWN, f"A list from the year 2999 on got {seen}.", *answers.values())
        return
    seen = ", ".join(f"{name}: {_shown(answer.is_success, len(answer.items))}" for name, answer in answers.items())
    sentence = f"A list from the year 2999 on was given in {len(answers)} formats ({seen})."
    findings.add("time_formats", understood, sentence, *answers.values())


def _is_understood(answer: Answer) -> bool:
    return answer.is_success and not answer.items


def ask_for_texts(wire: Wire, findings: Findings, history: History) -> None:
    """Ask for a transaction by each of its texts."""
    if not history.items:
        return
    control = wire.get(LIST, limit="1", q=f"momopay-probe-{uuid4().hex}")
    if not control.is_success or control.items:
        # A refusal shows nothing, and a list that q does not shorten would show every transaction as found.
        value, shown = (
            (False, "still showed transactions") if control.is_success else (UNKNOWN, f"got {control.summary}")
        )
        for name in ("ids", "phones", "references", "parts"):
            findings.add(f"q_finds_{name}", value, f"A list with a q that no transaction has {shown}.", control)
        return
    item = next((each for each in history.items if each.reference), history.items[0])
    phone = item.phone if item.phone.isdigit() else read_one(wire, item.id)[0].phone
    part = item.reference[2:] if len(item.reference) > 3 else ""  # noqa: PLR2004  less may be in any text
    for name, text in (("ids", item.id), ("phones", phone), ("references", item.reference), ("parts", part)):
        answer = wire.get(LIST, limit="100", q=text) if text else control
        if text and answer.is_success:
            found = History(answer).find(item.id) is not None
            by = "a part of its reference" if name == "parts" else f"one of its {name}"
            sentence = f"A transaction was {'found' if found else 'not found'} by {by}."
            findings.add(f"q_finds_{name}", found, sentence, answer)


def _shown(is_success: bool, count: int) -> str:
    return ("nothing listed" if not count else "everything listed") if is_success else "refused"
