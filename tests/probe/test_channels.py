"""`write=True`: a channel of the probe's own, which is gone at the end, however the run ends."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from momopay import InvalidApiKeyError
from momopay._transport.attempt import RawResponse
from momopay.probe import ROWS, Cost
from momopay.sandbox import Channel, Fault
from probe.kit import Scene

CHANNELS = "/payment-wallet/channels"
ONE = "/payment-wallet/channels/{id}"
MINE = "Sandbox Paybill"


def reached() -> list[tuple[str, Any]]:
    return [(row.name, value) for row in ROWS if row.is_switch and row.cost is Cost.WRITE for value in row.values]


@pytest.mark.parametrize(("name", "value"), reached())
def test_a_channel_finds_the_value_of_a_switch(scene: Scene, name: str, value: Any) -> None:
    setattr(scene.account.switches, name, value)
    found = scene.probe(write=True)
    assert found.switches[name] == value
    assert found.findings[name].request_ids or (name, value) == ("delete_answer", "empty")
    assert scene.channels == [MINE]


def test_what_is_written_is_a_channel_and_nothing_else(scene: Scene) -> None:
    found = scene.probe(write=True)
    assert scene.methods == {"GET", "POST", "PATCH", "DELETE"}
    assert all(each.path.startswith(CHANNELS) for each in scene.sent if each.method != "GET")
    assert [channel.is_default for channel in scene.account.live_channels()] == [True]
    assert found.facts["required_channel_fields"] == ["name", "type", "shortcode"]
    assert found.facts["channel_created_status"] == found.facts["delete_status"] == 200
    (note,) = scene.notes
    assert "Creating the channel 'momopay probe " in note
    assert found.switches["strict_fields"] == found.switches["rate_window"] == "unknown"


@pytest.mark.parametrize("fault", [Fault.reset_after_commit, Fault.error_after_commit, Fault.html_502, Fault.truncated])
def test_an_answer_that_is_lost_leaves_no_channel(scene: Scene, fault: Fault) -> None:
    # The first POST is the one that must be refused.
    scene.sandbox.fail_next("POST", CHANNELS, Fault.error_before_commit)
    scene.sandbox.fail_next("POST", CHANNELS, fault)
    found = scene.probe(write=True)
    assert scene.channels == [MINE]
    assert found.switches["delete_answer"] == "unknown"
    assert len(scene.requests("POST", CHANNELS)) == 2


@pytest.mark.parametrize("fault", [Fault.error_before_commit, Fault.error_after_commit, Fault.reset_before_read])
def test_a_deletion_that_fails_is_done_again(scene: Scene, fault: Fault) -> None:
    scene.sandbox.fail_next("DELETE", ONE, fault)
    scene.probe(write=True)
    assert scene.channels == [MINE]


class Stopped(BaseException):
    """As KeyboardInterrupt is raised, somewhere."""


@pytest.mark.parametrize("number", [1, 2, *(pytest.param(number, marks=pytest.mark.whole) for number in (3, 4, 5, 6))])
def test_an_interrupt_leaves_no_channel(scene: Scene, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    send, writes = type(scene.time).send, list[str]()

    async def interrupted(self: Any, method: str, *arguments: Any, **options: Any) -> Any:
        answer = await send(self, method, *arguments, **options)
        if method != "GET":
            writes.append(method)
            if len(writes) == number:
                raise Stopped
        return answer

    monkeypatch.setattr(type(scene.time), "send", interrupted)
    with pytest.raises(Stopped):
        scene.probe(write=True)
    assert scene.channels == [MINE]


def test_what_an_earlier_probe_left_is_named_and_deleted(scene: Scene) -> None:
    left = Channel(name="momopay probe abcdefgh", type="TILL_NUMBER", shortcode="000001")
    others = [
        Channel(name="momopay probe abcdefgh", type="TILL_NUMBER", shortcode="600300"),
        Channel(name="momopay probe", type="TILL_NUMBER", shortcode="000001"),
    ]
    scene.account.channels = [*scene.account.channels, left, *others]
    scene.probe()
    assert scene.notes == ["An earlier probe was killed and left a channel: `momopay probe --write` deletes it."]
    assert scene.methods == {"GET"}
    scene.probe(write=True)
    assert scene.notes[0] == "Deleting the channel 'momopay probe abcdefgh', which an earlier probe left."
    assert scene.channels == [MINE, *(channel.name for channel in others)]


def test_a_channel_that_cannot_be_deleted_is_named(scene: Scene) -> None:
    scene.sandbox.fail_next("DELETE", ONE, Fault.error_before_commit, times=100)
    scene.probe(write=True)
    name = scene.channels[1]
    assert scene.notes[-1].startswith(f"The channel {name!r} may be left:")


def test_a_key_that_is_revoked_meanwhile_leaves_a_name(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    send = type(scene.time).send

    async def answer(self: Any, method: str, *arguments: Any, **options: Any) -> Any:
        if scene.channels[1:]:
            return RawResponse(401, httpx.Headers(), b"")
        return await send(self, method, *arguments, **options)

    monkeypatch.setattr(type(scene.time), "send", answer)
    with pytest.raises(InvalidApiKeyError):
        scene.probe(write=True)
    assert scene.notes[-1].startswith(f"The channel {scene.channels[1]!r} may be left:")


def test_an_unclear_creation_is_not_repeated(scene: Scene) -> None:
    scene.sandbox.fail_next("POST", CHANNELS, Fault.error_before_commit)
    scene.sandbox.fail_next("POST", CHANNELS, Fault.html_502)
    scene.probe(write=True)
    assert len(scene.requests("POST", CHANNELS)) == 2


def test_a_shortcode_that_is_refused_gives_way_to_another(scene: Scene) -> None:
    scene.sandbox.fail_next("POST", CHANNELS, Fault.error_before_commit)
    scene.sandbox.fail_next("POST", CHANNELS, Fault.refused_after_commit, status=400)
    found = scene.probe(write=True)
    shortcodes = [each.json for each in scene.requests("POST", CHANNELS)]
    assert [body["shortcode"] for body in shortcodes[1:] if isinstance(body, dict)] == ["000001", "999991"]
    assert found.switches["delete_answer"] == "envelope"


def test_a_service_without_channels_of_its_own_is_tolerated(scene: Scene) -> None:
    scene.sandbox.fail_next("POST", CHANNELS, Fault.refused_after_commit, times=2)
    found = scene.probe(write=True)
    assert found.facts["invalid_body"] == "409 REQUEST_CONFLICT"
    assert scene.channels == [MINE]


@pytest.mark.parametrize("retry_after", [None, "soon", "Fri, 20 Nov 2026 10:00:20 GMT"])
def test_a_throttled_deletion_is_done_after_the_window(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, retry_after: str | None
) -> None:
    send, throttled = type(scene.time).send, list[str]()

    async def answer(self: Any, method: str, *arguments: Any, **options: Any) -> Any:
        if method != "DELETE" or throttled:
            return await send(self, method, *arguments, **options)
        throttled.append(method)
        headers = {"date": "Fri, 20 Nov 2026 10:00:00 GMT"} | ({"retry-after": retry_after} if retry_after else {})
        return RawResponse(429, httpx.Headers(headers), b"")

    monkeypatch.setattr(type(scene.time), "send", answer)
    assert scene.probe(write=True).switches["delete_answer"] == "envelope"
    assert scene.channels == [MINE]
    assert scene.time.slept == [20.0 if retry_after and "GMT" in retry_after else 61.0]
