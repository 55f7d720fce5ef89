"""Waiting for slots: who goes first, who gives up, and what a clock that only sleeping moves shows."""

import logging
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from momopay import BudgetExhaustedError, FileRateBudget, RateBudget
from momopay._ratelimit import file_budget
from momopay._ratelimit.budget import Line, Ticket
from momopay._transport.sync_backend import SyncBackend
from momopay.types import Lane
from ratelimit.kit import Limiter, SlotCalls, finish, run_calls
from virtual import VirtualIO


@pytest.fixture(params=["process", "file"])
def budget(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RateBudget | FileRateBudget]:
    size: Any = {"requests": 2, "window": 10.0}
    budget = RateBudget(**size) if request.param == "process" else FileRateBudget(tmp_path / "budget", **size)
    yield budget
    budget.close()


@pytest.fixture
def clock() -> VirtualIO:
    """A backend's clock, which begins at 1000 and which only sleeping moves."""
    return VirtualIO(lambda _method, _path: (500, b""))


@pytest.fixture
def limiter(budget: Any, clock: VirtualIO) -> Limiter:
    return Limiter(budget, clock)


def acquire(limiter: Limiter, *, latest: float = 2000.0, lane: Lane = Lane.PAYMENT) -> bool:
    waited: bool = finish(limiter.acquire(lane, latest=latest, describe=lambda: "stk.initiate 'A-1'"))
    return waited


def test_a_call_waits_until_its_slot_comes_and_not_at_all_for_a_free_one(limiter: Limiter, clock: VirtualIO) -> None:
    """Also if the deadline has passed: the attempt's own timer ends the call."""
    assert [acquire(limiter), acquire(limiter, latest=999.0), clock.slept] == [False, False, []]
    assert acquire(limiter)
    assert (clock.slept, clock.now()) == ([10.0], 1010.0)


def test_without_a_slot_in_time_nothing_is_taken(limiter: Limiter, clock: VirtualIO) -> None:
    for _ in range(2):
        acquire(limiter)
    for _ in range(3):
        with pytest.raises(BudgetExhaustedError, match=r"'A-1': .* no slot for 10\.0 s; not sent") as caught:
            acquire(limiter, latest=1009.0)
        assert caught.value.retry_after == 10.0
    assert clock.slept == []
    assert acquire(limiter, latest=1010.0)


@pytest.mark.parametrize(
    ("begins", "seconds", "slept"), [(5.0, 30.0, [10.0, 25.0]), (1.0, 3.0, [10.0])], ids=["longer", "over before"]
)
def test_a_pause_revokes_the_slot_of_a_call_that_sleeps(
    limiter: Limiter, clock: VirtualIO, begins: float, seconds: float, slept: list[float]
) -> None:
    for _ in range(2):
        acquire(limiter)
    clock.at(begins, lambda: finish(limiter.pause(seconds)))
    assert acquire(limiter)
    assert clock.slept == slept


@pytest.mark.parametrize(("seconds", "more"), [(0.0, 0), (2.0, 6)])
def test_a_call_asks_again_while_others_have_the_file_for_a_moment_even_if_it_may_not_wait(
    tmp_path: Path, clock: VirtualIO, seconds: float, more: int
) -> None:
    limiter = Limiter(FileRateBudget(tmp_path / "budget"), clock)
    acquire(limiter)
    with (tmp_path / "budget").open("r+") as other:
        file_budget._lock(other.fileno())
        with pytest.raises(BudgetExhaustedError):
            acquire(limiter, latest=1000.0 + seconds)
    assert clock.slept == [0.001 * 2**number for number in range(8)] + [0.25] * more


@pytest.mark.parametrize("requests", [1, 2])
def test_once_the_file_is_free_a_call_that_may_not_wait_has_its_slot_or_its_refusal(
    tmp_path: Path, clock: VirtualIO, requests: int
) -> None:
    limiter = Limiter(FileRateBudget(tmp_path / "budget", requests=requests, window=0.1), clock)
    acquire(limiter)
    is_refused = nullcontext() if requests > 1 else pytest.raises(BudgetExhaustedError)
    with (tmp_path / "budget").open("r+") as other, is_refused:
        file_budget._lock(other.fileno())
        clock.at(0.001, lambda: file_budget._unlock(other.fileno()))
        acquire(limiter, latest=1000.0)
    assert clock.slept == [0.001]


# What the log says.


def test_a_wait_of_more_than_a_second_is_logged_at_once(
    limiter: Limiter, clock: VirtualIO, caplog: pytest.LogCaptureFixture
) -> None:
    """And once, though a 429 pushes it back."""
    for _ in range(2):
        acquire(limiter)
    assert not caplog.records
    logged = list[str]()
    clock.at(0.001, lambda: logged.append(caplog.text))
    clock.at(5.0, lambda: finish(limiter.pause(30.0)))
    acquire(limiter)
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "stk.initiate 'A-1': waits 10.0 s for a slot of the rate budget; max_wait=" in logged[0]
    assert "'Rate limits' in the docs" in logged[0]


@pytest.mark.parametrize(("seconds", "is_logged"), [(1.0, False), (1.25, True)])
def test_a_wait_of_up_to_a_second_is_not_logged(
    limiter: Limiter, clock: VirtualIO, caplog: pytest.LogCaptureFixture, seconds: float, *, is_logged: bool
) -> None:
    acquire(limiter)
    clock.clock += 10.0 - seconds
    acquire(limiter)
    assert acquire(limiter)
    assert clock.slept == [seconds]
    assert bool(caplog.records) == is_logged


def test_a_refused_call_and_a_poll_warn_of_nothing(limiter: Limiter, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "momopay")
    for _ in range(2):
        acquire(limiter)
    with pytest.raises(BudgetExhaustedError):
        acquire(limiter, latest=1009.0)
    assert not caplog.records
    acquire(limiter, lane=Lane.POLL)
    assert [record.levelname for record in caplog.records] == ["INFO"]


# Who goes first.


def test_payments_have_the_first_free_slots_however_many_reads_queue() -> None:
    async def use(calls: SlotCalls) -> None:
        await calls.start(200, Lane.READ, deadline=90.0)
        await trio.sleep(1.0)
        await calls.start(20, Lane.PAYMENT, deadline=81.0)

    calls = run_calls(RateBudget(), use)
    assert calls.slots["payment"] == [61.0] * 20
    assert Counter(calls.slots["read"]) == {0.0: 58, 61.0: 38 - 14}  # a quarter stays free for further payments
    # Those that could not be in time were told at once; those that payments pushed back, at the time of their slot.
    assert Counter(calls.refused["read"]) == {(0.0, 122.0): 84, (61.0, 61.0): 34}


def test_reads_go_before_polls_that_queued_first() -> None:
    async def use(calls: SlotCalls) -> None:
        await calls.start(8, Lane.POLL, "window")
        await calls.start(4, Lane.POLL)
        await calls.start(6, Lane.READ)

    calls = run_calls(RateBudget(requests=8, window=61.0), use)
    assert calls.slots["read"] == [61.0] * 6
    # One of the floor, and the others in the next window.
    assert calls.slots["poll"] == [61.0] + [122.0] * 3


def test_a_poll_expects_a_slot_of_its_floor_however_many_payments_wait() -> None:
    async def use(calls: SlotCalls) -> None:
        await calls.start(60, Lane.PAYMENT)
        gives_up = await calls.start(1, Lane.POLL, deadline=60.0)
        await calls.start(1, Lane.POLL)
        gives_up[0].cancel()

    calls = run_calls(RateBudget(requests=16, window=60.0), use)
    assert (calls.refused, calls.slots["poll"]) == ({}, [60.0])


def test_within_a_lane_the_first_come_first() -> None:
    async def use(calls: SlotCalls) -> None:
        for _ in range(4):
            await calls.start(1, Lane.READ, "window")
            await trio.sleep(1.0)
        for number in range(12):
            await trio.sleep(1.0)
            await calls.start(1, list(Lane)[number % 2], f"{number}")

    calls = run_calls(RateBudget(requests=4, window=61.0), use)
    order = [int(name) for name in calls.slots if name.isdecimal()]
    assert order == [0, 2, 4, 6, 8, 10, 1, 3, 5, 7, 9, 11]


def test_a_call_keeps_its_place_until_it_is_a_second_late() -> None:
    line, signal = Line(), SyncBackend().signal()
    line.join(Ticket(Lane.PAYMENT, signal, asks_at=100.0))
    assert [line.place(Lane.READ, now).before for now in (101.0, 101.1)] == [1, 0]
    line.join(Ticket(Lane.PAYMENT, signal, asks_at=200.0))
    line.join(leaving := Ticket(Lane.READ, signal, asks_at=200.0))
    line.leave(leaving, 150.0)  # so the first is woken, and should ask now
    assert [line.place(Lane.READ, now).before for now in (151.0, 151.1)] == [1, 0]
    late, next_one = (Ticket(Lane.READ, signal, asks_at) for asks_at in (100.0, 200.0))
    line.join(late)
    line.join(next_one)
    assert [line.place(Lane.READ, 199.0, each).same for each in (next_one, late)] == [0, 0]  # the late one goes first


def test_a_payment_that_comes_counts_as_one_that_waits() -> None:
    line = Line()  # other processes are told of it at once, and not when it asks again
    assert [line.place(lane, 100.0).payments for lane in Lane] == [1, 0, 0]
    line.join(first := Ticket(Lane.PAYMENT, SyncBackend().signal(), asks_at=100.0))
    assert [line.place(lane, 100.0).payments for lane in Lane] == [2, 1, 1]
    assert line.place(Lane.PAYMENT, 100.0, first).payments == 1


def test_a_call_that_joins_as_another_leaves_asks_again_at_once(clock: VirtualIO) -> None:
    limiter = Limiter(RateBudget(requests=1, window=10.0), clock)
    acquire(limiter)
    line, signal = limiter.slots().line, clock.signal
    line.join(leaving := Ticket(Lane.PAYMENT, signal(), asks_at=1010.0))

    def signal_meanwhile() -> Any:
        line.leave(leaving, 1000.0)
        return signal()

    vars(clock)["signal"] = signal_meanwhile
    assert acquire(limiter)
    assert clock.slept == [10.0]
    vars(clock)["signal"], vars(line)["leave"] = signal, None  # as if an exception kept a call from leaving the line
    with pytest.raises(TypeError):
        acquire(limiter)
    assert line.place(Lane.READ, clock.now()).before == 0  # it holds nobody back


# Who gives up.


def test_a_call_that_gives_up_leaves_its_slot_to_the_next() -> None:
    async def use(calls: SlotCalls) -> None:
        await calls.start(1, Lane.READ, "first")
        await calls.start(2, Lane.READ, "brief", deadline=25.0)
        await calls.start(2, Lane.READ)
        await trio.sleep(5.0)
        await calls.start(1, Lane.PAYMENT)

    calls = run_calls(RateBudget(requests=1, window=10.0), use)
    assert calls.slots == {"first": [0.0], "payment": [10.0], "brief": [20.0], "read": [30.0, 40.0]}
    assert calls.refused == {"brief": [(20.0, 10.0)]}


def test_a_deadline_is_seen_at_once_with_the_whole_line_in_mind() -> None:
    async def use(calls: SlotCalls) -> None:
        await calls.start(10, Lane.PAYMENT)
        await calls.start(1, Lane.PAYMENT, "late", deadline=99.0)
        await calls.start(1, Lane.PAYMENT, "just", deadline=100.0)
        await calls.start(1, Lane.READ)
        await calls.start(1, Lane.POLL, deadline=119.0)

    calls = run_calls(RateBudget(requests=1, window=10.0), use)
    assert calls.refused == {"late": [(0.0, 100.0)], "poll": [(0.0, 120.0)]}
    assert calls.slots["just"] == [100.0]


def test_a_stop_holds_back_those_that_wait_and_keeps_their_order() -> None:
    async def use(calls: SlotCalls) -> None:
        await calls.start(3, Lane.READ)
        await calls.start(1, Lane.PAYMENT)
        await trio.sleep(5.0)
        await calls.limiter.pause(30.0)
        await calls.start(1, Lane.READ, "last")

    calls = run_calls(RateBudget(requests=2, window=10.0), use)
    assert calls.slots == {"read": [0.0, 0.0, 35.0], "payment": [35.0], "last": [45.0]}


@settings(max_examples=30)
@given(seed=st.integers(0, 2**32), requests=st.integers(1, 12), count=st.integers(1, 60))
def test_whoever_gives_up_no_slot_is_lost_and_no_window_overrun(seed: int, requests: int, count: int) -> None:
    chance = random.Random(seed)

    async def use(calls: SlotCalls) -> None:
        scopes = list[trio.CancelScope]()
        for number in range(count):
            lane = chance.choice([Lane.PAYMENT, Lane.READ])
            deadline = chance.choice([1e6, chance.uniform(0.0, 30.0)])
            scopes += await calls.start(1, lane, f"{lane.value} {number}", deadline)
            await trio.sleep(chance.choice([0.0, 0.0, chance.uniform(0.0, 3.0)]))
            if chance.random() < 0.3:
                chance.choice(scopes).cancel()
        await trio.sleep(0.1)
        ends.append(calls.now())

    ends = list[float]()
    calls = run_calls(RateBudget(requests=requests, window=10.0), use)
    slots = sorted(slot for taken in calls.slots.values() for slot in taken)
    waiting = [slot for slot in slots if slot > ends[0]]
    for earlier, later in zip(slots, slots[requests:], strict=False):
        assert later - earlier >= 10.0 - 1e-6
    # From the time on at which nobody gives up any more, the line shrinks as fast as the budget allows.
    if waiting:
        windows = -(-len(waiting) // max(1, requests - requests // 4))
        assert slots[-1] <= ends[0] + 10.0 * windows + 1e-6
