"""How GET /transactions takes its parameters: what it refuses, what it ignores, which formats it understands."""

from __future__ import annotations

from typing import Final
from uuid import uuid4

from momopay.probe.answers import Answer
from momopay.probe.findings import UNKNOWN, Findings
from momopay.probe.history import History
from momopay.probe.reads import LIST, add_outcome, read_one
from momopay.probe.wire import Wire

_NONSENSE: Final = "MOMOPAY_PROBE"
_INVALID: Final = (
    ("limit_of_zero", "limit", "0"),
    ("limit_above_100", "limit", "101"),
    ("unknown_status_filter", "status", _NONSENSE),
    ("expired_status_filter", "status", "EXPIRED"),
    ("top_up_type_filter", "type", "WALLET_TOPUP"),
    ("invalid_cursor", "cursor", _NONSENSE),
    ("unknown_parameter", "momopayProbe", "1"),
    ("invalid_time_filter", "from", _NONSENSE),
    ("invalid_amount_filter", "amountMin", _NONSENSE),
)
_FORMATS: Final = (("time", "2999-01-01T00:00:00Z"), ("date", "2999-01-01"), ("seconds", "32472144000"))


def ask_for_refusals(wire: Wire, findings: Findings, history: History) -> Answer:
    """Ask with parameters that are invalid, or that nothing is specified about; return the answer to no time."""
    outcomes: dict[str, Answer] = {}
    for name, parameter, value in _INVALID:
        # A page of one item: only whether it is refused matters.
        query = {"limit": "1", parameter: value}
        answer = wire.get(LIST, **query)
        what = f"A list with {parameter}={value}"
        outcomes[name] = answer
        if value != _NONSENSE or not answer.is_success or answer.is_page:
            add_outcome(findings, name, what, answer)
        elif not history.items:
            findings.add(name, UNKNOWN, f"{what} was accepted, and there is nothing to list.", answer)
        else:
            # A cursor that starts the list again, or a filter that is ignored, shows what was not asked for.
            effect = "ignored" if answer.items else "nothing listed"
            findings.add(name, f"accepted, {effect}", f"{what} was accepted: {effect}.", answer)
    return outcomes["invalid_time_filter"]


def ask_for_formats(wire: Wire, findings: Findings, history: History, no_time: Answer) -> None:
    """Ask for transactions from a day far in the future: whoever understands the format shows none."""
    if not history.items:
        return
    if no_time.is_success and not no_time.items:
        # As empty as the list of a time that is understood.
        findings.add("time_formats", UNKNOWN, "A list from what is no time was empty.", no_time)
        return
    answers = {name: wire.get(LIST, **{"limit": "1", "from": value}) for name, value in _FORMATS}
    if any(not answer.is_success and not answer.is_refusal for answer in answers.values()):
        seen = ", ".join(f"{name}: {answer.summary}" for name, answer in answers.items())
        findings.add("time_formats", UNKNOWN, f"A list from the year 2999 on got {seen}.", *answers.values())
        return
    understood = [name for name, answer in answers.items() if answer.is_success and not answer.items]
    seen = ", ".join(f"{name}: {_shown(answer.is_success, len(answer.items))}" for name, answer in answers.items())
    sentence = f"A list from the year 2999 on was given as a time, as a date and as seconds since 1970 ({seen})."
    findings.add("time_formats", understood, sentence, *answers.values())


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
        for name in ("ids", "phones", "references"):
            findings.add(f"q_finds_{name}", value, f"A list with a q that no transaction has {shown}.", control)
        return
    item = next((each for each in history.items if each.reference), history.items[0])
    phone = item.phone if item.phone.isdigit() else read_one(wire, item.id)[0].phone
    for name, text in (("ids", item.id), ("phones", phone), ("references", item.reference)):
        answer = wire.get(LIST, limit="100", q=text) if text else control
        if text and answer.is_success:
            found = History(answer).find(item.id) is not None
            sentence = f"A transaction was {'found' if found else 'not found'} by one of its {name}."
            findings.add(f"q_finds_{name}", found, sentence, answer)


def _shown(is_success: bool, count: int) -> str:
    return ("nothing listed" if not count else "everything listed") if is_success else "refused"
