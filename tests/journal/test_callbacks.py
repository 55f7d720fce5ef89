"""Callbacks are handled once, on both databases."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import ExitStack, contextmanager, suppress

import pytest

from journal.kit import callback, execute, in_threads, just_before, payout, sender
from momopay import Callback, CallbackError, Journal, Transaction
from patience import until

END_LEASES = "UPDATE momopay_callbacks SET lease_until = 0"


def is_handled(journal: Journal, record: Callback | Transaction | None = None) -> bool:
    """Return whether an end was handled; False if it was free to be, and handle it then."""
    with journal.handling(record or callback()) as is_new:
        return not is_new


@contextmanager
def left_to_its_successor(journal: Journal, other: Journal, successor: ExitStack) -> Generator[None]:
    """Handle the callback for so long that another process takes it over."""
    with journal.handling(callback()) as is_new:
        assert is_new
        execute(other, END_LEASES)
        assert successor.enter_context(other.handling(callback()))
        yield


def test_a_callback_is_new_once(journal: Journal, other: Journal) -> None:
    assert journal.first_seen(callback())
    assert not other.first_seen(callback())


def test_ends_of_other_transactions_and_other_ends_are_new(journal: Journal, url: str) -> None:
    assert journal.first_seen(callback(status="FAILED"))
    assert journal.first_seen(callback(status="REVERSED"))
    assert journal.first_seen(callback(identity="another"))
    assert not journal.first_seen(callback(status="FAILED"))
    with Journal(url, account="another") as another:
        assert another.first_seen(callback(status="FAILED"))


def test_an_end_without_success_is_one_end_whatever_its_name(journal: Journal) -> None:
    """A callback may say CANCELLED, or EXPIRED, where a read says FAILED."""
    assert journal.first_seen(callback(status="CANCELLED"))
    assert not journal.first_seen(callback(status="EXPIRED"))
    assert is_handled(journal, payout(status="FAILED"))
    assert journal.first_seen(payout(status="REVERSED"))
    assert journal.first_seen(payout(status="SUCCESS"))
    assert not journal.first_seen(callback(status="SUCCESS"))


# Rank: no end is handled after one that outranks it


@pytest.mark.parametrize("high", ["SUCCESS", "REVERSED"])
@pytest.mark.parametrize("low", ["FAILED", "CANCELLED", "EXPIRED"])
def test_a_failure_is_not_handled_after_what_outranks_it(journal: Journal, low: str, high: str) -> None:
    assert not is_handled(journal, callback(status=high))
    assert is_handled(journal, callback(status=low))
    assert not journal.first_seen(callback(status=low))
    assert not is_handled(journal, callback(identity="another", status=low))


@pytest.mark.parametrize("high", ["SUCCESS", "REVERSED"])
def test_what_outranks_a_failure_is_handled_after_it(journal: Journal, high: str) -> None:
    """A late PIN, or money that came back."""
    assert not is_handled(journal, callback(status="FAILED"))
    assert not is_handled(journal, callback(status=high))
    assert is_handled(journal, callback(status=high))


def test_a_failure_waits_while_what_outranks_it_is_being_handled(journal: Journal, other: Journal) -> None:
    """If that handler fails, the failure is handled when it comes again."""
    failed = callback(status="FAILED")

    def fail() -> None:
        with journal.handling(callback()):
            with pytest.raises(CallbackError, match="another call"), other.handling(failed):
                pytest.fail("it was handled beside SUCCESS")
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert not is_handled(other, failed)


@pytest.mark.both_databases
def test_of_two_ends_that_arrive_at_once_the_lower_one_finds_the_other(journal: Journal, other: Journal) -> None:
    with just_before("INSERT", journal, lambda: is_handled(other)):
        assert is_handled(journal, callback(status="FAILED"))


def test_a_failure_is_handled_where_what_outranks_it_was_abandoned(journal: Journal, other: Journal) -> None:
    other.first_seen(callback())
    execute(journal, "UPDATE momopay_callbacks SET lease_until = 0, handled = (1 = 0)")
    assert not is_handled(journal, callback(status="FAILED"))


# Once


def test_a_transaction_that_was_handled_is_not_handled_again_as_a_callback(journal: Journal) -> None:
    with journal.handling(payout()) as is_new:
        assert is_new
    assert is_handled(journal)


@pytest.mark.both_databases
def test_a_callback_is_new_to_one_of_many_threads(journal: Journal) -> None:
    assert sorted(in_threads(8, lambda: journal.first_seen(callback()))) == [False] * 7 + [True]


def test_what_was_handled_is_not_handled_again(journal: Journal) -> None:
    assert not is_handled(journal)
    assert is_handled(journal)
    assert not journal.first_seen(callback())


def test_what_failed_is_handled_when_it_comes_again_to_any_process(journal: Journal, other: Journal) -> None:
    with pytest.raises(KeyError), journal.handling(callback()):
        raise KeyError
    assert not is_handled(other)


def test_what_is_being_handled_is_left_alone(journal: Journal, url: str) -> None:
    with sender(url, "callback") as process:
        assert process.says() == "held"
        with pytest.raises(CallbackError, match="another call is handling"), journal.handling(callback()):
            pytest.fail("it was handled twice")
        process.end()
        assert is_handled(journal)


@pytest.mark.both_databases
def test_what_a_killed_process_was_handling_is_handled_again(journal: Journal, url: str) -> None:
    with sender(url, "callback") as process:
        assert process.says() == "held"
        process.kill()

    def handled() -> bool:
        with suppress(CallbackError):
            return not is_handled(journal)
        return False

    until(handled, "the database saw the process go")
    assert is_handled(journal)


@pytest.mark.parametrize("failure", [None, KeyError])
def test_a_late_handler_leaves_its_successors_callback_alone(
    journal: Journal, other: Journal, url: str, failure: type[Exception] | None
) -> None:
    with ExitStack() as successor:
        with suppress(KeyError), left_to_its_successor(journal, other, successor):
            if failure is not None:
                raise failure
        with Journal(url) as third, pytest.raises(CallbackError), third.handling(callback()):
            pytest.fail("its successor is still handling it")
    assert is_handled(journal)


@pytest.mark.both_databases
def test_one_of_two_takes_an_abandoned_callback_over(journal: Journal, other: Journal, url: str) -> None:
    with ExitStack() as taken:
        with Journal(url) as died:
            died.first_seen(callback())
        execute(journal, "UPDATE momopay_callbacks SET lease_until = 0, handled = (1 = 0)")
        take = just_before("UPDATE", journal, lambda: taken.enter_context(other.handling(callback())))
        with take, pytest.raises(CallbackError), journal.handling(callback()):
            pytest.fail("the other took it over first")


def test_a_callback_that_was_handled_meanwhile_is_not_taken_over(journal: Journal, other: Journal) -> None:
    """The row that was read as abandoned is marked as handled before it is taken over."""
    other.first_seen(callback())
    execute(journal, "UPDATE momopay_callbacks SET lease_until = 0, handled = (1 = 0)")
    marked = "UPDATE momopay_callbacks SET handled = (1 = 1)"
    with (
        just_before("UPDATE", journal, lambda: execute(other, marked)),
        pytest.raises(CallbackError),
        journal.handling(callback()),
    ):
        pytest.fail("it was handled twice")


def test_the_error_of_a_handler_is_raised_even_if_the_journal_fails(journal: Journal) -> None:
    def handle() -> None:
        with journal.handling(callback()):
            journal.close()
            raise KeyError

    with pytest.raises(KeyError):
        handle()
