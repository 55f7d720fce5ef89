"""Which fields a new channel needs, as the details of refusals name them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final, cast

from momopay.probe.answers import Answer
from momopay.probe.findings import UNKNOWN, Findings
from momopay.probe.reads import CHANNELS, add_outcome
from momopay.probe.wire import Wire, segment

_FIELDS: Final = ("name", "type", "shortcode", "accountNumber", "isDefault")


def ask_for_required_fields(wire: Wire, findings: Findings, whole: Mapping[str, object]) -> None:
    """Send an empty object, then what the refusal names: some services name one field at a time."""
    answer = wire.change("POST", CHANNELS, {})
    add_outcome(findings, "invalid_body", "A new channel from an empty object", answer)
    required, answers = set[str](), list[Answer]()
    while answer.is_refusal:
        answers.append(answer)
        named = set(_fields_in(answer.error.get("details"))).intersection(_FIELDS) - required
        required |= named
        if not named or not whole.keys() - required - {"isDefault"}:
            break
        answer = wire.change("POST", CHANNELS, {key: whole[key] for key in _FIELDS if key in required & whole.keys()})
    if isinstance(identity := answer.data.get("id"), str):
        wire.change("DELETE", f"{CHANNELS}/{segment(identity)}")
    if answers and not answer.is_refusal and not answer.is_success:
        findings.add("required_channel_fields", UNKNOWN, f"The last of these requests got {answer.summary}.", answer)
    elif answers:
        does = "name these fields" if required else "name no field"
        sentence = f"The details of {len(answers)} refusals, of an empty object and of what they named, {does}."
        value: list[str] = [name for name in _FIELDS if name in required]
        findings.add("required_channel_fields", value or UNKNOWN, sentence, *answers)


def _fields_in(details: object, *, is_entry: bool = False) -> Iterator[str]:
    """Yield the names that details of any shape may mean as fields, in camelCase."""
    if isinstance(details, dict):
        for key, value in cast("dict[str, object]", details).items():
            # {"name": ["required"]} names a field; {"field": "name", "type": "missing"}, in a list, does by its values.
            if not is_entry:
                yield _camel(key)
            yield from _fields_in(value)
    elif isinstance(details, list):
        for each in cast("list[object]", details):
            yield from _fields_in(each, is_entry=True)
    elif isinstance(details, str):
        yield _camel(re.split(r"[./]", details)[-1])


def _camel(name: str) -> str:
    return re.sub(r"_([a-z])", lambda match: match[1].upper(), name)
