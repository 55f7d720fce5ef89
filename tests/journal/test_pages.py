"""All entries come once, newest first; and a check finds what needs a person."""

import os
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from journal.constants import ACCEPTED, COLLECTION, NO_TIMES, PAYOUT, REFUSED, SENDING, UNKNOWN
from journal.database_kit import execute, store_of
from journal.kit import begin, dated, fill, found, lease_of, names, put, put_collection
from journal.records import callback, report
from momopay import Journal, JournalError, RequestValidationError, TransactionStatus
from momopay.journal.journal import internals
from momopay.journal.upgrade import VERSION

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)


@pytest.mark.both_databases
def test_entries_come_newest_first_and_can_be_filtered(journal: Journal) -> None:
    for hour, (reference, state, status) in enumerate(
        [("a", ACCEPTED, "SUCCESS"), ("b", REFUSED, None), ("c", UNKNOWN, None), ("d", ACCEPTED, "FAILED")]
    ):
        dated(journal, reference, NOON + timedelta(hours=hour), state, status)
    put_collection(journal, "o", statuses=["FAILED", "SUCCESS"])
    assert names(journal.entries()) == ["d", "c", "b", "a", "o"]
    first, last = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
    assert names(journal.entries(kind=PAYOUT, since=first, until=last)) == ["d", "c", "b", "a"]
    assert names(journal.entries(state=ACCEPTED)) == ["d", "a", "o"]
    assert names(journal.entries(state=UNKNOWN)) == ["c"]
    assert names(journal.entries(status=TransactionStatus.SUCCESS)) == ["a", "o"]
    between = journal.entries(since=NOON + timedelta(hours=1), until=NOON + timedelta(hours=3))
    assert names(between) == ["c", "b"]
    in_nairobi = datetime.fromisoformat("2026-11-20T15:00:00+03:00")  # noon in UTC
    assert names(journal.entries(until=in_nairobi)) == ["o"]
    (order,) = journal.entries(kind=COLLECTION)
    assert order.transaction_ids == ("o-0", "o-1")


def test_a_sender_that_died_reads_as_unknown(journal: Journal) -> None:
    put(journal, "a", UNKNOWN)
    with lease_of(journal) as lease:
        begin(journal, lease, "b")
        begin(journal, lease, "c")
        assert set(names(journal.entries(state=SENDING))) == {"b", "c"}
        assert names(journal.entries(state=UNKNOWN)) == ["a"]
    assert set(names(journal.entries(state=UNKNOWN))) == {"a", "b", "c"}
    assert names(journal.entries(state=SENDING)) == []


def test_nothing_of_another_account_is_shown(url: str, journal: Journal) -> None:
    put_collection(journal, statuses=["FAILED", "SUCCESS", "SUCCESS", "PENDING"])
    put(journal, "u", UNKNOWN)
    put(journal, "r", transaction_id="the-id")
    assert journal.record(callback(momo_receipt="QK12"))
    with Journal(url, account="other") as other:
        assert other.by_receipt("QK12") is None
        assert list(other.entries()) == other.open() == other.unresolved() == []
        assert other.history("r") == []
        assert internals(other).queue.due(has_handler=True) == ([], [], [], [])
        assert store_of(other).unfinished() == (0, [])
        assert (other.check().counts, other.check().needs_attention) == ({}, False)
        assert other.anonymise(before=datetime(2100, 1, 1, tzinfo=UTC)) == 0


@pytest.mark.parametrize(
    "filters", [{"kind": "SALARY"}, {"state": "PAID"}, *({"since": each} for each in NO_TIMES), {"until": "2026-11-01"}]
)
def test_a_filter_that_cannot_be_is_refused_at_once(journal: Journal, filters: dict[str, str]) -> None:
    with pytest.raises(RequestValidationError):
        journal.entries(**filters)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def test_every_entry_comes_once_over_many_pages_while_others_write(journal: Journal) -> None:
    fill(journal, 1999)
    seen: list[str] = []
    for entry in journal.entries():
        seen.append(entry.reference)
        if len(seen) % 400 == 0:
            put(journal, f"new-{len(seen)}", ACCEPTED)
            execute(journal, f"UPDATE momopay_payments SET sent_at = '2030-01-01' WHERE reference = 'p-{len(seen)}'")
    assert len(seen) == len(set(seen)) == 2000
    assert set(seen) == {"first", *(f"p-{number}" for number in range(1, 2000))}


def test_a_check_finds_what_needs_a_person(journal: Journal) -> None:
    put(journal, "a")
    put(journal, "b", REFUSED)
    put_collection(journal)
    checked = journal.check()
    assert not checked.needs_attention
    assert f"{checked.account} {checked.version} {checked.mode} {checked.not_settled}" == f"default {VERSION} None 1"
    assert checked.counts == {(PAYOUT, ACCEPTED): 1, (PAYOUT, REFUSED): 1, (COLLECTION, ACCEPTED): 1}
    put(journal, "c", UNKNOWN)
    put_collection(journal, "twice", statuses=["SUCCESS", "FAILED", "SUCCESS"])
    put_collection(journal, "once", statuses=["FAILED", "SUCCESS"])
    assert store_of(journal).record(found(journal, "a"), report("second"))
    checked = journal.check()
    assert (checked.unresolved, sorted(checked.paid_twice)) == (("c",), ["a", "twice"])
    assert checked.needs_attention
    put(journal, "twice-R1", amount=100, refund_of="twice")
    assert journal.check().paid_twice == ("a",)


def test_a_check_finds_a_damaged_file(path: Path) -> None:
    with Journal(f"sqlite:///{path}") as journal:
        fill(journal, 300)
    with closing(sqlite3.connect(path)) as connection:
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        size = connection.execute("PRAGMA page_size").fetchone()[0]
    with path.open("r+b") as file:
        file.seek((pages - 2) * size)
        file.write(os.urandom(size))
    with Journal(f"sqlite:///{path}", create=False) as journal, pytest.raises(JournalError, match=r"damaged|malformed"):
        journal.check()
