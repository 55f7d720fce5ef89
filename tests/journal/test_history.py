"""All entries come once, newest first, whatever others write; and what ended long ago loses its phone."""

from __future__ import annotations

import hashlib
import hmac
import os
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from journal.kit import PHONE, begin, execute, fill, found, just_before, lease_of, payout, put, put_collection, record
from momopay import (
    ConfigurationError,
    EntryKind,
    Journal,
    JournalEntry,
    JournalError,
    JournalState,
    RequestValidationError,
    TransactionStatus,
)

ACCEPTED, UNKNOWN, NOT_SENT, REFUSED, SENDING = (
    JournalState.ACCEPTED,
    JournalState.UNKNOWN,
    JournalState.NOT_SENT,
    JournalState.REFUSED,
    JournalState.SENDING,
)
NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
SECRET = "0123456789abcdef0123456789abcdef"


def dated(journal: Journal, reference: str, when: datetime, state: JournalState = ACCEPTED, status: str = "") -> None:
    """Put a payout into the journal that was made, and ended, then."""
    put(journal, reference, state)
    moment = when.isoformat(timespec="microseconds")
    known = f", status = '{status}', ended_at = '{moment}'" if status else ""
    execute(
        journal,
        f"UPDATE momopay_payments SET created_at = '{moment}', sent_at = '{moment}'{known}"
        f" WHERE reference = '{reference}'",
    )


def names(entries: Iterable[JournalEntry]) -> list[str]:
    return [entry.reference for entry in entries]


@pytest.mark.both_databases
def test_entries_come_newest_first_and_can_be_filtered(journal: Journal) -> None:
    for hour, (reference, state, status) in enumerate(
        [("a", ACCEPTED, "SUCCESS"), ("b", REFUSED, ""), ("c", UNKNOWN, ""), ("d", ACCEPTED, "FAILED")]
    ):
        dated(journal, reference, NOON + timedelta(hours=hour), state, status)
    put_collection(journal, "o", statuses=["FAILED", "SUCCESS"])
    assert names(journal.entries()) == ["d", "c", "b", "a", "o"]
    assert names(journal.entries(kind=EntryKind.PAYOUT)) == ["d", "c", "b", "a"]
    assert names(journal.entries(state=ACCEPTED)) == ["d", "a", "o"]
    assert names(journal.entries(state=UNKNOWN)) == ["c"]
    assert names(journal.entries(status=TransactionStatus.SUCCESS)) == ["a", "o"]
    between = journal.entries(since=NOON + timedelta(hours=1), until=NOON + timedelta(hours=3))
    assert names(between) == ["c", "b"]
    in_nairobi = datetime.fromisoformat("2026-11-20T15:00:00+03:00")  # noon in UTC
    assert names(journal.entries(until=in_nairobi)) == ["o"]
    (order,) = journal.entries(kind=EntryKind.COLLECTION)
    assert order.transaction_ids == ("o-0", "o-1")
    assert [prompt.is_paid for prompt in order.prompts] == [False, True]


def test_a_sender_that_died_reads_as_unknown(journal: Journal) -> None:
    put(journal, "a", UNKNOWN)
    with lease_of(journal) as lease:
        begin(journal, lease, "b")
        begin(journal, lease, "c")
        assert set(names(journal.entries(state=SENDING))) == {"b", "c"}
        assert names(journal.entries(state=UNKNOWN)) == ["a"]
    assert set(names(journal.entries(state=UNKNOWN))) == {"a", "b", "c"}
    assert names(journal.entries(state=SENDING)) == []


def test_the_entries_of_another_account_are_not_shown(url: str, journal: Journal) -> None:
    put(journal, "a", ACCEPTED)
    with Journal(url, account="other") as other:
        assert names(other.entries()) == []


@pytest.mark.parametrize(
    "filters",
    [{"kind": "SALARY"}, {"state": "PAID"}, {"since": datetime(2026, 11, 1)}, {"until": "2026-11-01"}],  # noqa: DTZ001
)
def test_a_filter_that_cannot_be_is_refused_at_once(journal: Journal, filters: dict[str, str]) -> None:
    with pytest.raises(RequestValidationError):
        journal.entries(**filters)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


@pytest.mark.both_databases
def test_every_entry_comes_once_over_many_pages_while_others_write(journal: Journal) -> None:
    fill(journal, 1999)
    found: list[str] = []
    for entry in journal.entries():
        found.append(entry.reference)
        if len(found) % 400 == 0:
            put(journal, f"new-{len(found)}", ACCEPTED)
            execute(journal, f"UPDATE momopay_payments SET sent_at = '2030-01-01' WHERE reference = 'p-{len(found)}'")
    assert len(found) == len(set(found)) == 2000
    assert set(found) == {"first", *(f"p-{number}" for number in range(1, 2000))}


@pytest.mark.both_databases
def test_phones_of_what_ended_before_are_removed_and_nothing_else(journal: Journal) -> None:
    day, old = timedelta(days=1), NOON - timedelta(days=1)
    for reference, when, state, status in [
        ("paid", old, ACCEPTED, "SUCCESS"),
        ("reversed", old, ACCEPTED, "REVERSED"),
        ("refused", old, REFUSED, ""),
        ("not sent", old, NOT_SENT, ""),
        ("failed", old, ACCEPTED, "FAILED"),  # comes back yet
        ("open", old, ACCEPTED, ""),
        ("in doubt", old, UNKNOWN, ""),
        ("new", NOON + day, ACCEPTED, "SUCCESS"),
    ]:
        dated(journal, reference, when, state, status)
    put_collection(journal, "order")
    put_collection(journal, "open order", statuses=["FAILED", "PENDING"])
    put_collection(journal, "paid, and one open", statuses=["SUCCESS", "PENDING"])
    execute(journal, """UPDATE momopay_payments SET metadata = '{"name": "Achieng"}', receipt = 'QK1'""")
    assert journal.anonymise(before=NOON) == 5
    anonymised = {entry.reference: entry for entry in journal.entries() if entry.is_anonymised}
    assert anonymised.keys() == {"paid", "reversed", "refused", "not sent", "order"}
    for entry in anonymised.values():
        assert (entry.phone, entry.metadata, entry.body_hash) == ("", None, "")
        assert (entry.receipt, entry.amount, entry.attempts > 0 or entry.state is NOT_SENT) == (
            "QK1",
            entry.amount,
            True,
        )
    whole = [entry for entry in journal.entries() if not entry.is_anonymised]
    assert {(entry.phone, entry.body_hash) for entry in whole} == {(PHONE, "hash")}
    assert journal.anonymise(before=NOON) == 0


def test_a_service_in_another_time_zone_is_compared_rightly(journal: Journal) -> None:
    dated(journal, "a", NOON, status="SUCCESS")
    execute(journal, "UPDATE momopay_payments SET ended_at = '2026-11-20T15:30:00+03:00'")  # 12:30 in UTC
    dated(journal, "b", NOON, status="SUCCESS")
    execute(journal, "UPDATE momopay_payments SET ended_at = '2026-11-20T14:30:00+03:00' WHERE reference = 'b'")
    assert journal.anonymise(before=NOON + timedelta(seconds=1)) == 1
    assert found(journal, "b").is_anonymised


def test_a_secret_keeps_the_payments_to_one_phone_together(journal: Journal) -> None:
    for reference in ("a", "b"):
        dated(journal, reference, NOON, status="SUCCESS")
    assert journal.anonymise(before=NOON + timedelta(days=1), secret=SECRET) == 2
    expected = hmac.new(SECRET.encode(), PHONE.encode(), hashlib.sha256).hexdigest()
    assert {entry.phone for entry in journal.entries()} == {f"hmac-sha256:{expected}"}
    assert PHONE not in repr(found(journal, "a"))


def test_what_is_sent_again_meanwhile_keeps_its_phone(journal: Journal) -> None:
    dated(journal, "a", NOON, REFUSED)

    def send_again() -> None:
        with lease_of(journal) as lease:
            assert begin(journal, lease, "a") is None
            record(journal, lease, REFUSED, "a")

    with just_before("BEGIN", journal, send_again):
        assert journal.anonymise(before=NOON + timedelta(days=1)) == 0
    assert found(journal, "a").phone == PHONE


def test_what_was_anonymised_is_still_settled_by_its_own_transaction_alone(journal: Journal) -> None:
    dated(journal, "r", NOON, status="SUCCESS")
    journal.anonymise(before=NOON + timedelta(days=1))
    settled = journal.settle(payout("r", transactionId="t-r", transactionFee=7))
    assert settled is not None
    assert settled.fee == 7
    assert journal.settle(payout("r", transactionId="another")) is None


def test_an_empty_secret_is_refused_and_a_short_one_is_logged(
    journal: Journal, caplog: pytest.LogCaptureFixture
) -> None:
    dated(journal, "a", NOON, status="SUCCESS")
    with pytest.raises(ConfigurationError):
        journal.anonymise(before=NOON + timedelta(days=1), secret="")
    assert journal.anonymise(before=NOON - timedelta(days=1), secret="short") == 0
    assert "can be guessed" in caplog.text
    with pytest.raises(RequestValidationError):
        journal.anonymise(before=datetime(2027, 1, 1))  # noqa: DTZ001
    assert found(journal, "a").phone == PHONE


def test_a_phone_is_gone_from_the_file_too(tmp_path: Path) -> None:
    path = tmp_path / "payouts.db"
    with Journal(f"sqlite:///{path}") as journal:
        fill(journal, 300)
        execute(journal, "UPDATE momopay_payments SET status = 'SUCCESS', ended_at = created_at")
        assert journal.anonymise(before=datetime(2100, 1, 1, tzinfo=UTC), secret=SECRET) == 301
        files = [each for each in tmp_path.iterdir() if each.is_file()]
        assert not [each.name for each in files if PHONE.encode() in each.read_bytes()]


def test_a_check_finds_what_needs_a_person(journal: Journal) -> None:
    put(journal, "a", ACCEPTED)
    put(journal, "b", REFUSED)
    put_collection(journal)
    checked = journal.check()
    assert not checked.needs_attention
    assert (checked.account, checked.version, checked.mode, checked.not_settled) == ("default", 2, None, 1)
    assert checked.counts == {
        (EntryKind.PAYOUT, ACCEPTED): 1,
        (EntryKind.PAYOUT, REFUSED): 1,
        (EntryKind.COLLECTION, ACCEPTED): 1,
    }
    put(journal, "c", UNKNOWN)
    put_collection(journal, "twice", statuses=["SUCCESS", "SUCCESS"])
    checked = journal.check()
    assert checked.needs_attention
    assert (checked.unresolved, checked.paid_twice) == (("c",), ("twice",))
    put(journal, "twice-R1", ACCEPTED)
    execute(journal, "UPDATE momopay_payments SET refund_of = 'twice', amount = '100' WHERE reference = 'twice-R1'")
    assert journal.check().paid_twice == ()


def test_a_check_finds_a_damaged_file(tmp_path: Path) -> None:
    path = tmp_path / "payouts.db"
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
