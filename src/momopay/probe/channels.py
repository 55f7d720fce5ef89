"""What creating, changing and deleting a channel shows. The channel is the probe's own, and is deleted at the end.

Its name says that it is a probe's, so whatever ends a run, the next one finds what was left. It is never the default
channel, and nothing is paid through it.
"""

from __future__ import annotations

import re
import secrets
import string
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, cast
from uuid import uuid4

from momopay.probe.answers import Answer, field_of
from momopay.probe.findings import UNKNOWN, Findings
from momopay.probe.reads import CHANNELS, add_outcome
from momopay.probe.wire import Wire, segment

Note = Callable[[str], object]

# Tills that nobody has; the second pair is for a service that refuses leading zeros. One to create, one to change to.
_SHORTCODES: Final = (("000001", "000002"), ("999991", "999992"))
_OWN_SHORTCODES: Final = frozenset(shortcode for pair in _SHORTCODES for shortcode in pair)
_PREFIX: Final = "momopay probe "
_OWN_NAME: Final = re.compile(re.escape(_PREFIX) + "[a-z]{8}")
_FIELDS: Final = ("name", "type", "shortcode", "accountNumber", "isDefault")
_INVALID: Final = frozenset({400, 422})
_ATTEMPTS: Final = 3


def own_channels(listed: Answer) -> list[Mapping[str, Any]]:
    """Return the channels of a list that a probe made."""
    return [
        channel
        for channel in listed.items
        if isinstance(channel.get("name"), str)
        and _OWN_NAME.fullmatch(channel["name"])
        and channel.get("shortcode") in _OWN_SHORTCODES
    ]


def remove_left_over(wire: Wire, listed: Answer, note: Note) -> None:
    """Delete the channels that earlier probes left."""
    for channel in own_channels(listed):
        note(f"Deleting the channel {channel['name']!r}, which an earlier probe left.")
        _delete(wire, str(channel.get("id")))


def ask_by_channel(wire: Wire, findings: Findings, note: Note) -> Answer:
    """Create, change and delete a channel, and return the answer to its creation."""
    _ask_for_refusal(wire, findings)
    name = _PREFIX + "".join(secrets.choice(string.ascii_lowercase) for _ in range(8))
    # Before it exists: whoever kills this process must be able to read what is left.
    note(
        f"Creating the channel {name!r} (TILL_NUMBER), to be deleted in a moment. If this is killed, the next"
        " `momopay probe --write` deletes it."
    )
    try:
        shortcode, other = _SHORTCODES[0]
        created = wire.change("POST", CHANNELS, _body(name, shortcode))
        if created.status in _INVALID:
            shortcode, other = _SHORTCODES[1]
            created = wire.change("POST", CHANNELS, _body(name, shortcode))
        identity = created.data.get("id")
        add_status(findings, "channel_created_status", "A new channel", created)
        # A default channel would take payments. It was not asked for, so it is deleted at once.
        is_default = field_of(created.data, "isDefault", "is_default")
        if isinstance(identity, str) and is_default is not True:
            _ask_for_changes(wire, findings, identity, name, shortcode, other)
            _ask_for_deletion(wire, findings, identity)
    finally:
        # Whatever the answers said: one that was lost, or a refusal, may have created a channel too.
        _remove(wire, name, note)
    return created


def add_status(findings: Findings, name: str, what: str, answer: Answer) -> None:
    """Record the status of a success."""
    value = answer.status if answer.is_success and answer.status is not None else UNKNOWN
    findings.add(name, value, f"{what} got {answer.summary}.", answer)


def _ask_for_refusal(wire: Wire, findings: Findings) -> None:
    answer = wire.change("POST", CHANNELS, {})
    add_outcome(findings, "invalid_body", "A new channel from an empty object", answer)
    if isinstance(identity := answer.data.get("id"), str):
        _delete(wire, identity)
    if not answer.is_refusal:
        return
    named = set(_fields_in(answer.error.get("details")))
    required: list[str] = [name for name in _FIELDS if name in named]
    does = "name these fields" if required else "name no field"
    sentence = f"The details of the refusal of an empty object {does}."
    findings.add("required_channel_fields", required or UNKNOWN, sentence, answer)


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


def _ask_for_changes(wire: Wire, findings: Findings, identity: str, name: str, shortcode: str, other: str) -> None:
    unknown = wire.change("PATCH", f"{CHANNELS}/{uuid4()}", {"name": "momopay probe"})
    add_outcome(findings, "unknown_channel_patch", "A PATCH of a channel that does not exist", unknown)
    if unknown.is_refusal and unknown.code:
        sentence = f"A PATCH of a channel that does not exist got {unknown.summary}."
        findings.add("patch_unknown_channel", unknown.code, sentence, unknown)
    path = f"{CHANNELS}/{segment(identity)}"
    # Its own name: another one would hide the channel from the next run, if this one is killed.
    renamed = wire.change("PATCH", path, {"name": name})
    add_status(findings, "channel_changed_status", "A PATCH of a channel", renamed)
    changed = wire.change("PATCH", path, {"shortcode": other})
    if changed.is_refusal:
        sentence = f"A PATCH with another shortcode got {changed.summary}."
        findings.add("immutable_channel_fields", "refuse", sentence, changed)
        findings.add("changed_type_or_shortcode", changed.summary, sentence, changed)
    elif changed.is_success:
        read = wire.get(path)
        effect = {shortcode: "ignore", other: "change"}.get(str(read.data.get("shortcode")), UNKNOWN)
        kept = {"ignore": "kept its own", "change": "had the other one"}.get(effect, "could not be read")
        sentence = f"A PATCH with another shortcode got {changed.summary}; the channel {kept} afterwards."
        findings.add("immutable_channel_fields", effect, sentence, changed, read)
        findings.add("changed_type_or_shortcode", effect, sentence, changed, read)


def _ask_for_deletion(wire: Wire, findings: Findings, identity: str) -> None:
    deleted = wire.change("DELETE", f"{CHANNELS}/{segment(identity)}")
    if not deleted.is_success:
        findings.add("delete_answer", UNKNOWN, f"The deletion of a channel got {deleted.summary}.", deleted)
        return
    add_status(findings, "delete_status", "The deletion of a channel", deleted)
    style = UNKNOWN
    if not deleted.body.strip():
        style = "empty"
    elif "success" in deleted.envelope:
        style = "envelope"
    findings.add("delete_answer", style, f"The deletion of a channel got {deleted.summary}.", deleted)
    again = wire.change("DELETE", f"{CHANNELS}/{segment(identity)}")
    add_outcome(findings, "deleted_channel_delete", "The deletion of a deleted channel", again)


def _remove(wire: Wire, name: str, note: Note) -> None:
    """Delete the channel by its name: its id may be in an answer that did not come."""
    is_gone = False
    try:
        is_gone = _is_removed(wire, name)
    finally:
        # Also after an error, such as that of a key that was revoked meanwhile.
        if not is_gone:
            note(
                f"The channel {name!r} may be left: run `momopay probe --write` again, or delete it in the account"
                " console."
            )


def _is_removed(wire: Wire, name: str) -> bool:
    """Delete the channels of that name until the list shows none; return whether it did."""
    for attempt in range(_ATTEMPTS):
        if attempt:
            wire.sleep(2.0 * attempt)
        listed = wire.get(CHANNELS)
        left = [channel for channel in listed.items if channel.get("name") == name]
        if listed.is_success and listed.envelope and not left:
            return True
        for channel in left:
            _delete(wire, str(channel.get("id")))
    return False


def _delete(wire: Wire, identity: str) -> None:
    wire.change("DELETE", f"{CHANNELS}/{segment(identity)}")


def _body(name: str, shortcode: str) -> dict[str, object]:
    return {"name": name, "type": "TILL_NUMBER", "shortcode": shortcode, "isDefault": False}
