"""Each end is delivered once: among processes, over crashes, and none after one that outranks it."""

from contextlib import ExitStack, suppress
from functools import partial

import pytest

from forked import forks, in_a_fork
from journal.kit import COLLECTION, PAYOUT, callback, execute, in_threads, just_before, payout, put
from momopay import Callback, CallbackError, Journal, Transaction
from momopay.journal.entries import HistoryKind

DELIVERED, FAILED = HistoryKind.DELIVERED, HistoryKind.DELIVERY_FAILED


def abandon(journal: Journal, other: Journal) -> None:
    """Have another process begin to handle an end, and die."""
    assert not is_handled(other)
    execute(journal, "DELETE FROM momopay_history WHERE what = 'delivered'")
    execute(journal, "UPDATE momopay_deliveries SET lease_until = 0")


def is_handled_or_busy(journal: Journal) -> bool:
    try:
        return is_handled(journal)
    except CallbackError:
        return True


def is_handled(journal: Journal, record: Callback | Transaction | None = None) -> bool:
    """Return whether an end was handled; False if it was free to be, and handle it then."""
    with journal.handling(record or callback()) as is_new:
        return not is_new


def test_an_end_is_new_once_whatever_its_name(journal: Journal, other: Journal, url: str) -> None:
    """A callback may say CANCELLED, or EXPIRED, where a read says FAILED."""
    assert not is_handled(journal, callback(status="CANCELLED"))
    for each in (journal, other):
        assert is_handled(each, callback(status="EXPIRED"))
        assert is_handled(each, callback(status="CANCELLED"))
        assert is_handled(each, payout(status="FAILED"))
    assert not is_handled(journal, payout(status="SUCCESS"))
    assert is_handled(journal, callback(status="SUCCESS"))
    assert not is_handled(journal, callback(identity="another"))
    with Journal(url, account="another") as another:
        assert not is_handled(another, callback(status="FAILED"))


# Rank: no end is handled after one that outranks it


@pytest.mark.parametrize("high", ["SUCCESS", "REVERSED"])
def test_what_outranks_a_failure_is_handled_after_it_and_not_before_it(journal: Journal, high: str) -> None:
    """A late PIN, or money that came back."""
    assert not is_handled(journal, callback(status="FAILED"))
    for handled in (False, True):
        assert is_handled(journal, callback(status=high)) is handled
    for low in ("FAILED", "CANCELLED", "EXPIRED"):
        assert not is_handled(journal, callback(identity=low, status=high))
        assert is_handled(journal, callback(identity=low, status=low))
        assert is_handled(journal, callback(identity=low, status=low))
        assert not is_handled(journal, callback(identity=f"another {low}", status=low))


def test_an_open_status_outranks_nothing_and_is_not_handled_after_an_end(journal: Journal) -> None:
    for status in ("PENDING", "PROCESSING", "NEW", "FAILED"):
        assert not is_handled(journal, callback(status=status))
    assert not is_handled(journal, callback(identity="another", status="FAILED"))
    for status in ("PENDING", "PROCESSING", "NEW"):
        assert is_handled(journal, callback(identity="another", status=status))


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


@pytest.mark.parametrize("high", ["SUCCESS", "REVERSED"])
def test_what_outranks_a_failure_waits_while_that_is_being_handled(journal: Journal, other: Journal, high: str) -> None:
    """Else its handler could end first, and the failure's run last."""
    with journal.handling(callback(status="FAILED")):
        with pytest.raises(CallbackError, match="another call"), other.handling(callback(status=high)):
            pytest.fail("it was handled beside FAILED")
        assert not is_handled(other, callback(identity="another", status=high))
    assert not is_handled(other, callback(status=high))


@pytest.mark.both_databases
def test_of_two_ends_that_arrive_at_once_the_lower_one_finds_the_other(journal: Journal, other: Journal) -> None:
    with just_before("INSERT", journal, lambda: is_handled(other)):
        assert is_handled(journal, callback(status="FAILED"))


@pytest.mark.both_databases
def test_an_end_that_was_handled_since_its_row_was_read_outranks_a_failure(journal: Journal) -> None:
    with ExitStack() as handling:
        handling.enter_context(journal.handling(callback()))
        with just_before("SELECT momopay_deliveries", journal, handling.close, "after"):
            assert is_handled(journal, callback(status="FAILED"))


def test_a_failure_is_handled_where_what_outranks_it_was_abandoned(journal: Journal, other: Journal) -> None:
    abandon(journal, other)
    assert not is_handled(journal, callback(status="FAILED"))


# Once


@forks
@pytest.mark.parametrize("fails", [False, True])
def test_a_forked_child_leaves_its_parents_end_alone(journal: Journal, other: Journal, fails: bool) -> None:
    with ExitStack() as handling:
        handling.enter_context(journal.handling(callback()))
        child_leaves = partial(handling.__exit__, *((KeyError, KeyError(), None) if fails else (None, None, None)))
        assert in_a_fork(child_leaves) == 0
        with pytest.raises(CallbackError, match="another call"), other.handling(callback()):
            pytest.fail("it was handled twice at once")


@pytest.mark.both_databases
def test_a_callback_is_new_to_one_of_many_threads(journal: Journal) -> None:
    assert sorted(in_threads(8, lambda: is_handled_or_busy(journal))) == [False] + [True] * 7


def test_what_failed_is_handled_when_it_comes_again_to_any_process(journal: Journal, other: Journal) -> None:
    for failure in (KeyError, KeyboardInterrupt):
        with pytest.raises(failure), journal.handling(callback()):
            raise failure
    assert not is_handled(other)


@pytest.mark.parametrize("failure", [None, KeyError])
def test_a_late_handler_leaves_its_successors_callback_alone(
    journal: Journal, other: Journal, url: str, failure: type[Exception] | None
) -> None:
    with ExitStack() as successor:
        with suppress(KeyError), journal.handling(callback()):
            execute(other, "UPDATE momopay_deliveries SET lease_until = lease_until - 590")
            with pytest.raises(CallbackError), other.handling(callback()):
                pytest.fail("it has ten minutes")
            execute(other, "UPDATE momopay_deliveries SET lease_until = lease_until - 10")
            assert successor.enter_context(other.handling(callback()))
            if failure is not None:
                raise failure
        with Journal(url) as third:
            if failure is None:  # it was late, and it was handled
                assert is_handled(third)
            else:
                with pytest.raises(CallbackError), third.handling(callback()):
                    pytest.fail("its successor is still handling it")
    assert is_handled(journal)


@pytest.mark.both_databases
def test_an_abandoned_end_is_taken_over_once(journal: Journal, other: Journal) -> None:
    """After it was read as abandoned, another process takes it over."""
    abandon(journal, other)
    with ExitStack() as taken:

        def be_first() -> None:
            assert taken.enter_context(other.handling(callback()))

        with just_before("UPDATE", journal, be_first), pytest.raises(CallbackError), journal.handling(callback()):
            pytest.fail("the other one was first")


def test_the_error_of_a_handler_is_raised_even_if_the_journal_fails(
    journal: Journal, caplog: pytest.LogCaptureFixture
) -> None:
    def handle() -> None:
        with journal.handling(callback()):
            execute(journal, "DROP TABLE momopay_history")
            raise KeyError

    with pytest.raises(KeyError):
        handle()
    assert f"the end of {callback().transaction.transaction_id}: the journal cannot be" in caplog.text


# What the history says of it


def test_each_delivery_and_each_failed_one_is_in_the_history_of_its_payment(journal: Journal) -> None:
    put(journal, "r", transaction_id="the-id")
    with pytest.raises(KeyError), journal.handling(callback()):
        raise KeyError
    for _ in range(2):
        with journal.handling(callback()):
            pass
    with journal.handling(callback("METER", "link", type="STK")):
        pass
    told = [each for each in journal.history("r", PAYOUT) if each.what in {DELIVERED, FAILED}]
    assert [(each.what, each.to, each.transaction_id) for each in told] == [
        ("delivery failed", "SUCCESS", "the-id"),
        ("delivered", "SUCCESS", "the-id"),
    ]
    (unknown,) = journal.history("METER")
    assert (unknown.kind, unknown.what, unknown.to) == (COLLECTION, DELIVERED, "SUCCESS")
