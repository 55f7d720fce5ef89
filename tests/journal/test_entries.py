"""Entries: what they show, and what their states mean."""

from __future__ import annotations

import pickle
import subprocess
import sys
from datetime import UTC, datetime
from decimal import Decimal

import pytest

from journal.kit import PHONE
from momopay import EntryKind, JournalEntry, JournalState, Prompt, TransactionStatus
from momopay.journal.entries import MAY_BE_SENT, OPEN

ENTRY = JournalEntry(
    reference=f"for {PHONE}",
    amount=Decimal("10.50"),
    phone=PHONE,
    state=JournalState.UNKNOWN,
    transaction_id=None,
    code=None,
    sent_at=datetime(2026, 11, 20, 10, tzinfo=UTC),
    body_hash="a hash of the body",
)

# In a process of its own, because a schema is built once. The package is loaded at its first use, which may be in a
# test that stops the time.
STOPPED = """
import datetime

class Stopped(datetime.datetime):
    pass

datetime.datetime = Stopped  # as freezegun does; pydantic makes no schema of such a class

from momopay import Journal, JournalState
from momopay.journal.entries import JournalEntry, Prompt

at = Stopped.now(datetime.UTC).isoformat()
same = {"reference": "r", "amount": "1", "phone": "254", "transaction_id": None, "code": None, "sent_at": at}
entry = JournalEntry.model_validate(same | {"state": JournalState.UNKNOWN, "body_hash": ""})
print(entry.created_at.isoformat() == at)
print(Prompt.model_validate({"transaction_id": "t", "sent_at": at}).sent_at.isoformat() == at)
"""


def test_an_entry_can_be_read_while_a_test_stops_the_time() -> None:
    ran = subprocess.run([sys.executable, "-c", STOPPED], capture_output=True, text=True, check=True, timeout=60)
    assert ran.stdout.split() == ["True", "True"]


def test_an_entry_shows_neither_phone_nor_hash_and_pickles() -> None:
    for text in (repr(ENTRY), str(ENTRY), f"{ENTRY}"):
        assert PHONE not in text
        assert "hash of the body" not in text
        assert "2547*****678" in text
    assert pickle.loads(pickle.dumps(ENTRY)) == ENTRY


def test_a_state_allows_sending_or_is_open_or_is_accepted() -> None:
    assert sorted([*MAY_BE_SENT, *OPEN, JournalState.ACCEPTED]) == sorted(JournalState)


def prompt(transaction_id: str, status: str | None) -> Prompt:
    known = None if status is None else TransactionStatus(status)
    return Prompt(transaction_id=transaction_id, status=known, sent_at=ENTRY.sent_at)


def test_a_collection_has_the_ids_of_all_its_prompts_and_shows_two_that_were_paid() -> None:
    order = ENTRY.model_copy(
        update={"kind": EntryKind.COLLECTION, "prompts": (prompt("first", "CANCELLED"), prompt("second", "SUCCESS"))}
    )
    assert order.transaction_ids == ("first", "second")
    assert not order.paid_twice
    assert order.model_copy(update={"prompts": (prompt("a", "SUCCESS"), prompt("b", "SUCCESS"))}).paid_twice


def test_a_payout_has_the_id_of_its_transaction_once_it_is_known() -> None:
    assert ENTRY.transaction_ids == ()
    assert ENTRY.model_copy(update={"transaction_id": "t"}).transaction_ids == ("t",)


@pytest.mark.parametrize("kind", EntryKind)
@pytest.mark.parametrize("status", [None, "PENDING", "NEW", "SUCCESS", "FAILED", "REVERSED", "CANCELLED", "EXPIRED"])
def test_an_entry_has_settled_when_its_money_stays_where_it_is(kind: EntryKind, status: str | None) -> None:
    known = None if status is None else TransactionStatus(status)
    ends = {"SUCCESS", "REVERSED", "CANCELLED", "EXPIRED"}
    if kind is EntryKind.COLLECTION:
        ends.add("FAILED")
    assert ENTRY.model_copy(update={"kind": kind, "status": known}).has_settled == (status in ends)


def test_a_prompt_is_open_until_it_ended() -> None:
    assert [prompt("p", each).is_open for each in (None, "PROCESSING", "EXPIRED")] == [True, True, False]
