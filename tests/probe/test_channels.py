"""`write=True`: a channel of the probe's own, which is gone at the end, however the run ends."""

from typing import Any

import httpx
import pytest

from in_turn import in_turn
from momopay import InvalidApiKeyError
from momopay.sandbox import Channel, Fault
from probe.kit import Scene, error_response
from probe.other_service import OtherService, probed

pytestmark = pytest.mark.usefixtures("few_requests")

CHANNELS = "/payment-wallet/channels"
ONE = "/payment-wallet/channels/{id}"
MINE = "Sandbox Paybill"


def test_what_is_written_is_a_channel_and_nothing_else(scene: Scene) -> None:
    found = scene.probe(write=True)
    assert scene.methods == {"GET", "POST", "PATCH", "DELETE"}
    assert all(each.path.startswith(CHANNELS) for each in scene.sent if each.method != "GET")
    assert [channel.is_default for channel in scene.account.live_channels()] == [True]
    assert found.facts["new_channel_is_default"] is False
    assert found.switches["created_status"] == 200
    (note,) = scene.notes
    assert "Creating the channel 'momopay probe " in note
    assert found.switches["strict_fields"] == found.switches["rate_window"] == "unknown"


@pytest.mark.parametrize("fault", [Fault.reset_after_commit, Fault.html_502])
def test_an_answer_that_is_lost_leaves_no_channel(scene: Scene, fault: Fault) -> None:
    scene.sandbox.fail_next("POST", CHANNELS, fault)
    found = scene.probe(write=True)
    assert (scene.channels, found.switches["delete_answer"]) == ([MINE], "unknown")
    assert len(scene.requests("POST", CHANNELS)) == 1


@pytest.mark.parametrize("fault", [Fault.error_after_commit, Fault.reset_before_read])
def test_a_deletion_that_fails_is_done_again(scene: Scene, fault: Fault) -> None:
    scene.sandbox.fail_next("DELETE", ONE, fault)
    scene.probe(write=True)
    assert scene.channels == [MINE]


class Stopped(BaseException):
    """As KeyboardInterrupt is raised, somewhere."""


@pytest.mark.parametrize("number", [1, 2, *(pytest.param(number, marks=pytest.mark.whole) for number in (3, 4, 5))])
def test_an_interrupt_leaves_no_channel(scene: Scene, number: int) -> None:
    writes: list[str] = []

    def stop(request: httpx.Request, _response: httpx.Response) -> None:
        writes.extend([request.method] if request.method != "GET" else [])
        if len(writes) == number:
            writes.append("stopped")
            raise Stopped

    scene.service.edit = stop
    with pytest.raises(Stopped):
        scene.probe(write=True)
    assert scene.channels == [MINE]


def test_what_an_earlier_probe_left_is_named_and_deleted(scene: Scene) -> None:
    left = Channel(name="momopay probe abcdefgh", type="TILL_NUMBER", shortcode="999991")
    others = [
        Channel(name="momopay probe abcdefgh", type="TILL_NUMBER", shortcode="600300"),
        Channel(name="momopay probe", type="TILL_NUMBER", shortcode="999991"),
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
    assert scene.notes[-1].startswith(f"The channel {scene.channels[1]!r} may be left, or")
    assert len(scene.channels) == 2
    # The same with a key that is revoked meanwhile.
    scene.service.instead = lambda _request: error_response(401, "INVALID_API_KEY") if scene.channels[2:] else None
    with pytest.raises(InvalidApiKeyError):
        scene.probe(write=True)
    assert scene.notes[-1].startswith(f"The channel {scene.channels[2]!r} may be left, or")


def test_nothing_is_created_where_nothing_can_be_listed(scene: Scene) -> None:
    scene.answer("GET", CHANNELS, lambda: error_response(401, "NO_RIGHT"))
    assert (scene.probe(write=True).facts["channels_read"], scene.methods) == ("401 NO_RIGHT", {"GET"})
    assert scene.notes[0].startswith("The channels cannot be listed")


@pytest.mark.parametrize(
    ("retry_after", "slept"), [(None, [61, 0]), ("soon", [61, 0]), ("20", [20, 0]), ("3600", [0, 2])]
)
def test_a_throttled_deletion_waits_for_the_window(scene: Scene, retry_after: str | None, slept: list[float]) -> None:
    throttled: list[str] = []

    def throttle(request: httpx.Request) -> httpx.Response | None:
        if request.method != "DELETE" or throttled:
            return None
        throttled.append(request.method)
        return httpx.Response(429, headers={"retry-after": retry_after} if retry_after else {})

    scene.service.instead = throttle
    assert scene.probe(write=True).switches["delete_answer"] == ("unknown" if retry_after == "3600" else "envelope")
    assert (scene.channels, scene.time.slept) == ([MINE], slept)


class Eager(OtherService):
    """Makes the newest channel the default, whatever it is asked for, and the oldest one when that is deleted."""

    def create(self, body: dict[str, Any]) -> tuple[int, object]:
        for channel in self.channels:
            channel["isDefault"] = False
        return super().create({**body, "isDefault": True})

    def change(self, channel: dict[str, Any], body: dict[str, Any]) -> None:
        for each in self.channels if body.get("isDefault") else ():
            each["isDefault"] = each is channel

    def one_channel(self, request: httpx.Request, identity: str) -> tuple[int, object]:
        answer = super().one_channel(request, identity)
        self.channels[0]["isDefault"] = not any(each["isDefault"] for each in self.channels[1:])
        return answer


@pytest.fixture
def eager(no_pauses: None) -> Eager:
    service = Eager()
    for name in ("Old", "Till"):
        service.create({"name": name, "type": "TILL_NUMBER", "shortcode": "600100"})
    return service


@pytest.mark.parametrize("lost", [False, True])
def test_the_default_channel_is_restored(eager: Eager, lost: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if lost:  # the answer that has the new channel's id
        create = eager.create

        def answer(body: dict[str, Any]) -> tuple[int, object]:
            create(body)
            return 200, {}

        monkeypatch.setattr(eager, "create", answer)
    found, notes = probed(eager)
    assert {each["name"]: bool(each.get("isDefault")) for each in eager.channels} == {"Old": False, "Till": True}
    assert (found.facts["new_channel_is_default"], len(notes)) == ("unknown" if lost else True, 1)


def test_a_default_channel_that_cannot_be_restored_is_named(eager: Eager, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Eager, "change", OtherService.change)
    _, notes = probed(eager)
    assert f"or {eager.channels[1]['id']} may not be the default channel any more" in notes[-1]


@in_turn(
    ("answer", "value", "unnamed"),
    [
        ((204, b""), "empty", None),
        ((200, b" "), "empty", None),
        ((200, b'{"deleted":true}'), "unknown", "another body"),
        ((202, b'{"success":true}'), "envelope", None),
        ((200, b"null"), "unknown", None),  # no JSON object: it may be a proxy's
    ],
)
def test_deletions(answer: tuple[int, bytes], value: str, unnamed: str | None) -> None:
    service = OtherService()
    service.deleted = answer
    finding = probed(service)[0].findings["delete_answer"]
    assert (finding.value, finding.unnamed) == (value, unnamed)


@in_turn(("is_changed", "value"), [(False, "ignore"), (True, "change")])
def test_another_shortcode(is_changed: bool, value: str) -> None:
    class Changing(OtherService):
        def change(self, channel: dict[str, Any], body: dict[str, Any]) -> None:
            channel.update(body if is_changed else {})

    finding = probed(Changing())[0].findings["immutable_channel_fields"]
    assert finding.seen == value
    assert finding.is_known is not is_changed  # the sandbox cannot change it
