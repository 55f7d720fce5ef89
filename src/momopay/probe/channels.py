"""What creating, changing and deleting a channel shows. The channel is the probe's own, and is deleted at the end.

Its name marks it as a probe's, so that a later run can find and delete one that was left. Nothing is paid through it.
"""

from __future__ import annotations

import re
import secrets
import string
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias
from urllib.parse import quote
from uuid import uuid4

from momopay.probe.profile import Findings
from momopay.probe.reads import CHANNELS, one_or_all
from momopay.probe.wire import Answer, Wire, field_of

Note: TypeAlias = Callable[[str], object]

# Till numbers that nobody has: one to create, and one to change it to.
_SHORTCODES: Final = ("999991", "999992")
_TYPES: Final = ("TILL_NUMBER", "TILL", "SHORTCODE")
_LONGEST: Final = 50  # characters of an account number in the operator's contract; the service page has no limit
_INVALID: Final = frozenset({400, 422})
_OWN_NAME: Final = re.compile("momopay probe [a-z]{8}")


def own_channels(listed: Answer) -> list[Mapping[str, Any]]:
    """Return the channels in a list that a probe created."""
    named = (channel for channel in listed.items if _OWN_NAME.fullmatch(str(channel.get("name"))))
    return [channel for channel in named if channel.get("shortcode") in _SHORTCODES]


def random_letters(count: int) -> str:
    """Return letters for a name; digits could look like a phone and be masked."""
    return "".join(secrets.choice(string.ascii_lowercase) for _ in range(count))


def ask_by_channel(wire: Wire, findings: Findings, listed: Answer, note: Note) -> None:
    """Create, change and delete a channel."""
    if not listed.is_success or not listed.envelope:
        note("The channels cannot be listed, so none is created: nobody could check what is left.")
        return
    left_over = own_channels(listed)
    for channel in left_over:
        note(f"Deleting the channel {channel['name']!r}, which an earlier probe left.")
        _delete(wire, channel.get("id"))
        if _is_default(channel):
            note("It was the default channel: choose the one that is to be it in the account console.")
    unknown = wire.change("PATCH", f"{CHANNELS}/{uuid4()}", {"name": "momopay probe"})
    findings.add("patch_unknown_channel", unknown.code or unknown.summary, unknown)
    name = f"momopay probe {random_letters(8)}"
    # Before the channel exists, so that whoever kills this process can read what may be left.
    note(
        f"Creating the channel {name!r}, to be deleted in a moment, as each of {', '.join(_TYPES)}. If this is killed,"
        " the next `momopay probe --write` deletes it."
    )
    others = (channel for channel in listed.items if channel not in left_over)
    default = next((str(channel.get("id")) for channel in others if _is_default(channel)), None)
    try:
        _try_types(wire, findings, name, default)
    finally:
        # In any case: a channel may have been created even if the answer was lost or was a refusal.
        _leave_as_it_was(wire, name, default, note)


def _try_types(wire: Wire, findings: Findings, name: str, default: str | None) -> None:
    """Create the channel as each type, and delete it. The first one that is accepted is changed before that."""
    answers = dict[str, Answer]()
    for kind in _TYPES:
        body = {"name": name, "type": kind, "shortcode": _SHORTCODES[0], "isDefault": False}
        answers[kind] = created = wire.change("POST", CHANNELS, body)
        findings.add_created(created)
        if created.is_refusal:
            continue
        if not created.data.get("id"):
            break  # it may exist: it is found by its name at the end
        findings.add("new_channel_is_default", _is_default(created.data), created)
        if _is_default(created.data):
            _make_default(wire, default)  # at once, because payments go through the default channel
        if findings.found["immutable_channel_fields"].seen is None:
            _change(wire, findings, f"{CHANNELS}/{quote(str(created.data['id']), safe='')}")
        deleted = _delete(wire, created.data["id"])
        style = "envelope" if "success" in deleted.envelope else "empty" if deleted.is_empty else "another body"
        findings.add("delete_answer", style if deleted.is_success else None, deleted)
        if not deleted.is_success:
            break  # or each type would leave a channel
    accepted = [kind for kind, answer in answers.items() if answer.is_success]
    refused = [kind for kind, answer in answers.items() if answer.status in _INVALID]
    is_clear = len(accepted) + len(refused) == len(_TYPES)
    seen = "any" if len(accepted) == len(_TYPES) else one_or_all(accepted)
    findings.add("channel_types", seen if is_clear else None, *answers.values())


def _change(wire: Wire, findings: Findings, path: str) -> None:
    """Change a channel, in ways that the service may refuse or ignore."""
    shortcode, other = _SHORTCODES
    changed = wire.change("PATCH", path, {"shortcode": other})
    if changed.is_success:
        read = wire.get(path)
        effect = {shortcode: "ignore", other: "change"}.get(str(read.data.get("shortcode")))
        findings.add("immutable_channel_fields", effect, changed, read)
    elif changed.is_refusal:
        findings.add("immutable_channel_fields", "refuse", changed)
    fits, exceeds = (wire.change("PATCH", path, {"accountNumber": "9" * (_LONGEST + more)}) for more in (0, 1))
    seen = "specified" if exceeds.is_success else "contract" if exceeds.status in _INVALID else None
    findings.add("field_limits", seen if fits.is_success else None, fits, exceeds)


def _leave_as_it_was(wire: Wire, name: str, default: str | None, note: Note) -> None:
    """Delete the channel and restore the default one. It is found by its name: the answer with its id may be lost."""
    is_as_it_was = False
    try:
        for attempt in range(3):
            wire.sleep(2.0 * attempt)
            listed = wire.get(CHANNELS)
            left = [channel for channel in listed.items if channel.get("name") == name]
            # If there was no default before, deleting the channel removes its own flag.
            defaults = [str(channel.get("id")) for channel in listed.items if _is_default(channel)]
            is_restored = default is None or default in defaults
            is_as_it_was = listed.is_success and bool(listed.envelope) and is_restored and not left
            if is_as_it_was:
                break
            if not is_restored:
                _make_default(wire, default)
            for channel in left:
                _delete(wire, channel.get("id"))
    finally:
        # Also after an error, for example because the key was revoked meanwhile.
        if not is_as_it_was:
            note(
                f"The channel {name!r} may be left, or {default or 'none'} may not be the default channel any more: run"
                " `momopay probe --write` again, and look into the account console."
            )


def _is_default(channel: Mapping[str, Any]) -> bool:
    return field_of(channel, "isDefault", "is_default") is True


def _make_default(wire: Wire, identity: str | None) -> None:
    if identity is not None:
        wire.change("PATCH", f"{CHANNELS}/{quote(identity, safe='')}", {"isDefault": True})


def _delete(wire: Wire, identity: object) -> Answer:
    return wire.change("DELETE", f"{CHANNELS}/{quote(str(identity), safe='')}")
