"""What creating, changing and deleting a channel shows. The channel is the probe's own, and is deleted at the end.

Its name says that it is a probe's, so whatever ends a run, the next one finds what was left. It is not to be the
default channel, and nothing is paid through it.
"""

from __future__ import annotations

import re
import secrets
import string
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias
from uuid import uuid4

from momopay.probe.answers import Answer, field_of
from momopay.probe.profile import Findings
from momopay.probe.reads import CHANNELS, add_created, add_outcome
from momopay.probe.wire import Wire, segment

Note: TypeAlias = Callable[[str], object]

# Tills that nobody has: one to create and one to change to, and two for a service that refuses leading zeros.
_SHORTCODES: Final = ("000001", "000002", "999991", "999992")
_OWN_NAME: Final = re.compile("momopay probe [a-z]{8}")
_INVALID: Final = frozenset({400, 422})
_ATTEMPTS: Final = 3


def own_channels(listed: Answer) -> list[Mapping[str, Any]]:
    """Return the channels of a list that a probe made."""
    return [
        channel
        for channel in listed.items
        if _OWN_NAME.fullmatch(str(channel.get("name"))) and channel.get("shortcode") in _SHORTCODES
    ]


def ask_by_channel(wire: Wire, findings: Findings, listed: Answer, note: Note) -> None:
    """Create, change and delete a channel."""
    left_over = own_channels(listed)
    for channel in left_over:
        note(f"Deleting the channel {channel['name']!r}, which an earlier probe left.")
        _delete(wire, channel.get("id"))
        if _is_default(channel):
            note("It was the default channel: choose the one that is to be it in the account console.")
    unknown = wire.change("PATCH", f"{CHANNELS}/{uuid4()}", {"name": "momopay probe"})
    seen = unknown.code or ("accepted" if unknown.is_success and unknown.envelope else unknown.summary)
    is_told = unknown.is_refusal or seen == "accepted" or bool(unknown.code)
    sentence = f"A PATCH of a channel that does not exist got {unknown.summary}."
    findings.add("patch_unknown_channel", seen if is_told else None, sentence, unknown)
    name = "momopay probe " + "".join(secrets.choice(string.ascii_lowercase) for _ in range(8))
    # Before it exists: whoever kills this process must be able to read what is left.
    note(
        f"Creating the channel {name!r} (TILL_NUMBER), to be deleted in a moment. If this is killed, the next"
        " `momopay probe --write` deletes it."
    )
    others = (channel for channel in listed.items if channel not in left_over)
    default = next((str(channel.get("id")) for channel in others if _is_default(channel)), None)
    try:
        _create(wire, findings, name, default)
    finally:
        # Whatever the answers said: one that was lost, or a refusal, may have created a channel too.
        _leave_as_it_was(wire, name, default, note)


def _create(wire: Wire, findings: Findings, name: str, default: str | None) -> None:
    empty = wire.change("POST", CHANNELS, {})
    add_outcome(findings, "invalid_body", "A new channel from an empty object", empty)
    if empty.data.get("id"):
        _delete(wire, empty.data["id"])
    shortcode, other = _SHORTCODES[:2]
    body = {"name": name, "type": "TILL_NUMBER", "shortcode": shortcode, "isDefault": False}
    created = wire.change("POST", CHANNELS, body)
    if created.status in _INVALID:
        shortcode, other = _SHORTCODES[2:]
        created = wire.change("POST", CHANNELS, body | {"shortcode": shortcode})
    add_created(findings, "channel_created_status", "A new channel", created)
    if not created.data.get("id"):
        return
    is_default = _is_default(created.data)
    sentence = "The answer to a new channel that is not to be the default shows whether it is."
    findings.add("new_channel_is_default", is_default, sentence, created)
    if is_default and default is not None:
        _make_default(wire, default)  # at once: payments go through the default channel meanwhile
    path = f"{CHANNELS}/{segment(str(created.data['id']))}"
    # Its own name: another one would hide the channel from the next run, if this one is killed.
    renamed = wire.change("PATCH", path, {"name": name})
    _add_status(findings, "channel_changed_status", "A PATCH of a channel", renamed)
    changed = wire.change("PATCH", path, {"shortcode": other})
    answers, seen, effect = [changed], changed.summary, "refuse"
    if changed.is_success:
        answers.append(wire.get(path))
        seen = effect = {shortcode: "ignore", other: "change"}.get(str(answers[-1].data.get("shortcode")), "")
    is_told = bool(seen) and (changed.is_success or changed.is_refusal)
    sentence = f"A PATCH with another shortcode got {changed.summary}."
    findings.add("changed_shortcode", seen if is_told else None, sentence, *answers)
    findings.add("immutable_channel_fields", effect if is_told else None, sentence, *answers)
    deleted = _delete(wire, created.data["id"])
    _add_status(findings, "delete_status", "The deletion of a channel", deleted)
    style = "envelope" if "success" in deleted.envelope else "empty" if deleted.is_empty else "another body"
    sentence = f"The deletion of a channel got {deleted.summary}."
    findings.add("delete_answer", style if deleted.is_success else None, sentence, deleted)


def _add_status(findings: Findings, name: str, what: str, answer: Answer) -> None:
    findings.add(name, answer.status if answer.is_success else None, f"{what} got {answer.summary}.", answer)


def _leave_as_it_was(wire: Wire, name: str, default: str | None, note: Note) -> None:
    """Delete the channel, by its name since the answer with its id may be lost, and restore the default channel."""
    is_removed = is_restored = False
    try:
        for attempt in range(_ATTEMPTS):
            if attempt:
                wire.sleep(2.0 * attempt)
            listed = wire.get(CHANNELS)
            left = [channel for channel in listed.items if channel.get("name") == name]
            is_removed = listed.is_success and bool(listed.envelope) and not left
            # Where there was none before, the channel's own flag goes with it.
            is_restored = default is None or any(
                _is_default(channel) for channel in listed.items if channel.get("id") == default
            )
            if not is_restored and default is not None:
                _make_default(wire, default)
            for channel in left:
                _delete(wire, channel.get("id"))
            if is_removed and is_restored:
                break
    finally:
        # Also after an error, such as that of a key that was revoked meanwhile.
        if not is_removed:
            note(
                f"The channel {name!r} may be left: run `momopay probe --write` again, or delete it in the account"
                " console."
            )
        if not is_restored:
            note(f"The channel {default} was the default one, and may not be any more: check it in the console.")


def _is_default(channel: Mapping[str, Any]) -> bool:
    return field_of(channel, "isDefault", "is_default") is True


def _make_default(wire: Wire, identity: str) -> None:
    wire.change("PATCH", f"{CHANNELS}/{segment(identity)}", {"isDefault": True})


def _delete(wire: Wire, identity: object) -> Answer:
    return wire.change("DELETE", f"{CHANNELS}/{segment(str(identity))}")
