"""What creating, changing and deleting a channel shows. The channel is the probe's own, and is deleted at the end.

Its name says that it is a probe's, so whatever ends a run, the next one finds what was left. It is never the default
channel, and nothing is paid through it.
"""

from __future__ import annotations

import re
import secrets
import string
from collections.abc import Callable, Mapping
from typing import Any, Final
from uuid import uuid4

from momopay.probe.answers import Answer, field_of
from momopay.probe.findings import UNKNOWN, Findings
from momopay.probe.reads import CHANNELS, add_outcome
from momopay.probe.required_fields import ask_for_required_fields
from momopay.probe.wire import Wire, segment

Note = Callable[[str], object]

# Tills that nobody has; the second pair is for a service that refuses leading zeros. One to create, one to change to.
_SHORTCODES: Final = (("000001", "000002"), ("999991", "999992"))
_OWN_SHORTCODES: Final = frozenset(shortcode for pair in _SHORTCODES for shortcode in pair)
_PREFIX: Final = "momopay probe "
_OWN_NAME: Final = re.compile(re.escape(_PREFIX) + "[a-z]{8}")
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
    _ask_for_an_unknown_channel(wire, findings)
    name = _PREFIX + "".join(secrets.choice(string.ascii_lowercase) for _ in range(8))
    # Before it exists: whoever kills this process must be able to read what is left.
    note(
        f"Creating the channel {name!r} (TILL_NUMBER), to be deleted in a moment. If this is killed, the next"
        " `momopay probe --write` deletes it."
    )
    try:
        shortcode, other = _SHORTCODES[0]
        ask_for_required_fields(wire, findings, _body(name, shortcode))
        created = wire.change("POST", CHANNELS, _body(name, shortcode))
        if created.status in _INVALID:
            shortcode, other = _SHORTCODES[1]
            created = wire.change("POST", CHANNELS, _body(name, shortcode))
        identity = created.data.get("id")
        add_status(findings, "channel_created_status", "A new channel", created)
        if isinstance(identity, str):
            # A default channel would take payments. It was not asked for, so it is deleted at once.
            if field_of(created.data, "isDefault", "is_default") is True:
                note("The service made the new channel the default. It is deleted: check which one is the default now.")
            else:
                _ask_for_changes(wire, findings, identity, _body(name, shortcode), other)
            _ask_for_deletion(wire, findings, identity)
    finally:
        # Whatever the answers said: one that was lost, or a refusal, may have created a channel too.
        _remove(wire, name, note)
    return created


def add_status(findings: Findings, name: str, what: str, answer: Answer) -> None:
    """Record the status of a success."""
    value = answer.status if answer.is_success and answer.status is not None else UNKNOWN
    findings.add(name, value, f"{what} got {answer.summary}.", answer)


def _ask_for_an_unknown_channel(wire: Wire, findings: Findings) -> None:
    unknown = wire.change("PATCH", f"{CHANNELS}/{uuid4()}", {"name": "momopay probe"})
    add_outcome(findings, "unknown_channel_patch", "A PATCH of a channel that does not exist", unknown)
    if unknown.is_refusal and unknown.code:
        sentence = f"A PATCH of a channel that does not exist got {unknown.summary}."
        findings.add("patch_unknown_channel", unknown.code, sentence, unknown)


def _ask_for_changes(wire: Wire, findings: Findings, identity: str, own: Mapping[str, object], shortcode: str) -> None:
    path = f"{CHANNELS}/{segment(identity)}"
    # Its own name: another one would hide the channel from the next run, if this one is killed.
    renamed = wire.change("PATCH", path, {"name": own["name"]})
    add_status(findings, "channel_changed_status", "A PATCH of a channel", renamed)
    for name, field, other in (("changed_shortcode", "shortcode", shortcode), ("changed_type", "type", "SEND_MONEY")):
        changed = wire.change("PATCH", path, {field: other})
        sentence = f"A PATCH with another {field} got {changed.summary}"
        if changed.is_refusal:
            findings.add(name, changed.summary, f"{sentence}.", changed)
            effect = "refuse"
        elif changed.is_success:
            read = wire.get(path)
            effect = {own[field]: "ignore", other: "change"}.get(str(read.data.get(field)), UNKNOWN)
            kept = {"ignore": "kept its own", "change": "had the other one"}.get(effect, "could not be read")
            sentence = f"{sentence}; the channel {kept} afterwards"
            findings.add(name, effect, f"{sentence}.", changed, read)
        else:
            continue
        if field == "shortcode":
            findings.add("immutable_channel_fields", effect, f"{sentence}.", changed)


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
    if style == "envelope":
        shown = sorted(map(str, deleted.data)) or ["null" if deleted.envelope.get("data") is None else "no fields"]
        findings.add("delete_data", shown, "The data of the answer to the deletion has these fields.", deleted)
    again = wire.change("DELETE", f"{CHANNELS}/{segment(identity)}")
    add_outcome(findings, "deleted_channel_delete", "The deletion of a deleted channel", again)


def _remove(wire: Wire, name: str, note: Note) -> None:
    """Delete the channel by its name: its id may be in an answer that did not come."""
    is_removed = False
    try:
        is_removed = _is_removed(wire, name)
    finally:
        # Also after an error, such as that of a key that was revoked meanwhile.
        if not is_removed:
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
