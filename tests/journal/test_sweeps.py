"""What a sweep finds in the journal, on both databases."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from journal.kit import PHONE, callback, execute, lease_of, payout, put
from momopay import Journal, JournalState, TransactionStatus
from momopay.journal.ends import sweeps_of
from momopay.journal.evidence import Report, report_of
from momopay.journal.identity import KeyIdentity
from momopay.journal.journal import accounts_of, collections_of

ACCEPTED = JournalState.ACCEPTED
NOW = datetime.now(UTC)
IDENTITY = KeyIdentity.of("pk_test_x", "http://127.0.0.1:1/v1")


def settled(journal: Journal, reference: str, status: str, *, ended: datetime = NOW) -> None:
    put(journal, reference, ACCEPTED, transaction_id=f"t-{reference}")
    journal.settle(payout(reference, transactionId=f"t-{reference}", status=status, updatedAt=ended.isoformat()))


def prompted(journal: Journal, *statuses: str) -> None:
    """Put an order into the journal, with a prompt in each status."""
    orders = collections_of(journal)
    for number, status in enumerate(statuses):
        with lease_of(journal) as lease:
            read = orders.get("ORDER-1")
            begun = orders.begin(
                lease,
                reference="ORDER-1",
                amount=Decimal(10),
                phone=PHONE,
                body_hash="",
                seconds=60,
                read=read,
                wire_reference="WIRE",
            )
            assert begun is None
            orders.accept("ORDER-1", Report(f"p-{number}"), lease=lease)
        paid = payout("WIRE", type="STK", transactionId=f"p-{number}", status=status, updatedAt=NOW.isoformat())
        orders.report("ORDER-1", report_of(paid))


def test_open_are_payouts_that_have_not_settled_and_prompts_that_have_not_ended(journal: Journal) -> None:
    for status in ("PENDING", "FAILED", "SUCCESS", "REVERSED", "CANCELLED"):
        settled(journal, status, status)
    put(journal, "new", ACCEPTED, transaction_id="t-new")
    put(journal, "of version 1", ACCEPTED, transaction_id="t-1")
    execute(journal, "UPDATE momopay_payments SET transaction_id = NULL WHERE reference = 'of version 1'")
    put(journal, "unknown", JournalState.UNKNOWN, transaction_id="t-unknown")
    prompted(journal, "CANCELLED", "PROCESSING")
    assert sweeps_of(journal).count_open()[0] == len(journal.open()) == 5  # the order counts once
    found = sweeps_of(journal).open()
    assert {(each.reference, each.transaction_id) for each in found} == {
        ("PENDING", "t-PENDING"),
        ("FAILED", "t-FAILED"),
        ("new", "t-new"),
        ("ORDER-1", "p-1"),
    }
    (prompt,) = [each for each in found if each.transaction_id == "p-1"]
    assert (prompt.wire_reference, prompt.phone, prompt.status) == ("WIRE", PHONE, TransactionStatus.PROCESSING)
    assert prompt.amount == 10


def test_a_prompt_is_to_be_checked_until_it_was(journal: Journal) -> None:
    prompted(journal, "CANCELLED", "FAILED", "PENDING")
    sweeps = sweeps_of(journal)
    assert {each.transaction_id for each in sweeps.to_check()} == {"p-0", "p-1"}
    sweeps.mark_checked(["p-0"])
    assert {each.transaction_id for each in sweeps.to_check()} == {"p-1"}


def test_ends_are_for_a_handler_from_a_day_before_the_first_sweep_on(journal: Journal) -> None:
    accounts_of(journal).check(IDENTITY)
    sweeps = sweeps_of(journal)
    settled(journal, "old", "SUCCESS", ended=NOW - timedelta(days=2))
    settled(journal, "new", "SUCCESS")
    since = sweeps.handled_since(NOW)
    assert since == sweeps.handled_since(NOW + timedelta(days=9)), "the first one decides"
    assert [each.reference for each in sweeps.unhandled(since)] == ["new"]


def test_an_end_is_for_a_handler_until_it_was_handled(journal: Journal) -> None:
    for reference, status in (("r", "CANCELLED"), ("s", "REVERSED"), ("t", "FAILED"), ("u", "PENDING")):
        settled(journal, reference, status)
    prompted(journal, "EXPIRED", "SUCCESS")
    sweeps, since = sweeps_of(journal), (NOW - timedelta(days=1)).isoformat()
    unhandled = [each.transaction_id for each in sweeps.unhandled(since)]
    assert unhandled == ["t-r", "t-s", "p-0", "p-1"], "a payout's FAILED is not an end"
    assert journal.first_seen(callback(identity="t-r", status="EXPIRED"))
    assert journal.first_seen(callback(identity="t-s", status="FAILED")), "its reversal is another end"
    assert journal.first_seen(callback(identity="p-0", status="CANCELLED"))
    sweeps.forget_handled(since)
    assert [each.transaction_id for each in sweeps.unhandled(since)] == ["t-s", "p-1"]
    with journal.handling(callback(identity="p-1")):
        sweeps.forget_handled(since)
        assert [each.transaction_id for each in sweeps.unhandled(since)] == ["t-s", "p-1"], "not before it ended"
    sweeps.forget_handled(since)
    assert [each.transaction_id for each in sweeps.unhandled(since)] == ["t-s"]


def check_count(journal: Journal, count: int) -> None:
    listed = journal.open()
    assert len(listed) == count
    assert sweeps_of(journal).count_open() == (count, listed[0].sent_at if listed else None)


@pytest.mark.both_databases
def test_what_is_open_is_counted_as_it_is_listed(journal: Journal) -> None:
    check_count(journal, 0)
    put(journal, "ORDER-1", ACCEPTED, transaction_id="t-1")  # a payout with the reference of an order
    put(journal, "unknown", JournalState.UNKNOWN)
    check_count(journal, 1)
    prompted(journal, "CANCELLED", "PROCESSING")
    check_count(journal, 2)
    orders = collections_of(journal)
    orders.report("ORDER-1", Report("p-0", "SUCCESS", ended_at=NOW.isoformat()))  # a late PIN
    check_count(journal, 2)
    orders.report("ORDER-1", Report("p-1", "CANCELLED", ended_at=NOW.isoformat()))
    check_count(journal, 1)
