"""The text that processes share: it reads back what was written, and nothing else."""

import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from momopay._ratelimit.file_budget import SharedState
from momopay._ratelimit.slot_log import ALONE, Place, SlotLog
from momopay.types import Lane

REQUESTS = 4
WINDOW = 60.0
NOW = 1000.0


def read(text: bytes, now: float = NOW, window: float = WINDOW, requests: int = REQUESTS) -> SharedState:
    state = SharedState.parse(text, requests, window, now)
    assert state is not None
    return state


def reserve(
    state: SharedState, now: float, lane: Lane = Lane.PAYMENT, place: Place = ALONE, process: str = "me"
) -> float:
    return state.reserve_now(now, lane, place, process)


def used() -> bytes:
    """A file in which a window was taken, by a poll and by payments."""
    state = SharedState(SlotLog(REQUESTS, WINDOW))
    assert reserve(state, NOW, Lane.POLL) == 0.0
    assert [reserve(state, NOW + 1.0) for _ in range(3)] == [0.0] * 3
    state.log.stop(NOW + 1.0, NOW + 5.0)
    return state.dump(NOW + 1.0)


def test_it_reads_what_it_wrote() -> None:
    state = read(used(), NOW + 2.0)
    assert state.log.slots == [NOW, NOW + 1.0, NOW + 1.0, NOW + 1.0]
    assert state.log.polls == [NOW]
    assert state.log.stopped_until == NOW + 5.0
    assert reserve(state, NOW + 2.0) == 58.0


def test_the_rest_of_a_longer_text_is_not_read() -> None:
    assert read(used() + b'0,0],"polls":[]}\n').log.slots == read(used()).log.slots


@pytest.mark.parametrize(
    "text",
    [
        *(b"", b"\n", b"\0" * 100, b"garbage\n", b"[]\n", b"{}\n", b"1\n", b"\xff\xfe\n", used()[:40]),
        *(used().replace(b'"version":1', b'"version":2'), used().replace(b'"slots":[', b'"slots":[null,')),
        *(used().replace(b'"slots":[', b'"slots":["x",'), used().replace(b'"stop":', b'"stop":"soon","end":')),
        *(used().replace(b'"now":', b'"then":'), used().replace(b'"asked":{', b'"asked":{"a":1},"was":{')),
        *(used().replace(b'"waiting":[', b'"waiting":[["a",1],'), used().replace(b'"waiting":[', b'"waiting":[1,')),
        *(used().replace(b'"waiting":[', b'"waiting":[["a","x",1],'), b"[" * 60_000),
    ],
)
def test_what_is_not_ours_is_refused(text: bytes) -> None:
    assert SharedState.parse(text, REQUESTS, WINDOW, NOW) is None


@pytest.mark.parametrize("requests", [1, REQUESTS, 100])
def test_a_full_state_has_no_slot_for_a_window_whatever_others_allow(requests: int) -> None:
    text = SharedState.full(REQUESTS, WINDOW, NOW).dump(NOW)
    assert reserve(read(text, requests=requests), NOW) == 60.0
    assert reserve(read(text, NOW + WINDOW, requests=requests), NOW + WINDOW) == 0.0


def test_after_a_restart_of_the_machine_the_log_counts_as_written_just_now() -> None:
    early = 3.0  # the clock began anew
    state = read(used(), early)
    assert state.log.slots == [early - 1.0, early, early, early]
    assert reserve(state, early) == 59.0
    assert state.log.stopped_until == early + 4.0
    assert read(state.dump(early), early).log.slots == state.log.slots


def test_who_counts_in_a_shorter_window_forgets_nothing_of_the_others() -> None:
    text = used()
    for later, delay in ((NOW + 20.0, 40.0), (NOW + 60.5, 0.5)):
        short = read(text, later, window=10.0)
        assert reserve(short, later) == 0.0
        text = short.dump(later)
        assert reserve(read(text, later, requests=5), later) == delay


def test_who_allows_fewer_requests_counts_all_that_were_sent() -> None:
    state = SharedState(SlotLog(8, WINDOW))
    assert [reserve(state, NOW) for _ in range(3)] == [0.0] * 3
    assert reserve(read(state.dump(NOW), requests=3), NOW) == 60.0
    assert reserve(read(state.dump(NOW), requests=8), NOW) == 0.0


def test_payments_that_wait_in_another_process_go_before_reads_and_polls() -> None:
    state = SharedState.full(2, WINDOW, NOW)
    wait = Place(queued=True, payments=2)
    assert reserve(state, NOW, Lane.PAYMENT, wait, "other") == 60.0
    later = NOW + WINDOW
    state = read(state.dump(NOW), later, requests=2)
    assert [reserve(state, later, lane) for lane in (Lane.READ, Lane.POLL)] == [60.0, 60.0]
    assert [reserve(state, later, Lane.PAYMENT, Place(True, payments=left), "other") for left in (2, 1)] == [0.0, 0.0]
    state = SharedState(SlotLog(8, WINDOW))
    assert {reserve(state, NOW + after) for after in (0.0, 0.0, 0.0, 10.0, 10.0, 10.0, 10.0, 10.0)} == {0.0}
    assert reserve(state, NOW + 10.0, Lane.PAYMENT, wait, "other") == 50.0
    assert reserve(state, later, Lane.READ) == 10.0  # it waits, so it leaves a quarter


def test_a_process_has_payments_until_the_last_of_them_could_go() -> None:
    state = SharedState.full(1, WINDOW, NOW)
    places = (Place(queued=True, same=1, payments=2), Place(queued=True, payments=2))
    assert [reserve(state, NOW, Lane.PAYMENT, place, "other") for place in places] == [120.0, 60.0]
    assert reserve(state, NOW + WINDOW + 2.0, Lane.READ) > 0


def test_a_payment_of_a_process_that_died_is_believed_for_a_second() -> None:
    state = SharedState.full(1, WINDOW, NOW)
    reserve(state, NOW, Lane.PAYMENT, Place(queued=True, payments=1), "dead")
    later = NOW + WINDOW + 1.0
    assert reserve(read(state.dump(NOW), requests=1), later - 1, Lane.READ) > 0
    assert reserve(read(state.dump(NOW), requests=1), later, Lane.READ) == 0.0
    assert json.loads(state.dump(later))["waiting"] == []


def test_a_payment_that_has_its_slot_or_gave_up_holds_back_nobody() -> None:
    state, waits = SharedState.full(2, WINDOW, NOW), Place(queued=True, payments=1)
    assert [reserve(state, now, Lane.PAYMENT, waits, "other") for now in (NOW, NOW + WINDOW)] == [60.0, 0.0]
    assert reserve(state, NOW + WINDOW, Lane.READ) == 0.0
    state = SharedState.full(1, WINDOW, NOW)
    reserve(state, NOW, Lane.PAYMENT, waits, "other")
    reserve(state, NOW, Lane.READ, ALONE, "other")  # its process asks again, without that payment
    assert reserve(state, NOW + WINDOW, Lane.READ) == 0.0
    state = SharedState.full(2, WINDOW, NOW)
    reserve(state, NOW, Lane.PAYMENT, waits)
    assert reserve(state, NOW + WINDOW, Lane.READ, waits._replace(before=1)) == 0.0  # its own counts once


@given(seed=st.integers(0, 2**32), requests=st.integers(1, 60), lanes=st.lists(st.sampled_from(Lane), max_size=100))
def test_the_file_hands_out_the_slots_that_a_budget_of_one_process_would(
    seed: int, requests: int, lanes: list[Lane]
) -> None:
    chance, now = random.Random(seed), NOW
    text, log = SharedState(SlotLog(requests, WINDOW)).dump(now), SlotLog(requests, WINDOW)
    for lane in lanes:
        now += chance.choice([0, 0, chance.random(), chance.uniform(0, 90)])
        state = read(text, now, requests=requests)
        if chance.random() < 0.05:
            until = now + chance.uniform(0, 90)
            state.log.stop(now, until)
            log.stop(now, until)
        crowd = Place(True, chance.randrange(90) * (lane is not Lane.PAYMENT), chance.randrange(30))
        place = chance.choice([ALONE, ALONE, crowd])
        expected = log.expect(now, lane, place)
        if expected <= 0:
            log.reserve(now, lane, 0.0)
        assert state.reserve_now(now, lane, place, "me") == expected
        text = state.dump(now)
