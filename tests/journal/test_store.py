"""The payments of an account: which call may change one from what to what, and what becomes of its transactions."""

from contextlib import ExitStack, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from journal.constants import ACCEPTED, COLLECTION, NOT_SENT, PAYOUT, PHONE, REFUSED, SENDING, UNKNOWN
from journal.database_kit import before_each, before_statement, execute, in_threads, just_before, store_of
from journal.kit import (
    begin,
    draft,
    entry_of,
    found,
    lease_of,
    put,
    put_collection,
    record,
    state_of,
    statuses_of,
    told,
)
from journal.records import callback, report
from model.rules import may_follow
from momopay import EntryKind, Journal, JournalError, JournalState, RequestValidationError
from momopay._core.config import Account
from momopay.journal import statements
from momopay.journal.journal import internals
from momopay.journal.rules import Cause, transitions

ENDS = [ACCEPTED, UNKNOWN, REFUSED, NOT_SENT]
CANCELLED = report("a", "CANCELLED", result_code="1032", fee="0")
PAID = report("a", "SUCCESS", receipt="R1", fee="1.50", ended_at="2026-11-20T10:02:00+00:00")
OTHER_PHONE = "254722000111"
KEY = Account("pk_test_a", "https://api.example/v1").identity
both_kinds = pytest.mark.parametrize("kind", EntryKind)


def release(journal: Journal, reference: str = "r", kind: EntryKind = PAYOUT) -> bool:
    return store_of(journal).release(found(journal, reference, kind), "Njeri")


def prompt(journal: Journal, transaction_id: str = "a", status: str = "PENDING") -> None:
    """Bring the order to another prompt."""
    put(journal, "o", ACCEPTED, COLLECTION, amount=100, transaction_id=transaction_id, status=status)


def order(journal: Journal) -> Any:
    return found(journal, "o", COLLECTION)


# The rules and the statements


def changes(journal: Journal, kind: EntryKind, cause: Cause, before: JournalState, after: JournalState) -> bool:
    """Bring a payment into a state, let a cause change it, and return whether it did."""
    store, reference = store_of(journal), str(before)
    with lease_of(journal) as lease, lease_of(journal) as new:
        assert begin(journal, lease, reference, kind)
        if cause is Cause.CONTRADICTED:
            assert store.record(draft(reference, kind), report(f"t-{reference}"), lease=lease)
        execute(journal, f"UPDATE momopay_payments SET state = '{before}' WHERE reference = '{reference}'")
        # As if it had been read as UNKNOWN, so that the statement decides.
        read = found(journal, reference, kind).model_copy(update={"state": UNKNOWN})
        match cause:
            case Cause.BEGIN:
                changed = begin(journal, new, reference, kind, read=read)
            case Cause.OUTCOME:
                changed = store.record_outcome(lease, draft(reference, kind), after)
            case Cause.ACCEPTANCE:
                changed = store.record(read, report(f"t-{reference}"))
            case Cause.CONTRADICTED:
                changed = store.mark_contradicted(read, f"t-{reference}")
            case Cause.SEEN:
                changed = store.mark_seen(read)
            case Cause.RESEND:
                again = draft(reference, kind, is_resend=True)
                changed = kind in statements.RESEND and store.begin(new, again, 60.0, read=read)
            case Cause.RELEASE:
                changed = store.release(read, "Njeri")
    return changed


@both_kinds
@pytest.mark.parametrize(
    ("cause", "after"), [(cause, after) for cause in Cause for after in transitions(PAYOUT)[cause]]
)
def test_the_statements_follow_the_rules(journal: Journal, kind: EntryKind, cause: Cause, after: JournalState) -> None:
    for before in JournalState:
        revision = 2 if cause is Cause.CONTRADICTED else 1
        changed = changes(journal, kind, cause, before, after)
        assert changed is may_follow(kind, cause, before, after), f"{before} -> {after} by {cause}"
        # As it is stored: a row in SENDING may read as UNKNOWN.
        stored = execute(journal, f"SELECT state FROM momopay_payments WHERE reference = '{before}'")
        assert stored == [(after if changed else before,)]
        if changed:
            assert found(journal, str(before), kind).revision > revision


# Sending


@pytest.mark.both_databases
def test_a_payment_is_written_before_it_is_sent(journal: Journal, other: Journal) -> None:
    before = datetime.now(UTC)
    known: Any = {"wire_reference": "w", "metadata": {"name": "Achieng"}, "idempotency_key": "k", "key_since": "s"}
    with lease_of(journal) as lease:
        assert begin(journal, lease, kind=COLLECTION, amount=Decimal("10.50"), **known)
        entry = found(other)
    written: Any = {"reference": "r", "amount": Decimal("10.50"), "attempts": 1, "revision": 1, "claim": lease.id}
    assert entry == entry_of(state=SENDING, created_at=entry.sent_at, sent_at=entry.sent_at, **written, **known)
    assert before <= entry.sent_at <= datetime.now(UTC)


@both_kinds
@pytest.mark.parametrize("state", ENDS)
def test_after_which_end_another_may_follow(
    journal: Journal, other: Journal, state: JournalState, kind: EntryKind
) -> None:
    known: Any = {} if state is ACCEPTED else {"seen_id": "seen", "code": "c"}
    first = put(journal, "r", state, kind, **known)
    assert first == found(other)
    as_it_was = {name: getattr(first, name) for name in ("reference", "created_at", "sent_at", "claim", "transactions")}
    attempts = 0 if state is NOT_SENT else 1
    assert first == entry_of(kind=kind, state=state, amount=10, attempts=attempts, revision=2, **known, **as_it_was)
    with lease_of(journal) as lease:
        if not may_follow(kind, Cause.BEGIN, state, SENDING):
            assert not begin(journal, lease, kind=kind)
            assert first == found(journal)
            return
        assert begin(journal, lease, kind=kind, phone=OTHER_PHONE)
        again = found(journal)
    assert (again.code, again.seen_id, again.phone) == (None, None, OTHER_PHONE)
    assert (again.attempts, again.created_at) == (first.attempts + 1, first.created_at)


def test_a_search_begins_at_the_first_attempt_of_a_payout_and_at_the_latest_of_an_order(journal: Journal) -> None:
    """What was refused may have been paid the first time."""
    for state, kind, is_first in ((REFUSED, PAYOUT, True), (NOT_SENT, PAYOUT, False), (REFUSED, COLLECTION, False)):
        first, second = (put(journal, f"{state} {kind}", state, kind).sent_at for _ in range(2))
        assert (second == first) is is_first


def test_the_metadata_of_the_first_attempt_stay_unless_there_are_new_ones(journal: Journal) -> None:
    for given, expected in (({"a": 1}, {"a": 1}), (None, {"a": 1}), ({"b": 2}, {"b": 2})):
        with lease_of(journal) as lease:
            assert begin(journal, lease, metadata=given)
            record(journal, lease, REFUSED)
        assert found(journal).metadata == expected


@pytest.mark.parametrize("last", [REFUSED, ACCEPTED])
@pytest.mark.parametrize(
    ("kind", "offsets", "expected"),
    [
        (PAYOUT, [(3600.0, 3600.0), (2.0, 2.0)], 3600.0),  # of the clock that dated the first attempt
        (PAYOUT, [(None, None), (2.0, 2.0)], None),
        (COLLECTION, [(0.0, 0.0), (3600.0, 3600.0)], 3600.0),
        (COLLECTION, [(3600.0, 3600.0), (None, None)], None),
        (PAYOUT, [(None, 5.0)], 5.0),  # the first response shows it
        (COLLECTION, [(None, 5.0)], 5.0),
    ],
)
def test_the_offset_is_that_of_the_clock_that_wrote_the_time(
    journal: Journal,
    kind: EntryKind,
    offsets: list[tuple[float | None, float | None]],
    expected: float | None,
    last: JournalState,
) -> None:
    for number, (before, after) in enumerate(offsets, start=1):
        with lease_of(journal) as lease:
            read = journal.get("r", kind)
            now = None if before is None else datetime.now(UTC) - timedelta(seconds=before)
            assert store_of(journal).begin(lease, draft(kind=kind), 60, read=read, service_now=now)
            record(journal, lease, last if number == len(offsets) else REFUSED, kind=kind, clock_offset=after)
    assert found(journal).clock_offset == (None if expected is None else pytest.approx(expected, abs=1.0))


@pytest.mark.parametrize(
    ("state", "news"), [(ACCEPTED, CANCELLED), (REFUSED, PAID), (NOT_SENT, report("b", "PENDING"))]
)
def test_what_became_known_of_a_prompt_meanwhile_stops_a_call(journal: Journal, state: JournalState, news: Any) -> None:
    prompt(journal)
    put(journal, "o", state, COLLECTION, transaction_id="c")
    read = order(journal)
    assert store_of(journal).record(read, news)
    with lease_of(journal) as lease:
        assert not begin(journal, lease, "o", COLLECTION, read=read)
    assert order(journal).state is (ACCEPTED if news.transaction_id == "b" else state)


@pytest.mark.parametrize("earlier", [pytest.param(None, marks=pytest.mark.both_databases), REFUSED])
def test_one_of_many_threads_begins(journal: Journal, earlier: JournalState | None) -> None:
    if earlier is not None:
        put(journal, "r", earlier)
    read = journal.get("r")
    with ExitStack() as held:
        began = in_threads(8, lambda: begin(journal, held.enter_context(lease_of(journal)), read=read))
    assert sorted(began) == [False] * 7 + [True]


@pytest.mark.parametrize("earlier", [None, REFUSED])
def test_a_row_of_a_call_that_gave_up_meanwhile_is_not_sent(journal: Journal, earlier: JournalState | None) -> None:
    if earlier is not None:
        put(journal, "r", earlier)
    statement = "INSERT INTO momopay_payments" if earlier is None else "UPDATE momopay_payments"
    with lease_of(journal) as lease:
        with just_before(statement, journal, lambda: store_of(journal).leases.end(lease)):
            assert begin(journal, lease)
        assert (found(journal).state, found(journal).attempts) == (NOT_SENT, 0 if earlier is None else 1)


def test_a_database_that_neither_takes_a_row_nor_shows_one_is_an_error(path: Path) -> None:
    with Journal(f"sqlite:///{path}") as journal:
        for table, what in (("accounts", "account's row"), ("payments", "row")):
            execute(journal, f"CREATE TRIGGER {table} BEFORE INSERT ON momopay_{table} BEGIN SELECT RAISE(IGNORE); END")
            with pytest.raises(JournalError, match=f"neither took the {what} nor"):
                put(journal)
            execute(journal, f"DROP TRIGGER {table}")
        execute(journal, "DELETE FROM momopay_accounts")
        execute(journal, "CREATE TRIGGER again BEFORE INSERT ON momopay_accounts BEGIN SELECT RAISE(IGNORE); END")
        with pytest.raises(JournalError, match="neither took the account"):
            store_of(journal).check(KEY, restored=True)


@pytest.mark.both_databases
def test_references_that_look_alike_are_not_the_same(journal: Journal) -> None:
    put(journal, "r", ACCEPTED)
    for reference in ["r ", " r", "R", "\u202er", "😀", "'; --", "\u00e9", "e\u0301", "x" * 2000]:
        assert journal.get(reference) is None
        assert put(journal, reference, NOT_SENT).reference == reference


# Outcomes


@pytest.mark.both_databases
def test_a_call_that_ended_since_its_row_was_read_is_not_taken_for_one_that_died(journal: Journal) -> None:
    with ExitStack() as call:
        lease = call.enter_context(lease_of(journal))
        begin(journal, lease)

        def end() -> None:
            record(journal, lease, ACCEPTED)
            call.close()

        with just_before("SELECT", journal, end, "after"):
            assert state_of(journal) is ACCEPTED


@pytest.mark.parametrize("state", [REFUSED, NOT_SENT, UNKNOWN])
def test_an_old_sender_does_not_end_its_successors_call(journal: Journal, other: Journal, state: JournalState) -> None:
    """Both leases are held: only the row tells which of them it is."""
    with lease_of(journal) as old, lease_of(other) as new:
        begin(journal, old, seconds=-60)
        assert release(other)
        assert begin(other, new)
        record(journal, old, state)
        assert state_of(other) is SENDING
        record(other, new, ACCEPTED)
    assert (found(journal).state, found(journal).transaction_id) == (ACCEPTED, "t-r")


# What the service reports of a transaction


@both_kinds
@pytest.mark.parametrize("state", [UNKNOWN, REFUSED, NOT_SENT])
def test_what_the_service_shows_is_accepted(journal: Journal, kind: EntryKind, state: JournalState) -> None:
    entry = put(journal, "r", state, kind, code="c", seen_id="seen")
    assert store_of(journal).record(entry, replace(CANCELLED, transaction_id="t"))
    known = found(journal)
    assert (known.state, known.transaction_id, known.code, known.seen_id) == (ACCEPTED, "t", None, None)
    assert (known.status, known.result_code, known.fee) == ("CANCELLED", "1032", Decimal(0))
    (made,) = known.transactions
    assert (made.amount, made.phone, made.sent_at) == (entry.amount, entry.phone, entry.sent_at)


@pytest.mark.parametrize(
    ("told", "status"),
    [
        (["PROCESSING", "PENDING"], "PENDING"),  # two that are open, of which the later one is shown
        (["CANCELLED", "PENDING", None], "CANCELLED"),
        (["PENDING", "FAILED", "PROCESSING"], "FAILED"),
        (["FAILED", "REVERSED", "FAILED"], "REVERSED"),
        (["REVERSED", "CANCELLED"], "REVERSED"),
        (["FAILED", "SUCCESS", "CANCELLED", "PENDING", "REVERSED"], "SUCCESS"),
        (["SUCCESS", "FAILED"], "SUCCESS"),
        (["ON_HOLD", "EXPIRED", "ON_HOLD"], "EXPIRED"),
    ],
)
def test_what_is_known_of_a_transaction_moves_forward(journal: Journal, told: list[str | None], status: str) -> None:
    entry = put(journal)
    for each in told:
        assert store_of(journal).record(entry, report("t-r", each))
    assert statuses_of(found(journal)) == [f"t-r {status}"]


def test_what_an_end_reported_is_not_true_of_a_payment(journal: Journal) -> None:
    prompt(journal)
    for each in (CANCELLED, PAID):
        assert store_of(journal).record(order(journal), each)
    assert order(journal).result_code is None
    for each in (CANCELLED, report("a", "SUCCESS", result_code="0")):
        assert store_of(journal).record(order(journal), each)
    (known,) = order(journal).transactions
    assert (known.status, known.result_code, known.receipt, known.fee) == ("SUCCESS", "0", "R1", Decimal("1.50"))
    assert known.ended_at == datetime(2026, 11, 20, 10, tzinfo=UTC), "the latest report of a payment counts"


@pytest.mark.parametrize("status", ["PENDING", "CANCELLED", "SUCCESS"])
def test_what_a_later_report_leaves_out_stays(journal: Journal, status: str) -> None:
    prompt(journal, status=status)
    store = store_of(journal)
    assert store.record(order(journal), report("a", status, receipt="R1", fee="2", result_code="9"))
    assert store.record(order(journal), report("a", status))
    assert store.record(order(journal), report("a"))
    entry = order(journal)
    assert (entry.receipt, entry.fee, entry.result_code, entry.status) == ("R1", 2, "9", status)


def test_what_changes_nothing_leaves_the_revision(journal: Journal) -> None:
    """Else a call that has read the row would have to begin anew for nothing."""
    prompt(journal, status="SUCCESS")
    store_of(journal).record(order(journal), PAID)
    before = order(journal)
    assert store_of(journal).record(before, PAID)
    assert order(journal) == before


def test_a_late_answer_of_an_earlier_attempt_changes_nothing_of_the_later_one(journal: Journal) -> None:
    with lease_of(journal) as first, lease_of(journal) as second:
        begin(journal, first, "o", COLLECTION)
        record(journal, first, UNKNOWN, "o", COLLECTION)
        assert release(journal, "o", COLLECTION)
        assert begin(journal, second, "o", COLLECTION)
        record(journal, first, ACCEPTED, "o", COLLECTION, transaction_id="a")
        assert (order(journal).state, order(journal).transaction_id) == (SENDING, None)
        record(journal, second, ACCEPTED, "o", COLLECTION, transaction_id="b")
    assert sorted(order(journal).transaction_ids) == ["a", "b"]


def test_nothing_is_added_where_it_may_not_be(journal: Journal, caplog: pytest.LogCaptureFixture) -> None:
    prompt(journal)
    store = store_of(journal)
    assert store.record(order(journal), CANCELLED, may_add=False)
    assert not store.record(order(journal), report("b", "SUCCESS"), may_add=False)
    assert not store.record(draft("nobody's"), PAID)
    assert statuses_of(order(journal)) == ["a CANCELLED"]
    assert caplog.records == [], "nothing was paid twice"


@pytest.mark.parametrize("state", [SENDING, UNKNOWN, REFUSED])
def test_a_transaction_belongs_to_one_payment(journal: Journal, state: JournalState) -> None:
    prompt(journal)
    with lease_of(journal) as lease:
        begin(journal, lease)
        if state is not SENDING:
            record(journal, lease, state)
        entry = found(journal)
        for given in (lease, None):
            assert not store_of(journal).record(entry, PAID, lease=given)
        assert found(journal) == entry
    assert statuses_of(order(journal)) == ["a PENDING"]


@pytest.mark.both_databases
def test_reports_at_once_are_all_recorded_and_said_once(journal: Journal, caplog: pytest.LogCaptureFixture) -> None:
    prompt(journal, status="CANCELLED")
    prompt(journal, "b", status="SUCCESS")
    put(journal, "o-R1", amount=30, refund_of="o")
    read = order(journal)
    assert all(in_threads(6, lambda: store_of(journal).record(read, PAID)))
    assert statuses_of(order(journal)) == ["a SUCCESS", "b SUCCESS"]
    assert store_of(journal).record(put(journal), report("another", "PENDING")), "a second payout, while it is open"
    assert [each.levelname for each in caplog.records] == ["CRITICAL"] * 2
    of_order, of_payout = (each.getMessage() for each in caplog.records)
    assert "'o' was paid more than once: by transactions a, b: pay back KES 100, with" in of_order
    assert "'r' was paid more than once: by transactions another, t-r: ask the recipient" in of_payout


@pytest.mark.both_databases
def test_a_transaction_and_its_payment_are_written_together(journal: Journal) -> None:
    if "sqlite" in repr(journal):
        fails = "CREATE TRIGGER full BEFORE UPDATE ON momopay_payments BEGIN SELECT RAISE(ABORT, 'disk full'); END"
    else:
        fails = "ALTER TABLE momopay_payments ADD CONSTRAINT full_disk CHECK (state <> 'ACCEPTED') NOT VALID"
    with lease_of(journal) as lease:
        begin(journal, lease)
        execute(journal, fails)
        with pytest.raises(JournalError):
            record(journal, lease, ACCEPTED)
        assert (found(journal).state, found(journal).transactions) == (SENDING, ())
    assert execute(journal, "SELECT * FROM momopay_transactions") == []


@pytest.mark.parametrize(
    ("offset", "attempts", "before", "resolved"),
    [
        (0.0, 2, 60, False),  # it is that of the attempt that was refused
        (0.0, 2, None, False),
        (0.0, 1, 60, True),  # there was no other attempt
        (120.0, 2, 60, True),  # by the service's clock it was sent two minutes earlier
        (None, 2, -60, False),  # nothing is known of the clock
    ],
)
def test_a_transaction_from_before_the_latest_attempt_does_not_resolve_it(
    journal: Journal, offset: float | None, attempts: int, before: float | None, resolved: bool
) -> None:
    if attempts == 2:
        put(journal, "o", REFUSED, COLLECTION)
    put(journal, "o", UNKNOWN, COLLECTION, clock_offset=offset)
    created_at = None if before is None else order(journal).sent_at - timedelta(seconds=before)
    assert store_of(journal).record(order(journal), replace(CANCELLED, created_at=created_at))
    assert statuses_of(order(journal)) == ["a CANCELLED"]
    assert order(journal).state is (ACCEPTED if resolved else UNKNOWN)
    if not resolved:
        assert store_of(journal).record(order(journal), report("b", "PENDING", created_at=created_at))
        assert (order(journal).state, order(journal).transaction_id) == (ACCEPTED, "b"), (
            "every attempt is accounted for"
        )


@both_kinds
def test_its_own_response_resolves_an_attempt_whatever_the_clocks_say(journal: Journal, kind: EntryKind) -> None:
    a_day_ago = datetime.now(UTC) - timedelta(days=1)
    put(journal, "r", REFUSED, kind, clock_offset=0.0)
    with lease_of(journal) as lease:
        payment, read = draft(kind=kind), found(journal)
        assert store_of(journal).begin(lease, payment, 60, read=read, service_now=datetime.now(UTC))
        assert store_of(journal).record(payment, report("a", "PENDING", created_at=a_day_ago), lease=lease)
    assert (found(journal).state, found(journal).transaction_id) == (ACCEPTED, "a")
    assert found(journal).transactions[0].sent_at >= read.sent_at
    assert execute(journal, "SELECT search_after FROM momopay_payments") == [(None,)], "nothing is left to search for"


@pytest.mark.parametrize(("offset", "seconds"), [(None, 60), (30.0, 30), (90.0, 0)])
def test_transactions_are_ordered_by_the_payers_clock(journal: Journal, offset: float | None, seconds: int) -> None:
    put(journal, "o", UNKNOWN, COLLECTION, clock_offset=offset)
    sent_at = order(journal).sent_at
    assert store_of(journal).record(order(journal), replace(CANCELLED, created_at=sent_at - timedelta(seconds=60)))
    assert order(journal).transactions[0].sent_at == sent_at - timedelta(seconds=seconds)
    store_of(journal).record(order(journal), report("b", created_at=sent_at - timedelta(seconds=200)))
    assert order(journal).transaction_ids == ("b", "a")


def test_a_transaction_at_the_edge_of_the_calendar_is_recorded(journal: Journal) -> None:
    put(journal, "o", UNKNOWN, COLLECTION, clock_offset=5.0)
    last = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
    assert store_of(journal).record(order(journal), replace(CANCELLED, created_at=last))
    assert statuses_of(order(journal)) == ["a CANCELLED"]


@pytest.mark.both_databases
@pytest.mark.parametrize("text", ["a\0b", "a\ud800b"])
def test_a_text_that_no_database_keeps_is_nobodys(journal: Journal, text: str) -> None:
    store = store_of(journal)
    assert (store.get(PAYOUT, text), store.by_transaction(text), store.by_wire_reference(text)) == (None, None, [])


@both_kinds
def test_what_is_another_payment_is_no_transaction_of_this_one(journal: Journal, kind: EntryKind) -> None:
    put(journal, "r", ACCEPTED, kind, transaction_id="a", status="CANCELLED")
    store = store_of(journal)
    assert not store.mark_contradicted(found(journal), "another")
    assert (found(journal).state, found(journal).transaction_ids) == (ACCEPTED, ("a",))
    if kind is COLLECTION:
        put(journal, "r", ACCEPTED, kind, transaction_id="b", status="CANCELLED")
        read = put(journal, "r", ACCEPTED, kind, transaction_id="c")
        assert not store.mark_contradicted(read, "a"), "the latest attempt is not the one"
        assert told(journal, "r")[-1] == "contradicted: ACCEPTED -> ACCEPTED (a, read)"
        assert found(journal).revision > read.revision, "who has read it decides again"
        assert (found(journal).state, found(journal).transaction_ids) == (ACCEPTED, ("b", "c"))
    *others, latest = found(journal).transaction_ids
    assert store.mark_contradicted(found(journal), latest)
    assert (found(journal).state, found(journal).transaction_ids) == (UNKNOWN, tuple(others))
    assert told(journal, "r")[-1] == f"contradicted: ACCEPTED -> UNKNOWN ({latest}, read)"


@pytest.mark.both_databases
@pytest.mark.parametrize("owner", EntryKind)
def test_a_contradiction_found_twice_takes_nothing_from_its_owner(journal: Journal, owner: EntryKind) -> None:
    read = put(journal, "r", ACCEPTED, transaction_id="a")
    store = store_of(journal)
    assert store.mark_contradicted(read, "a"), "the answer had named the payment of another reference"
    owned = put(journal, "owner", ACCEPTED, owner, transaction_id="a", status="SUCCESS")
    assert not store.mark_contradicted(read, "a"), "a second sweep had read the entry before that"
    assert found(journal, "owner") == owned


# Refunds, and orders that share a reference


def begin_refund(journal: Journal, reference: str, amount: int, state: JournalState = ACCEPTED) -> bool:
    """Begin a refund, and bring it into a state if it may be sent."""
    with lease_of(journal) as lease:
        begun = begin(journal, lease, reference, amount=amount, refund_of="o")
        if begun and state is not SENDING:
            record(journal, lease, state, reference)
    return begun


@pytest.mark.parametrize(
    ("mine", "theirs", "fits"), [pytest.param(60, 60, False, marks=pytest.mark.both_databases), (60, 40, True)]
)
def test_two_refunds_at_once_keep_the_limit(
    journal: Journal, other: Journal, mine: int, theirs: int, fits: bool
) -> None:
    """The other one begins before each statement of this one; once this one's transaction has begun, it waits."""
    put_collection(journal)
    number = 0
    for number in range(1, 40):

        def interfere(name: str = f"theirs-{number}") -> None:
            with suppress(JournalError, RequestValidationError), store_of(other).bounded(0.05):
                begin_refund(other, name, theirs)

        with suppress(RequestValidationError), before_statement(number, interfere, journal) as struck:
            begin_refund(journal, f"mine-{number}", mine)
        refundable = store_of(journal).refundable("o")
        assert refundable.left >= 0, f"statement {number}: {[each.reference for each in refundable.counted_refunds]}"
        assert refundable.left == (0 if fits and len(refundable.counted_refunds) == 2 else refundable.left)
        execute(journal, "DELETE FROM momopay_payments WHERE kind = 'PAYOUT'")
        execute(journal, "DELETE FROM momopay_transactions WHERE kind = 'PAYOUT'")
        if not struck:
            break
    assert 5 < number < 39


def test_a_refund_is_refused_at_the_limit_and_nothing_is_left_of_it(journal: Journal) -> None:
    put_collection(journal)
    sequence = execute(journal, "SELECT sequence FROM momopay_accounts")
    with pytest.raises(RequestValidationError) as caught:
        begin_refund(journal, "o-R1", 101)
    assert not caught.value.may_have_executed
    assert journal.get("o-R1") is None
    assert execute(journal, "SELECT sequence FROM momopay_accounts") == sequence
    assert begin_refund(journal, "o-R1", 100)
    assert (found(journal, "o-R1").refund_of, found(journal, "o-R1").paid_before) == ("o", Decimal(100))


def test_refunds_count_in_their_own_account(journal: Journal, url: str) -> None:
    with Journal(url, account="other") as other:
        for each, paid in ((journal, 100), (other, 300)):
            with pytest.raises(RequestValidationError):  # nothing of the other one's order
                begin_refund(each, "early", 10)
            put_collection(each, amount=paid)
        assert begin_refund(other, "o-R1", 250)
        assert begin_refund(journal, "o-R1", 60)
        with pytest.raises(RequestValidationError):
            begin_refund(journal, "o-R2", 41)
        assert begin_refund(journal, "o-R2", 40)
        assert found(journal, "o-R2").paid_before == 100, "whatever was paid back of it"
        assert begin_refund(other, "o-R2", 50)


def test_a_refund_that_is_sent_again_is_checked_again(journal: Journal) -> None:
    put_collection(journal)
    assert begin_refund(journal, "first", 60, REFUSED)
    assert begin_refund(journal, "second", 60)
    with pytest.raises(RequestValidationError, match="'second' KES 60"):
        begin_refund(journal, "first", 60)
    assert (found(journal, "first").state, found(journal, "first").attempts) == (REFUSED, 1)
    assert store_of(journal).record(found(journal, "second"), report("t-second", "REVERSED"))
    assert begin_refund(journal, "first", 60)


@pytest.mark.both_databases
def test_orders_share_a_reference_while_their_amounts_differ_or_one_has_ended(journal: Journal, other: Journal) -> None:
    def send(at: Journal, reference: str, amount: int, wire_reference: str = "METER") -> None:
        with lease_of(at) as lease:
            known: Any = {"amount": amount, "wire_reference": wire_reference}
            assert begin(at, lease, reference, COLLECTION, **known)
            record(at, lease, ACCEPTED, reference, COLLECTION)

    send(journal, "january", 100)
    send(journal, "with another amount", 200)
    send(journal, "another meter", 100, "METER-2")
    put(journal, "METER")  # a payout with the same reference
    with pytest.raises(RequestValidationError, match="'january'"):
        send(journal, "february", 100)
    assert journal.get("february") is None
    assert store_of(journal).record(found(journal, "january"), report("t-january", "SUCCESS"))
    with (
        pytest.raises(RequestValidationError, match="'march'"),
        just_before("BEGIN", journal, lambda: send(other, "march", 100)),
    ):
        send(journal, "february", 100)
    statements = list[str]()
    with before_each(statements.append, journal):
        send(journal, "april", 300)
        internals(journal).recorder.check(callback("METER", "t-april", type="STK", amount=300).transaction)
    reads = [each for each in statements if ".wire_reference = " in each]
    assert [".amount = " in each for each in reads] == [True], "a shop may have one reference for all its orders"


# Finding


def test_entries_are_found_by_what_the_service_has(journal: Journal, url: str) -> None:
    put_collection(journal, "o", statuses=["FAILED", "PENDING"])
    execute(journal, "UPDATE momopay_payments SET wire_reference = 'WIRE'")
    put(journal, "p")
    store = store_of(journal)
    assert store.by_transaction("o-0") == store.by_transaction("o-1") == order(journal)
    assert store.by_wire_reference("WIRE") == [order(journal)]
    assert (store.by_transaction("o-2"), store.by_wire_reference("o")) == (None, [])
    with Journal(url, account="other") as elsewhere:
        assert store_of(elsewhere).by_transaction("o-0") is None
        assert store_of(elsewhere).by_wire_reference("WIRE") == []


def test_what_is_known_to_be_of_others_is_found_by_the_shared_reference(journal: Journal) -> None:
    for name in ("january", "february"):
        put_collection(journal, name, statuses=["FAILED", "SUCCESS"])
    put(journal, "january", transaction_id="payout")
    execute(journal, "UPDATE momopay_payments SET wire_reference = 'METER'")
    of = {kind: store_of(journal).sharing(found(journal, "january", kind)) for kind in (COLLECTION, PAYOUT)}
    known = {kind: {each for entry in entries for each in entry.transaction_ids} for kind, entries in of.items()}
    february = {"february-0", "february-1"}
    assert known == {COLLECTION: february | {"payout"}, PAYOUT: february | {"january-0", "january-1"}}


def test_the_payouts_to_some_phones_are_found_in_any_state(journal: Journal) -> None:
    put(journal, "r1", UNKNOWN)
    put(journal, "r2", REFUSED)
    put_collection(journal)
    others = [f"2547{number:08}" for number in range(1_100)]  # more than two statements take
    for place in (0, 499, 500, 501, 999, 1_000, 1_100):
        phones = [*others[:place], PHONE, *others[place:]]
        assert {entry.reference for entry in store_of(journal).to_phones(phones)} == {"r1", "r2"}, place
    assert list(store_of(journal).to_phones(others)) == list(store_of(journal).to_phones([])) == []


def test_unresolved_is_what_needs_a_search_oldest_first(journal: Journal) -> None:
    for number, state in enumerate([*ENDS, UNKNOWN]):
        put(journal, f"r{number}", state)
    put(journal, "o", UNKNOWN, COLLECTION)
    execute(journal, "UPDATE momopay_payments SET created_at = '2020-01-01T00:00:00+00:00' WHERE reference = 'r4'")
    with lease_of(journal) as lease:
        begin(journal, lease, "r9")
        assert [entry.reference for entry in journal.unresolved()] == ["r4", "r1", "o"]
    assert [entry.reference for entry in journal.unresolved()] == ["r4", "r1", "o", "r9"]


# A person's decisions


def test_a_release_lets_it_be_sent_and_says_who_released_it(journal: Journal) -> None:
    first, service_now = put(journal, "r", UNKNOWN), datetime(2026, 11, 20, 11, tzinfo=UTC)
    assert store_of(journal).release(first, "Njeri", service_now)
    assert journal.unresolved() == []
    released = found(journal)
    changed = {"state": NOT_SENT, "released_by": "Njeri", "released_at": released.released_at, "revision": 3}
    assert released == first.model_copy(update=changed)
    columns = execute(journal, "SELECT released_at, search_after FROM momopay_payments")
    ((released_at, search_after),) = columns
    assert first.sent_at < datetime.fromisoformat(released_at) <= datetime.now(UTC)
    assert search_after == service_now.timestamp() + 600
    assert journal.history("r")[-1].service_time == service_now
    with lease_of(journal) as lease:
        assert begin(journal, lease)
        assert found(journal).sent_at == first.sent_at, "it may have been paid the first time"


def test_an_attempt_whose_time_is_over_is_not_released_by_the_process_that_makes_it(journal: Journal) -> None:
    with lease_of(journal) as lease:
        begin(journal, lease, seconds=-60)
        entry = found(journal)
        assert not release(journal)
        assert found(journal) == entry


@pytest.mark.both_databases
def test_who_decides_by_an_old_row_changes_nothing(journal: Journal, other: Journal) -> None:
    sighted, in_doubt, store = put(journal, "sighted", REFUSED), put(journal, "r", UNKNOWN), store_of(journal)
    put(other, "sighted", REFUSED)
    assert not store.mark_seen(sighted)
    assert state_of(journal, "sighted") is REFUSED
    with lease_of(other) as lease:

        def send_again() -> None:
            assert release(other)
            assert begin(other, lease)

        with just_before("BEGIN", journal, send_again):
            assert not store.release(in_doubt, "Njeri")
        assert state_of(journal) is SENDING


# Many reads at once


@pytest.mark.both_databases
def test_reads_of_many_are_recorded_in_one_transaction(journal: Journal, caplog: pytest.LogCaptureFixture) -> None:
    """Of an order whose prompts were both paid, too. What the journal does not know is not added."""
    order = put_collection(journal, "o", statuses=["CANCELLED", "PENDING"])
    put(journal, "o", transaction_id="of a payout")
    entries = [put(journal, each, transaction_id=f"t-{each}") for each in "rs"]
    reads = [(each, report(f"t-{each.reference}", "SUCCESS")) for each in entries]
    reads += [(order, report(f"o-{number}", "SUCCESS")) for number in (0, 1)]
    reads += [(entries[0], report("unknown", "SUCCESS")), (order, report("t-r", "SUCCESS", receipt="X"))]
    begun = list[str]()
    with before_each(begun.append, journal):
        store_of(journal).record_reads(reads)
        store_of(journal).record_reads([])
    assert sum(each.startswith("BEGIN") for each in begun) == 1
    assert [found(journal, each).transaction_ids for each in "rs"] == [("t-r",), ("t-s",)]
    assert [(each.status, each.receipt) for each in (found(journal, "r"), found(journal, "s"))] == [
        ("SUCCESS", None)
    ] * 2
    assert statuses_of(found(journal, "o", COLLECTION)) == ["o-0 SUCCESS", "o-1 SUCCESS"]
    (warning,) = caplog.messages
    assert "'o' was paid more than once: by transactions o-0, o-1: pay back KES 100" in warning
    assert [str(each.what) for each in journal.history("o", COLLECTION)].count("paid twice") == 1


def test_rows_are_locked_before_they_are_read(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    """As over a server; SQLite locks the file, and executes these statements to no effect."""
    monkeypatch.setattr(store_of(journal).database.shared, "locks_rows", True)
    read, seen = put(journal), list[str]()
    with before_each(seen.append, journal):
        assert store_of(journal).record(read, report("t-r", "PENDING"))
        store_of(journal).record_reads([(read, report("t-r", "SUCCESS"))])
    columns = [each.split()[1] for each in seen if each.startswith("SELECT")]
    assert columns == ["momopay_payments.revision", "momopay_payments.account,"] * 2
