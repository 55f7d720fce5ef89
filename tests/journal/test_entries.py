"""Entries: what they show, and what their transactions mean."""

import pickle
import subprocess
import sys
from dataclasses import replace

import pytest

from journal.constants import ACCEPTED, COLLECTION, PAYOUT, PHONE, SENDING, UNKNOWN
from journal.kit import entry_of
from momopay import EntryKind, JournalState
from momopay.journal.entries import JournalCheck

# In a process of its own, because a schema is built once. The package is loaded at its first use, which may be in a
# test that stops the time.
STOPPED = """
import datetime

class Stopped(datetime.datetime):
    pass

datetime.datetime = Stopped  # as freezegun does; pydantic makes no schema of such a class

from momopay.journal.entries import JournalEntry

at = Stopped.now(datetime.UTC).isoformat()
same = {"amount": "1", "phone": "254", "sent_at": at}
entry = JournalEntry.model_validate(
    same | {"kind": "PAYOUT", "reference": "r", "wire_reference": "r", "state": "UNKNOWN", "created_at": at}
    | {"transactions": [same | {"transaction_id": "t"}]}
)
print(entry.created_at.isoformat() == at, entry.transactions[0].sent_at.isoformat() == at)
"""


def test_an_entry_can_be_read_while_a_test_stops_the_time() -> None:
    ran = subprocess.run([sys.executable, "-c", STOPPED], capture_output=True, text=True, check=True, timeout=60)
    assert ran.stdout.split() == ["True", "True"]


def test_an_entry_hides_the_phone_and_pickles() -> None:
    entry = entry_of("SUCCESS", reference=f"for {PHONE}")
    for text in (repr(entry), str(entry), f"{entry}", repr(entry.transactions[0])):
        assert PHONE not in text
        assert "2547*****678" in text
    assert pickle.loads(pickle.dumps(entry)) == entry


@pytest.mark.parametrize(
    ("statuses", "state", "counts"),
    [
        ([], ACCEPTED, None),
        (["FAILED", "PENDING"], ACCEPTED, "t-1"),
        (["FAILED", "CANCELLED"], ACCEPTED, "t-1"),
        (["FAILED"], SENDING, None),  # of an attempt that is under way nothing is known
        (["FAILED"], UNKNOWN, None),
        (["SUCCESS", "PENDING"], ACCEPTED, "t-0"),
        (["CANCELLED", "SUCCESS", "SUCCESS"], ACCEPTED, "t-1"),
        (["SUCCESS"], UNKNOWN, "t-0"),  # a late PIN, whatever the latest attempt does
    ],
)
def test_the_first_paid_or_the_latest_one_counts(statuses: list[str], state: JournalState, counts: str | None) -> None:
    entry = entry_of(*statuses, state=state)
    assert (entry.transaction and entry.transaction.transaction_id) == entry.transaction_id == counts
    assert entry.transaction_ids == tuple(f"t-{number}" for number in range(len(statuses)))
    reported = (entry.status, entry.result_code, entry.receipt, entry.fee, entry.ended_at)
    assert counts is not None or reported == (None,) * 5
    dumped = entry.model_dump(mode="json")
    assert (dumped["transaction_id"], dumped["status"]) == (counts, entry.status)


def test_an_id_that_a_broken_response_showed_is_shown_until_a_transaction_is_known() -> None:
    assert entry_of(state=UNKNOWN, seen_id="seen").transaction_id == "seen"
    assert entry_of("SUCCESS", state=UNKNOWN, seen_id="seen").transaction_id == "t-0"


@pytest.mark.parametrize(
    ("kind", "statuses", "counting"),
    [
        (COLLECTION, ["SUCCESS", "PENDING", "CANCELLED"], 1),
        (COLLECTION, ["SUCCESS", "SUCCESS"], 2),
        (PAYOUT, [None], 1),  # the wallet was debited
        (PAYOUT, ["SUCCESS", "PENDING"], 2),
        (PAYOUT, ["REVERSED", "SUCCESS"], 1),
        (PAYOUT, ["FAILED"], 0),
    ],
)
def test_paid_twice_counts_what_was_or_may_be_paid(kind: EntryKind, statuses: list[str | None], counting: int) -> None:
    entry = entry_of(*statuses, kind=kind)
    assert len(entry.counting) == counting
    assert entry.paid_twice is (counting > 1)


def test_a_check_needs_attention_for_what_only_a_person_can_do() -> None:
    nothing = JournalCheck("default", 1, None, None, None, {(PAYOUT, SENDING): 1}, (), 5, (), None)
    assert not nothing.needs_attention
    assert replace(nothing, unresolved=("r",)).needs_attention
    assert replace(nothing, paid_twice=("r",)).needs_attention
    assert replace(nothing, went_back="why").needs_attention
