"""All entries come once, newest first; what a sweep follows; what needs a person; and what lost its phone."""

import hashlib
import hmac
import os
import sqlite3
import time
from collections.abc import Iterable
from contextlib import closing, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from journal.kit import (
    ACCEPTED,
    COLLECTION,
    ENDED_AT,
    NOT_SENT,
    PAYOUT,
    PHONE,
    REFUSED,
    SENDING,
    UNKNOWN,
    begin,
    callback,
    entry_of,
    execute,
    fill,
    found,
    just_before,
    lease_of,
    payout,
    put,
    put_collection,
    record,
    report,
    store_of,
)
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
from momopay.journal.journal import parts_of
from momopay.journal.reports import Followed, Reports

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
NOW = datetime.now(UTC)
SECRET = "0123456789abcdef0123456789abcdef"


def reports_of(journal: Journal) -> Reports:
    return parts_of(journal).reports


@pytest.mark.parametrize(
    ("kind", "status", "is_end"),
    [
        (PAYOUT, "FAILED", False),
        (PAYOUT, "REVERSED", True),
        (PAYOUT, "PROCESSING", False),
        (COLLECTION, "FAILED", True),
    ],
)
def test_only_what_has_settled_is_for_a_handler(journal: Journal, kind: EntryKind, status: str, is_end: bool) -> None:
    put(journal, "r", ACCEPTED, kind, status=status)
    assert bool(reports_of(journal).undelivered("")) is is_end


@pytest.mark.parametrize(
    ("kind", "earlier", "is_searched"), [(PAYOUT, UNKNOWN, True), (PAYOUT, None, False), (COLLECTION, UNKNOWN, False)]
)
def test_a_payout_that_is_found_is_searched_for_again_if_another_attempt_may_have_been_made(
    journal: Journal, kind: EntryKind, earlier: JournalState | None, is_searched: bool
) -> None:
    if earlier is not None:
        put(journal, "r", earlier, kind)
        execute(journal, "UPDATE momopay_payments SET state = 'NOT_SENT'")
    entry = put(journal, "r", UNKNOWN, kind)
    assert store_of(journal).record(entry, report("t-1", "SUCCESS"))
    execute(journal, "UPDATE momopay_payments SET search_after = search_after - 600")
    assert bool(reports_of(journal).released()) is is_searched


def dated(
    journal: Journal, reference: str, when: datetime, state: JournalState = ACCEPTED, status: str | None = None
) -> None:
    """Put a payout into the journal that was made, and ended, then."""
    known: Any = {"status": status} if state is ACCEPTED else {}
    put(journal, reference, state, **known)
    moment = when.isoformat(timespec="microseconds")
    where = f"WHERE reference = '{reference}'"
    execute(journal, f"UPDATE momopay_payments SET created_at = '{moment}', sent_at = '{moment}' {where}")
    execute(journal, f"UPDATE momopay_transactions SET ended_at = '{moment}' {where} AND status IS NOT NULL")


def names(entries: Iterable[JournalEntry]) -> list[str]:
    return [entry.reference for entry in entries]


# Entries


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


@pytest.mark.both_databases
def test_ends_are_for_a_handler_since_the_first_delivery_but_not_for_ever(journal: Journal) -> None:
    """In days before now: none yet, one three days ago, and one that is older than any sweep goes back."""
    reports = reports_of(journal)
    assert reports.deliver_since(NOW) == (NOW - timedelta(days=1)).isoformat()
    for began, since in ((0, 1), (3, 4), (400, 30)):
        with suppress(KeyError), journal.handling(callback(identity=f"t-{began}")):
            if began == 3:  # a delivery that failed counts
                raise KeyError
        then = (NOW - timedelta(days=began)).timestamp()
        execute(journal, f"UPDATE momopay_history SET at = {then} WHERE transaction_id = 't-{began}'")
        assert reports.deliver_since(NOW) == (NOW - timedelta(days=since)).isoformat()


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
        assert reports_of(other).ended_prompts() == {}
        assert reports_of(other).count_open() == (0, None)
        assert reports_of(other).undelivered("") == []
        assert (other.check().counts, other.check().needs_attention) == ({}, False)
        assert other.anonymise(before=datetime(2100, 1, 1, tzinfo=UTC)) == 0


# Without a zone, and one that UTC does not have.
NO_TIMES = datetime(2026, 11, 1), datetime.fromisoformat("0001-01-01T00:00:00+03:00")  # noqa: DTZ001


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


# What a sweep follows


def settled(journal: Journal, reference: str, status: str, *, ended: datetime = NOW) -> None:
    put(journal, reference, transaction_id=f"t-{reference}")
    journal.settle(payout(reference, transactionId=f"t-{reference}", status=status, updatedAt=ended.isoformat()))


def ids(followed: Iterable[Followed]) -> set[str]:
    return {each.transaction.transaction_id for each in followed}


@pytest.mark.both_databases
def test_what_has_not_settled_is_open_and_counted(journal: Journal) -> None:
    reports = reports_of(journal)
    assert reports.count_open() == (0, None)
    for status in ("PENDING", "FAILED", "SUCCESS", "REVERSED", "CANCELLED", "NEWS"):
        settled(journal, status, status)
    put(journal, "new")
    put(journal, "unknown", UNKNOWN, seen_id="t-unknown")
    put(journal, "refused", REFUSED)
    put_collection(journal, "PENDING", statuses=["CANCELLED", "PROCESSING"])  # also the reference of a payout
    put_collection(journal, "paid", statuses=["PENDING", "SUCCESS"])
    put_collection(journal, "over", statuses=["EXPIRED", "FAILED"])
    expected = {"t-PENDING", "t-FAILED", "t-NEWS", "t-new", "PENDING-1", "paid-0"}
    assert ids(reports.not_settled()) == expected
    assert [entry.reference for entry in journal.open()] == ["PENDING", "paid", "PENDING", "FAILED", "NEWS", "new"]
    count, oldest = reports.count_open()
    assert (count, oldest) == (6, min(each.transaction.sent_at for each in reports.not_settled()))
    for each in reports.not_settled():
        assert each.transaction in each.entry.transactions


def test_a_prompt_that_ended_without_success_is_read_once_more(journal: Journal) -> None:
    put_collection(journal, statuses=["CANCELLED", "FAILED", "PENDING", "CANCELLED"])
    put(journal, "p", status="FAILED")
    reports = reports_of(journal)
    ended = reports.ended_prompts()
    assert ended.keys() == {"o-0", "o-1", "o-3"}
    first = ended["o-0"]
    assert (first.entry.reference, first.transaction.transaction_id) == ("o", "o-0")
    assert (first.transaction.ended_at, first.learned_at_service) == (datetime.fromisoformat(ENDED_AT), None)
    assert first.known_for is not None
    assert -1 <= first.known_for < 60
    assert not first.is_due(None)
    execute(journal, "UPDATE momopay_transactions SET learned_at = learned_at - 600")
    assert store_of(journal).record(first.entry, report("o-0", "FAILED", learned_at_service=ENDED_AT))
    first = reports.ended_prompts()["o-0"]
    assert (first.is_due(None), first.learned_at_service) == (True, ENDED_AT), "known of for ten minutes"
    reports.mark_checked(["o-0", "o-3"])
    reports.mark_checked([])
    assert reports.ended_prompts().keys() == {"o-1"}


TEN = timedelta(minutes=10)


@pytest.mark.parametrize(
    ("ended", "learned", "known_for", "now", "due"),
    [
        (NOON, NOON, 0.0, NOON + TEN, True),
        (NOON, NOON, 9999.0, NOON + TEN - timedelta(seconds=1), False),  # the service's clock counts where it is known
        (NOON, NOON + TEN, 0.0, NOON + TEN, False),  # the journal learned of it late
        (NOON + TEN, NOON, 0.0, NOON + TEN, False),
        (None, NOON, 0.0, NOON + TEN, True),
        (NOON, None, 600.0, NOON + TEN, True),
        (NOON, None, 600.0, NOON, False),
        (NOON, None, 599.0, NOON + TEN, False),
        (NOON, NOON, 600.0, None, True),
        (NOON, NOON, 599.0, None, False),
        (NOON, None, None, None, False),
    ],
)
def test_a_second_look_comes_ten_minutes_later_by_the_clock_that_is_known(
    ended: datetime | None, learned: datetime | None, known_for: float | None, now: datetime | None, due: bool
) -> None:
    entry = entry_of("CANCELLED")
    prompt = entry.transactions[0].model_copy(update={"ended_at": ended})
    assert Followed(entry, prompt, None if learned is None else learned.isoformat(), known_for).is_due(now) is due


def test_what_was_released_is_searched_for_once_ten_minutes_later(journal: Journal) -> None:
    reports, store, begun = reports_of(journal), store_of(journal), time.time()
    for reference in ("r", "s"):
        assert store.release(put(journal, reference, UNKNOWN), "Njeri")
    assert reports.released() == []
    ((after,), _) = execute(journal, "SELECT search_after FROM momopay_payments")
    assert begun - 1 < after - 600 < time.time() + 1  # by the database's clock, which is this machine's
    execute(journal, "UPDATE momopay_payments SET search_after = search_after - 599 WHERE reference = 's'")
    assert reports.released() == []
    execute(journal, "UPDATE momopay_payments SET search_after = search_after - 601 WHERE reference = 'r'")
    (released,) = reports.released()
    assert released == found(journal)
    put(journal, "r", REFUSED)
    reports.mark_searched(released)
    assert names(reports.released()) == ["r"], "it was sent again since it was read"
    reports.mark_searched(found(journal))
    assert reports.released() == []


# Ends for a handler


@pytest.mark.both_databases
def test_an_end_is_for_a_handler_until_it_was_delivered(journal: Journal) -> None:
    for reference, status in (("r", "CANCELLED"), ("s", "REVERSED"), ("t", "FAILED"), ("u", "PENDING")):
        settled(journal, reference, status)
    for number, status in enumerate(("EXPIRED", "SUCCESS", "FAILED")):
        put(journal, "o", ACCEPTED, COLLECTION, transaction_id=f"p-{number}")
        prompt = payout("o", type="STK", transactionId=f"p-{number}", status=status, updatedAt=NOW.isoformat())
        assert journal.settle(prompt)
    settled(journal, "old", "SUCCESS", ended=NOW - timedelta(days=2))
    reports, since = reports_of(journal), (NOW - timedelta(days=1)).isoformat()
    assert ids(reports.undelivered(since)) == {"t-r", "t-s", "p-0", "p-1", "p-2"}, "a payout's FAILED is not an end"
    for identity, status in (("t-r", "EXPIRED"), ("t-s", "FAILED"), ("p-0", "CANCELLED"), ("p-2", "SUCCESS")):
        with journal.handling(callback(identity=identity, status=status)):
            pass
    assert ids(reports.undelivered(since)) == {"t-s", "p-1"}, "its reversal is another end"
    with suppress(KeyError), journal.handling(callback(identity="p-1")):
        assert ids(reports.undelivered(since)) == {"t-s", "p-1"}, "not before it ended"
        raise KeyError
    assert ids(reports.undelivered(since)) == {"t-s", "p-1"}
    with journal.handling(callback(identity="p-1")):
        pass
    assert ids(reports.undelivered(since)) == {"t-s"}


# What needs a person


def test_a_check_finds_what_needs_a_person(journal: Journal) -> None:
    put(journal, "a")
    put(journal, "b", REFUSED)
    put_collection(journal)
    checked = journal.check()
    assert not checked.needs_attention
    assert f"{checked.account} {checked.version} {checked.mode} {checked.not_settled}" == "default 1 None 1"
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


# Phones


@pytest.mark.both_databases
def test_phones_of_what_ended_before_are_removed_and_nothing_else(journal: Journal) -> None:
    day, old = timedelta(days=1), NOON - timedelta(days=1)
    for reference, when, state, status in [
        ("paid", old, ACCEPTED, "SUCCESS"),
        ("reversed", old, ACCEPTED, "REVERSED"),
        ("refused", old, REFUSED, None),
        ("not sent", old, NOT_SENT, None),
        ("failed", old, ACCEPTED, "FAILED"),  # comes back yet
        ("open", old, ACCEPTED, None),
        ("unresolved", old, UNKNOWN, None),
        ("new", NOON + day, ACCEPTED, "SUCCESS"),
        ("ended later", NOON + day, ACCEPTED, "SUCCESS"),
        ("refused later", NOON + day, REFUSED, None),
    ]:
        dated(journal, reference, when, state, status)
    late = "WHERE reference IN ('ended later', 'refused later')"
    execute(journal, f"UPDATE momopay_payments SET created_at = '{old.isoformat()}' {late}")
    execute(journal, "UPDATE momopay_payments SET sent_at = created_at WHERE reference = 'ended later'")
    put_collection(journal, "order")
    put_collection(journal, "open order", statuses=["FAILED", "PENDING"])
    put_collection(journal, "paid, and one open", statuses=["SUCCESS", "PENDING"])
    put_collection(journal, "paid, and one unresolved")
    put(journal, "paid, and one unresolved", UNKNOWN, COLLECTION, amount=100)
    execute(journal, """UPDATE momopay_payments SET metadata = '{"name": "Achieng"}'""")
    execute(journal, "UPDATE momopay_transactions SET receipt = 'QK1'")
    execute(journal, "UPDATE momopay_payments SET search_after = 0 WHERE reference = 'not sent'")
    before = {entry.reference: entry for entry in journal.entries()}
    assert journal.anonymise(before=NOON) == 5
    assert reports_of(journal).released() == []  # without its phone, that of another payment would fit
    after = {entry.reference: entry for entry in journal.entries()}
    gone = {name for name, entry in after.items() if entry.is_anonymised}
    assert gone == {"paid", "reversed", "refused", "not sent", "order"}
    for name in gone:
        entry = after[name]
        assert (entry.phone, entry.metadata) == ("", None), name
        assert {each.phone for each in entry.transactions} <= {""}, name
        assert entry.receipt == before[name].receipt, name
        assert entry.attempts == before[name].attempts, name
    for name in before.keys() - gone:
        assert after[name] == before[name]
    assert journal.anonymise(before=NOON) == 0


def test_what_is_sent_again_meanwhile_keeps_its_phone(journal: Journal) -> None:
    dated(journal, "a", NOON, REFUSED)

    def send_again() -> None:
        with lease_of(journal) as lease:
            assert begin(journal, lease, "a")
            record(journal, lease, REFUSED, "a")

    with just_before("BEGIN", journal, send_again):
        assert journal.anonymise(before=NOON + timedelta(days=1)) == 0
    assert found(journal, "a").phone == PHONE


def test_an_empty_secret_is_refused_and_a_short_one_is_logged(
    journal: Journal, caplog: pytest.LogCaptureFixture
) -> None:
    dated(journal, "a", NOON, status="SUCCESS")
    for secret in ("", b""):
        with pytest.raises(ConfigurationError):
            journal.anonymise(before=NOON + timedelta(days=1), secret=secret)
    assert journal.anonymise(before=NOON - timedelta(days=1), secret="x" * 15) == 0
    assert "can be guessed" in caplog.text
    caplog.clear()
    assert journal.anonymise(before=NOON - timedelta(days=1), secret="x" * 16) == 0
    assert caplog.records == []
    for wrong in NO_TIMES:
        with pytest.raises(RequestValidationError):
            journal.anonymise(before=wrong)
    assert found(journal, "a").phone == PHONE


def test_a_secret_keeps_the_payments_to_one_phone_together_and_no_file_has_the_phone(path: Path) -> None:
    with Journal(f"sqlite:///{path}") as journal:
        fill(journal, 300)
        execute(journal, "UPDATE momopay_transactions SET status = 'SUCCESS', ended_at = sent_at")
        assert journal.anonymise(before=datetime(2100, 1, 1, tzinfo=UTC), secret=SECRET) == 301
        expected = "hmac-sha256:" + hmac.new(SECRET.encode(), PHONE.encode(), hashlib.sha256).hexdigest()
        phones = {phone for entry in journal.entries() for phone in (entry.phone, entry.transactions[0].phone)}
        assert phones == {expected}
        assert PHONE not in repr(found(journal, "first"))
        assert found(journal, "first").is_anonymised
        files = [each for each in path.parent.iterdir() if each.is_file()]
        assert not [each.name for each in files if PHONE.encode() in each.read_bytes()]
