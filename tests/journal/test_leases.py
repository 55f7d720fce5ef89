"""A lease ends by no clock that can be set: not by that of a process, nor by the database's."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import ExitStack, contextmanager, suppress
from unittest.mock import patch

import pytest

from campaign.clocks import MachineClock, own_time
from drivers import Drive
from durable.kit import Service, pay, release
from in_turn import some_by_default
from journal.constants import SENDING, UNKNOWN
from journal.database_kit import execute, store_of
from journal.kit import begin, entry_of, found, lease_of, put, sender, state_of
from journal.records import callback
from momopay import CallbackError, Journal, OutcomeUnknownError, RequestValidationError
from momopay._transport import clock
from momopay.durable import decide
from momopay.journal import leases
from momopay.journal.rules import RELEASE_AFTER_LEASE
from patience import until
from safety.kit import DatabaseClock

DAY = 86_400.0
STEPS = (600.0, DAY, -600.0, -DAY)


@contextmanager
def stepped(url: str, seconds: float) -> Generator[Journal]:
    """Yield the journal as a process has it whose clock, with the database's, has stepped."""
    if url.startswith("postgresql"):
        with Journal(url) as journal:
            shifted = f"SELECT pg_catalog.clock_timestamp() + interval '{seconds} seconds'"
            execute(journal, f"CREATE FUNCTION clock_timestamp() RETURNS timestamptz LANGUAGE sql AS $${shifted}$$")
        url += "%2Cpg_catalog"  # found after the schema's own functions
    with DatabaseClock(seconds).installed(), Journal(url) as journal, own_time(MachineClock(seconds), hastened=False):
        yield journal


@pytest.mark.both_databases
@pytest.mark.parametrize("seconds", some_by_default(STEPS, 2))
def test_a_step_of_the_clocks_ends_no_lease(url: str, seconds: float, drive: Drive) -> None:
    """While its sender lives, and for the minute after its lease, which this process measures."""
    client = drive(transport=Service().transport)
    with stepped(url, seconds) as journal, patch.object(decide, "PAUSE", DAY):  # beyond the deadline, so nobody waits
        with sender(url):
            assert state_of(journal) is SENDING
            with pytest.raises(RequestValidationError, match="is being sent"):
                client(release(journal))
            with pytest.raises(OutcomeUnknownError):
                client(pay(journal))
            with pytest.raises(CallbackError, match="another call"), journal.handling(callback("c", "c")):
                pytest.fail("it was handled twice at once")
        until(lambda: state_of(journal) is UNKNOWN, "the database saw the process go")
        with pytest.raises(RequestValidationError, match=r"in 6\d\d s"):  # `sender` takes the row for 600 s
            client(release(journal, searched_elsewhere=True))


@pytest.mark.both_databases
def test_a_live_process_holds_its_row_and_a_killed_one_leaves_it_unknown(journal: Journal, url: str) -> None:
    """So with the callback that it was handling."""

    def handles() -> bool:
        with suppress(CallbackError), journal.handling(callback("c", "c")) as is_new:
            return is_new
        return False

    with sender(url):
        assert state_of(journal) is SENDING
        assert journal.unresolved() == []
        assert not handles()
        with lease_of(journal) as lease:
            assert not begin(journal, lease)
    until(lambda: state_of(journal) is UNKNOWN, "the database saw the process go")
    with lease_of(journal) as lease:
        assert not begin(journal, lease)
    assert journal.unresolved() == [found(journal)]
    assert handles()
    assert not handles()


def test_by_a_clock_that_steps_a_lease_would_end_early(journal: Journal, other: Journal) -> None:
    """The control: the same row and the same step, with leases by the time of day."""
    clocks = MachineClock()
    with patch.object(clock, "now", lambda: clocks.now().timestamp()), lease_of(journal) as lease:
        begin(journal, lease, seconds=600)
        assert state_of(other) is SENDING
        clocks.ahead = DAY
        assert state_of(other) is UNKNOWN
        assert store_of(other).seconds_to_release(found(other)) < 0


@pytest.fixture
def time() -> Generator[list[float]]:
    """The boot clock of this machine, in seconds."""
    time = [1000.0]
    with patch.object(clock, "now", lambda: time[0]):
        yield time


@pytest.mark.both_databases
def test_a_row_without_an_outcome_is_unresolved_after_its_lease(
    journal: Journal, other: Journal, time: list[float]
) -> None:
    """Its process lives on. It knows at once that the call has returned."""
    with lease_of(journal) as lease:
        begin(journal, lease, seconds=100)
        time[0] += 200
        assert (state_of(journal), state_of(other)) == (SENDING, UNKNOWN), "for its own process, the call goes on"
        time[0] -= 101
    assert (state_of(journal), state_of(other)) == (UNKNOWN, SENDING)
    for later, left in ((0, 61), (1, 60), (60, 0)):
        time[0] += later
        assert store_of(journal).seconds_to_release(found(journal)) == pytest.approx(left)
    assert (state_of(other), RELEASE_AFTER_LEASE) == (UNKNOWN, 60)
    reported, nobodys = put(journal, "reported", UNKNOWN), entry_of()
    assert store_of(journal).seconds_to_release(reported) == pytest.approx(660), "what was sent may be under way"
    assert store_of(journal).seconds_to_release(nobodys) == 0


@contextmanager
def elsewhere() -> Generator[None]:
    """Be another machine, which booted at another time, or this machine before it was started again."""
    with patch.object(clock, "machine", lambda: "another machine"):
        yield


@pytest.mark.both_databases
def test_another_machines_lease_counts_from_its_first_read(journal: Journal, other: Journal, time: list[float]) -> None:
    with lease_of(journal) as lease:
        with elsewhere():
            begin(journal, lease, seconds=100)
        execute(other, "UPDATE momopay_payments SET lease_until = 0")  # by a clock of which nothing is known here
        assert state_of(other) is SENDING
        time[0] += 99
        assert state_of(other) is SENDING
        time[0] += 1
        assert state_of(other) is UNKNOWN
        time[0] += 9
        entry = found(other)
        assert store_of(other).seconds_to_release(entry) == pytest.approx(51)
    leases.first_read.cache_clear()  # as in a new process
    time[0] += 20
    assert store_of(other).seconds_to_release(entry) == pytest.approx(31), "it goes on where the last one was"
    with elsewhere():
        assert store_of(other).seconds_to_release(entry) == pytest.approx(160)


def test_a_handlers_end_is_taken_over_after_ten_minutes(journal: Journal, other: Journal, time: list[float]) -> None:
    with ExitStack() as handlers, elsewhere():
        assert handlers.enter_context(journal.handling(callback()))
        for machine in (elsewhere(), ExitStack()):
            with machine, suppress(CallbackError), other.handling(callback()):
                pytest.fail("it was handled twice at once")
        time[0] += 599.9
        with pytest.raises(CallbackError), other.handling(callback()):
            pytest.fail("it was handled twice at once")
        time[0] += 0.1
        assert handlers.enter_context(other.handling(callback()))
