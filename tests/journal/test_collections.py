"""The rows of orders and their prompts, on both databases."""

from __future__ import annotations

import logging
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

import pytest

from journal.kit import PHONE, execute, in_threads, just_before, put
from momopay import EntryKind, Journal, JournalEntry, JournalError, JournalState
from momopay.journal.collections import Collections
from momopay.journal.evidence import Report
from momopay.journal.journal import collections_of
from momopay.journal.lease import Lease

ACCEPTED, REFUSED, NOT_SENT, UNKNOWN, SENDING = (
    JournalState.ACCEPTED,
    JournalState.REFUSED,
    JournalState.NOT_SENT,
    JournalState.UNKNOWN,
    JournalState.SENDING,
)
CANCELLED = Report("a", "CANCELLED", result_code="1032", fee="0", ended_at="2026-11-20T10:01:00+00:00")
PAID = Report("a", "SUCCESS", receipt="R1", fee="1.50", ended_at="2026-11-20T10:02:00+00:00")


@pytest.fixture
def orders(journal: Journal) -> Collections:
    return collections_of(journal)


def found(orders: Collections, reference: str = "order") -> JournalEntry:
    entry = orders.get(reference)
    assert entry is not None
    return entry


def begin(
    orders: Collections,
    lease: Lease,
    read: JournalEntry | None,
    reference: str = "order",
    wire_reference: str | None = None,
) -> bool:
    """Begin an attempt to prompt, as a call does that has read the row."""
    blocking = orders.begin(
        lease,
        reference=reference,
        amount=Decimal(100),
        phone=PHONE,
        body_hash="hash",
        seconds=600,
        read=read,
        wire_reference=wire_reference or f"w-{reference}",
    )
    return blocking is None


@contextmanager
def sending(orders: Collections) -> Generator[Lease]:
    """Begin an attempt to prompt, as it was read just now."""
    with orders.leases.lease() as lease:
        assert begin(orders, lease, orders.get("order"))
        yield lease


def prompt(orders: Collections, transaction_id: str = "a", status: str = "PENDING") -> JournalEntry:
    """Bring the order to another prompt."""
    with sending(orders) as lease:
        assert orders.accept("order", Report(transaction_id, status), lease=lease)
    return found(orders)


def refuse(orders: Collections, state: JournalState = REFUSED) -> JournalEntry:
    with sending(orders) as lease:
        orders.record_outcome(lease, "order", state)
    return found(orders)


def statuses(entry: JournalEntry) -> list[str]:
    return [f"{each.transaction_id} {each.status}" for each in entry.prompts]


def test_an_order_is_written_before_its_prompt_is_sent(orders: Collections, journal: Journal) -> None:
    with sending(orders):
        entry = found(orders)
    assert (entry.kind, entry.state, entry.wire_reference) == (EntryKind.COLLECTION, SENDING, "w-order")
    assert (entry.attempts, entry.prompts, entry.transaction_ids) == (1, (), ())
    assert journal.get("order", kind=EntryKind.COLLECTION) == found(orders)
    assert journal.get("order") is None


def test_the_same_reference_may_be_that_of_a_payout(orders: Collections, journal: Journal) -> None:
    payout = put(journal, "order", ACCEPTED)
    assert prompt(orders).transaction_id == "a"
    assert journal.get("order") == payout


def test_only_an_order_has_prompts(orders: Collections, journal: Journal) -> None:
    put(journal, "order", ACCEPTED)
    prompt(orders)
    listed = {entry.kind: len(entry.prompts) for entry in journal.entries()}
    assert listed == {EntryKind.PAYOUT: 0, EntryKind.COLLECTION: 1}


def test_an_accepted_prompt_is_kept_with_its_order(orders: Collections) -> None:
    entry = prompt(orders)
    assert (entry.state, entry.transaction_id, entry.status) == (ACCEPTED, "a", "PENDING")
    (known,) = entry.prompts
    assert (known.transaction_id, known.sent_at, known.is_open) == ("a", entry.sent_at, True)
    assert not entry.has_settled


@pytest.mark.both_databases
def test_a_second_prompt_follows_the_first(orders: Collections) -> None:
    first = prompt(orders)
    assert orders.report("order", CANCELLED)
    ended = found(orders)
    assert (ended.status, ended.result_code, ended.fee) == ("CANCELLED", "1032", Decimal(0))
    assert ended.has_settled
    second = prompt(orders, "b")
    assert statuses(second) == ["a CANCELLED", "b PENDING"]
    assert (second.transaction_id, second.status, second.result_code, second.attempts) == ("b", "PENDING", None, 2)
    assert second.sent_at > first.sent_at
    assert second.created_at == first.created_at


def test_nothing_is_known_of_an_attempt_that_was_begun(orders: Collections) -> None:
    prompt(orders)
    orders.report("order", CANCELLED)
    with sending(orders):
        entry = found(orders)
    assert (entry.state, entry.transaction_id, entry.status, entry.ended_at) == (SENDING, None, None, None)
    assert statuses(entry) == ["a CANCELLED"]


@pytest.mark.parametrize("state", [REFUSED, NOT_SENT, UNKNOWN])
def test_how_an_attempt_ended(orders: Collections, state: JournalState) -> None:
    prompt(orders)
    orders.report("order", CANCELLED)
    entry = refuse(orders, state)
    assert (entry.state, entry.attempts) == (state, 1 if state is NOT_SENT else 2)
    assert statuses(entry) == ["a CANCELLED"]


# What a call read must still be so when it begins.


def test_of_two_calls_that_read_the_same_one_begins(orders: Collections) -> None:
    prompt(orders)
    orders.report("order", CANCELLED)
    read = found(orders)
    with orders.leases.lease() as first, orders.leases.lease() as second:
        assert begin(orders, first, read)
        assert not begin(orders, second, read)


@pytest.mark.parametrize("state", [ACCEPTED, REFUSED, NOT_SENT, UNKNOWN])
def test_what_was_paid_meanwhile_is_not_prompted_again(orders: Collections, state: JournalState) -> None:
    prompt(orders)
    orders.report("order", CANCELLED)
    read = found(orders) if state is ACCEPTED else refuse(orders, state)
    assert orders.report("order", PAID)
    with orders.leases.lease() as lease:
        assert not begin(orders, lease, read)
        assert not begin(orders, lease, found(orders))
    assert found(orders).state is state


@pytest.mark.both_databases
def test_a_payment_at_the_moment_of_the_begin_statement_stops_it(orders: Collections, journal: Journal) -> None:
    prompt(orders)
    orders.report("order", CANCELLED)
    read = found(orders)
    paid_meanwhile = just_before("UPDATE momopay_payments", journal, lambda: orders.report("order", PAID))
    with orders.leases.lease() as lease, paid_meanwhile:
        assert not begin(orders, lease, read)


@pytest.mark.parametrize("state", [ACCEPTED, REFUSED, UNKNOWN])
def test_a_prompt_that_became_known_meanwhile_is_not_passed_over(orders: Collections, state: JournalState) -> None:
    prompt(orders)
    orders.report("order", CANCELLED)
    read = found(orders) if state is ACCEPTED else refuse(orders, state)
    assert orders.accept("order", Report("b", "PENDING"))
    with orders.leases.lease() as lease:
        assert not begin(orders, lease, read)
    assert statuses(found(orders)) == ["a CANCELLED", "b PENDING"]
    assert found(orders).state is ACCEPTED


def test_what_is_being_sent_is_not_begun_again(orders: Collections) -> None:
    with sending(orders), orders.leases.lease() as lease:
        assert not begin(orders, lease, found(orders))


def test_what_is_unknown_is_not_begun_again(orders: Collections) -> None:
    with sending(orders):
        pass
    read = found(orders)
    assert read.state is UNKNOWN  # stored as SENDING
    with orders.leases.lease() as lease:
        assert not begin(orders, lease, read)


# What is reported of a prompt.


def test_the_status_of_a_prompt_only_moves_forward(orders: Collections) -> None:
    prompt(orders)
    for report in (Report("a", "PROCESSING"), CANCELLED, Report("a", "PENDING"), Report("a")):
        assert orders.report("order", report)
    assert (statuses(found(orders)), found(orders).status) == (["a CANCELLED"], "CANCELLED")
    for report in (PAID, Report("a", "PENDING"), CANCELLED, Report("a", "SUCCESS")):
        assert orders.accept("order", report)
    entry = found(orders)
    (known,) = entry.prompts
    assert (known.status, known.result_code, known.receipt, known.fee) == ("SUCCESS", None, "R1", Decimal("1.50"))
    assert known.ended_at is not None
    for name in ("status", "result_code", "receipt", "fee", "ended_at"):
        assert getattr(entry, name) == getattr(known, name)


def test_a_receipt_is_added_to_what_was_paid(orders: Collections) -> None:
    prompt(orders, status="SUCCESS")
    assert orders.report("order", PAID)
    assert (found(orders).receipt, found(orders).prompts[0].receipt) == ("R1", "R1")


def test_an_unknown_prompt_is_not_reported_on(orders: Collections) -> None:
    prompt(orders)
    assert not orders.report("order", Report("b", "SUCCESS"))
    assert not orders.report("another", PAID)
    assert not orders.accept("another", PAID)
    assert statuses(found(orders)) == ["a PENDING"]


def test_a_known_prompt_changes_nothing_of_a_later_attempt(orders: Collections) -> None:
    prompt(orders)
    orders.report("order", CANCELLED)
    with sending(orders):
        assert orders.accept("order", CANCELLED)
        assert (found(orders).state, found(orders).transaction_id) == (SENDING, None)
    entry = refuse_unknown = found(orders)
    assert entry.state is UNKNOWN
    assert orders.accept("order", CANCELLED)
    assert found(orders) == refuse_unknown


def test_a_late_answer_of_an_earlier_attempt_changes_nothing_of_the_later_one(orders: Collections) -> None:
    with sending(orders) as first, orders.leases.lease() as second:
        orders.record_outcome(first, "order", UNKNOWN)
        assert orders.release(found(orders), "Amina")
        assert begin(orders, second, found(orders))
        assert orders.accept("order", Report("a", "PENDING"), lease=first)
        assert (found(orders).state, found(orders).transaction_id) == (SENDING, None)
        assert orders.accept("order", Report("b", "PENDING"), lease=second)
    assert sorted(statuses(found(orders))) == ["a PENDING", "b PENDING"]
    assert found(orders).transaction_id == "b"


def test_a_late_pin_pays_the_order_whatever_its_latest_attempt_does(orders: Collections) -> None:
    prompt(orders)
    orders.report("order", CANCELLED)
    with sending(orders) as lease:
        orders.report("order", PAID)
        entry = found(orders)
        assert (entry.state, entry.transaction_id, entry.status, entry.receipt) == (SENDING, "a", "SUCCESS", "R1")
        orders.record_outcome(lease, "order", UNKNOWN, transaction_id="x")
        assert found(orders).transaction_id == "a"
    assert orders.accept("order", Report("b", "PENDING"))
    entry = found(orders)
    assert (entry.state, entry.transaction_id, entry.status) == (ACCEPTED, "a", "SUCCESS")
    assert not entry.paid_twice


def test_an_order_that_was_paid_twice_says_so_once(orders: Collections, caplog: pytest.LogCaptureFixture) -> None:
    prompt(orders)
    orders.report("order", CANCELLED)
    prompt(orders, "b", "SUCCESS")
    assert caplog.records == []
    assert all(orders.report("order", PAID) for _ in range(3))
    entry = found(orders)
    assert entry.paid_twice
    assert entry.transaction_ids == ("a", "b")
    assert (entry.transaction_id, entry.receipt) == ("b", None)
    (record,) = [each for each in caplog.records if each.levelno == logging.CRITICAL]
    assert "'order' was paid 2 times, by transactions a, b: pay back KES 100" in record.getMessage()


def test_a_transaction_belongs_to_one_order(orders: Collections, journal: Journal) -> None:
    prompt(orders)
    put(journal, "payout", ACCEPTED, transaction_id="of-payout")
    with orders.leases.lease() as lease:
        assert begin(orders, lease, None, "another")
        assert not orders.accept("another", Report("a", "SUCCESS"), lease=lease)
        assert not orders.accept("another", Report("of-payout", "PENDING"), lease=lease)
        assert found(orders, "another").state is SENDING
    assert statuses(found(orders)) == ["a PENDING"]
    assert found(orders, "another").prompts == ()


def test_a_prompt_is_found_though_an_unclear_answer_named_that_of_another_order(
    orders: Collections, journal: Journal
) -> None:
    put(journal, "payout", ACCEPTED, transaction_id="another's")
    with sending(orders) as lease:
        orders.record_outcome(lease, "order", UNKNOWN, transaction_id="another's")
    assert orders.accept("order", Report("a", "PENDING"))
    assert (found(orders).state, found(orders).transaction_id) == (ACCEPTED, "a")


def test_the_prompt_of_an_earlier_attempt_leaves_the_latest_one_in_doubt(orders: Collections) -> None:
    """What was refused, or abandoned in doubt, was a prompt after all."""
    refuse(orders)
    with sending(orders) as lease:
        orders.record_outcome(lease, "order", UNKNOWN, clock_offset=0.0)
    sent_at = found(orders).sent_at
    assert orders.accept("order", replace(CANCELLED, created_at=sent_at - timedelta(seconds=60)))
    assert (found(orders).state, statuses(found(orders))) == (UNKNOWN, ["a CANCELLED"])
    assert orders.accept("order", Report("b", "PENDING", created_at=sent_at))
    assert (found(orders).state, found(orders).transaction_id) == (ACCEPTED, "b")


@pytest.mark.parametrize(("offset", "seconds"), [(0.0, 1), (120.0, 60), (None, 60)])
def test_a_prompt_that_may_be_that_of_the_latest_attempt_resolves_it(
    orders: Collections, offset: float | None, seconds: int
) -> None:
    refuse(orders)
    with sending(orders) as lease:
        orders.record_outcome(lease, "order", UNKNOWN, clock_offset=offset)
    assert orders.accept("order", replace(CANCELLED, created_at=found(orders).sent_at - timedelta(seconds=seconds)))
    assert found(orders).state is ACCEPTED


def test_the_offset_is_that_of_the_clock_that_dated_the_latest_attempt(orders: Collections) -> None:
    for offset in (0.0, 86_400.0):
        with sending(orders) as lease:
            orders.record_outcome(lease, "order", REFUSED, clock_offset=offset)
        assert found(orders).clock_offset == offset


def test_a_prompt_and_its_row_are_written_together(orders: Collections, journal: Journal) -> None:
    if journal._database._own.database.engine.dialect.name == "sqlite":
        fails = "CREATE TRIGGER full BEFORE UPDATE ON momopay_payments BEGIN SELECT RAISE(ABORT, 'disk full'); END"
    else:
        fails = "ALTER TABLE momopay_payments ADD CONSTRAINT full_disk CHECK (state <> 'ACCEPTED') NOT VALID"
    with sending(orders) as lease:
        execute(journal, fails)
        with pytest.raises(JournalError):
            orders.accept("order", Report("a", "PENDING"), lease=lease)
    assert found(orders).prompts == ()


def test_what_is_another_payment_is_no_prompt_of_the_order(orders: Collections) -> None:
    prompt(orders)
    orders.report("order", CANCELLED)
    entry = prompt(orders, "b")
    orders.contradict(entry, "a")
    assert (found(orders).state, statuses(found(orders))) == (ACCEPTED, ["b PENDING"])
    orders.contradict(entry)
    assert (found(orders).state, found(orders).transaction_id, found(orders).prompts) == (UNKNOWN, None, ())


def test_an_order_is_found_by_what_the_service_has(orders: Collections) -> None:
    entry = prompt(orders)
    assert orders.by_wire_reference("w-order") == entry
    assert orders.by_wire_reference("order") is None


@pytest.mark.both_databases
def test_two_orders_never_have_the_same_reference_at_the_service(orders: Collections) -> None:
    prompt(orders)
    with orders.leases.lease() as lease, pytest.raises(JournalError, match="neither took the row"):
        begin(orders, lease, None, "another", "w-order")


@pytest.mark.both_databases
def test_what_is_in_doubt_is_listed_with_its_prompts(orders: Collections, journal: Journal) -> None:
    put(journal, "payout", UNKNOWN)
    prompt(orders)
    orders.report("order", CANCELLED)
    refuse(orders, UNKNOWN)
    payout, order = journal.unresolved()
    assert (payout.kind, order.kind) == (EntryKind.PAYOUT, EntryKind.COLLECTION)
    assert order == found(orders)
    assert len(order.prompts) == 1


def test_a_person_releases_an_order_by_its_kind(orders: Collections, journal: Journal) -> None:
    refuse(orders, UNKNOWN)
    assert journal.release("order", "Amina", kind=EntryKind.COLLECTION).state is NOT_SENT
    assert found(orders).released_by == "Amina"


@pytest.mark.both_databases
def test_reports_at_once_are_all_recorded(orders: Collections) -> None:
    prompt(orders)
    assert all(in_threads(6, lambda: orders.accept("order", PAID)))
    assert statuses(found(orders)) == ["a SUCCESS"]
