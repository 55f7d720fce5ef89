"""What a durable call does next, as tables: for each row, and for each thing that a call remembers."""

from dataclasses import replace
from math import inf
from typing import Any

import pytest

from journal.constants import ACCEPTED, COLLECTION, NOT_SENT, PAYOUT, REFUSED, SENDING, UNKNOWN
from journal.kit import entry_of
from model.rules import may_follow
from momopay import EntryKind, JournalState
from momopay.durable.decide import (
    PAUSE,
    Fail,
    FailUnknown,
    Memory,
    Policy,
    ReadOthers,
    ReadRow,
    ReadTransaction,
    Result,
    ReturnFound,
    ReturnRow,
    ReturnSent,
    Search,
    Send,
    Shown,
    Step,
    Wait,
    decide,
)
from momopay.journal.entries import Moment
from momopay.journal.rules import RESEND_WITHIN, Cause
from momopay.models.enums import Stage

OPEN, ENDED, PAID = Stage.OPEN, Stage.ENDED, Stage.PAID
NAMES = {"P": "PENDING", "C": "CANCELLED", "S": "SUCCESS"}
NOW = Moment("here", 100.0, None)
KEYS = Policy(PAYOUT, payout_keys=True)
ORDER = Policy(COLLECTION)


def row(state: JournalState, statuses: str = "", attempts: int | None = None, **fields: Any) -> Any:
    """Return a row with a transaction in each of these statuses, named by its first letter."""
    fields = {"kind": COLLECTION, "clock_offset": 0.0, **fields}
    attempts = len(statuses) if attempts is None else attempts
    return entry_of(*(NAMES[each] for each in statuses), state=state, attempts=attempts, **fields)


def as_payout(entry: Any) -> Any:
    return entry.model_copy(update={"kind": PAYOUT})


@pytest.mark.parametrize(
    ("state", "statuses", "attempts", "step"),
    [
        (SENDING, "", 1, Wait),
        (SENDING, "C", 2, Wait),
        (SENDING, "P", 2, Wait),
        (SENDING, "CS", 3, ReadTransaction),
        (UNKNOWN, "", 1, Search),
        (UNKNOWN, "P", 2, Search),
        (UNKNOWN, "C", 2, Search),
        (UNKNOWN, "SC", 3, ReadTransaction),
        (REFUSED, "", 1, Search),
        (REFUSED, "P", 2, ReadTransaction),
        (REFUSED, "C", 2, Search),
        (REFUSED, "CP", 3, ReadTransaction),
        (NOT_SENT, "", 0, Search),
        (NOT_SENT, "C", 1, Search),
        (NOT_SENT, "PC", 2, ReadTransaction),
        (ACCEPTED, "P", 1, ReadTransaction),
        (ACCEPTED, "C", 1, Send),
        (ACCEPTED, "CC", 2, Send),
        (ACCEPTED, "C", 2, Search),
        (ACCEPTED, "S", 1, ReadTransaction),
        (ACCEPTED, "SP", 3, ReadTransaction),
    ],
)
def test_the_first_step_by_the_row(state: JournalState, statuses: str, attempts: int, step: type[Step]) -> None:
    """An order may be prompted again after an end. A payout with a transaction is read, whatever became of it."""
    entry = row(state, statuses, attempts)
    assert type(decide(entry, Memory(), ORDER)) is step
    is_read = "C" in statuses and state not in {SENDING, UNKNOWN}
    assert type(decide(as_payout(entry), Memory(), Policy(PAYOUT))) is (ReadTransaction if is_read else step)


def test_only_what_no_row_has_is_sent_at_once() -> None:
    assert decide(None, Memory(), ORDER) == Send()
    assert decide(None, Memory(was_unresolved=True), ORDER) == Fail(), "its own row has disappeared"
    assert decide(None, Memory(is_stale=True), ORDER) == ReadRow()


@pytest.mark.parametrize("kind", EntryKind)
@pytest.mark.parametrize("state", [None, *JournalState])
def test_what_is_sent_at_last_is_what_the_journal_lets_begin(kind: EntryKind, state: JournalState | None) -> None:
    entry = None if state is None else row(state, "C" if state is ACCEPTED else "", 1, kind=kind)
    read = (Shown("t-0", ENDED),)
    step = decide(entry, Memory(searched=entry, read=read), Policy(kind))
    assert (step == Send()) is may_follow(kind, Cause.BEGIN, state, SENDING)


@pytest.mark.parametrize(("offset", "attempts", "whole"), [(0.0, 1, False), (None, 1, True), (None, 0, False)])
def test_without_the_clocks_offset_only_the_whole_list_proves_absence(
    offset: float | None, attempts: int, whole: bool
) -> None:
    entry = row(REFUSED, "", attempts, clock_offset=offset)
    assert decide(entry, Memory(), ORDER) == Search(entry, whole_list=whole)
    unresolved = row(UNKNOWN, "", attempts, clock_offset=offset)
    assert decide(unresolved, Memory(), ORDER) == Search(unresolved, whole_list=False)


@pytest.mark.parametrize("state", [REFUSED, NOT_SENT])
def test_a_search_counts_for_the_row_that_it_was_made_for(state: JournalState) -> None:
    entry = row(state, "", 1)
    memory = Memory().after_search(entry, found=None, is_doubtful=False)
    assert decide(entry, memory, ORDER) == ReadRow()
    memory = memory.after_reading_row(entry)
    assert decide(entry, memory, ORDER) == Send()
    changed = row(state, "", 2)
    assert decide(changed, memory, ORDER) == Search(changed)


@pytest.mark.parametrize("stage", Stage)
@pytest.mark.parametrize("kind", EntryKind)
def test_what_a_search_found_is_returned_unless_it_allows_another_prompt(kind: EntryKind, stage: Stage) -> None:
    entry = row(UNKNOWN, "", 1, kind=kind)
    memory = Memory().after_search(entry, found=Shown("t-9", stage), is_doubtful=False)
    allows = kind is COLLECTION and stage is ENDED
    assert decide(entry, memory, Policy(kind)) == (ReadRow() if allows else ReturnFound(entry, "t-9"))


@pytest.mark.parametrize(
    ("read", "step"),
    [
        (row(REFUSED, "C", 2), Fail),
        (row(UNKNOWN, "C", 2), Fail),
        (row(ACCEPTED, "C", 2), Fail),
        (row(ACCEPTED, "CP", 2), ReturnRow),
        (row(ACCEPTED, "CC", 2), ReturnRow),
        (None, Fail),
    ],
)
def test_a_search_that_leaves_a_doubt_ends_the_call(read: Any, step: type[Step]) -> None:
    """Unless a callback shows meanwhile that the payment was made."""
    entry = row(REFUSED, "C", 2)
    memory = Memory().after_search(entry, found=None, is_doubtful=True)
    assert decide(entry, memory, ORDER) == ReadRow(may_fail=True)
    assert type(decide(read, memory.after_reading_row(read), ORDER)) is step


def test_a_doubt_about_an_unresolved_payment_ends_the_call_at_once() -> None:
    entry, accepted = row(UNKNOWN, "", 1), row(ACCEPTED, "P")
    memory = Memory().after_search(entry, found=None, is_doubtful=True)
    assert decide(entry, memory, ORDER) == Fail()
    assert decide(accepted, memory.after_reading_row(accepted), ORDER) == Fail()


def test_a_search_from_before_another_step_does_not_count() -> None:
    """While another order was read, or a send was refused, the list may have come to show the payment."""
    entry = row(REFUSED, "", 1)
    memory = Memory().after_search(entry, found=None, is_doubtful=False)
    for result in (Result.REFERENCE_IN_USE, Result.NOT_BEGUN, Result.RATE_LIMITED):
        sent = memory.after_send(result, attempts=1, shown_id=None, retry_after=0.0)
        for later in (sent, replace(memory, result=result)):
            again = later.after_step().after_reading_row(entry)
            assert decide(entry, again, ORDER) == Search(entry), result
    begun = memory.after_send(Result.NOT_BEGUN, attempts=0, shown_id=None, retry_after=0.0).after_reading_row(entry)
    assert decide(entry, begun, ORDER) == Search(entry)


@pytest.mark.parametrize(
    ("statuses", "read", "step"),
    [
        ("P", {}, "t-0"),
        ("PP", {"t-0": OPEN}, "t-1"),
        ("PP", {"t-0": PAID}, ReturnFound),
        ("PP", {"t-0": ENDED}, "t-1"),
        ("P", {"t-0": OPEN}, ReturnFound),
        ("P", {"t-0": ENDED}, ReadRow),
        ("CP", {}, "t-1"),
        ("PS", {}, "t-1"),
        ("PS", {"t-1": OPEN}, ReturnFound),
        ("SS", {"t-1": PAID}, "t-0"),
        ("SS", {"t-0": PAID}, ReturnFound),
    ],
)
def test_what_may_block_an_order_is_read_one_by_one(statuses: str, read: dict[str, Stage], step: Any) -> None:
    """What is paid is returned at once; beside an open prompt, another one may be paid."""
    entry = row(ACCEPTED, statuses)
    memory = Memory()
    for transaction_id, stage in read.items():
        memory = memory.after_reading(Shown(transaction_id, stage))
    decided = decide(entry, memory, ORDER)
    if isinstance(step, str):
        assert decided == ReadTransaction(entry, step)
    elif step is ReturnFound:
        assert decided == ReturnFound(entry, *read)
    else:
        assert decided == ReadRow()


def test_of_several_open_prompts_the_newest_is_returned() -> None:
    entry = row(ACCEPTED, "PP")
    memory = Memory(read=(Shown("t-0", OPEN), Shown("t-1", OPEN)))
    assert decide(entry, memory, ORDER) == ReturnFound(entry, "t-1")
    assert decide(entry, Memory(read=(Shown("t-0", OPEN), Shown("t-1", ENDED))), ORDER) == ReturnFound(entry, "t-0")


def test_a_payout_that_failed_blocks_for_ever() -> None:
    entry = row(ACCEPTED, "C", kind=PAYOUT)
    for policy in (Policy(PAYOUT), Policy(PAYOUT, abandon_after=0.0)):
        assert decide(entry, Memory(read=(Shown("t-0", ENDED),)), policy) == ReturnFound(entry, "t-0")


@pytest.mark.parametrize(("age", "is_abandoned"), [(118.9, False), (119.0, True), (500.0, True)])
def test_an_abandoned_prompt_does_not_block_once_the_row_was_read_after_it(age: float, is_abandoned: bool) -> None:
    """The service's time has whole seconds."""
    entry, policy = row(ACCEPTED, "P"), replace(ORDER, abandon_after=120.0)
    memory = Memory().after_reading(Shown("t-0", OPEN, age))
    if not is_abandoned:
        assert decide(entry, memory, policy) == ReturnFound(entry, "t-0")
        return
    assert decide(entry, memory, policy) == ReadRow()
    memory = memory.after_reading_row(entry)
    assert decide(entry, memory, policy) == Send()
    assert decide(entry, memory, ORDER) == ReturnFound(entry, "t-0")
    paid = row(ACCEPTED, "S")
    assert decide(paid, memory.after_reading_row(paid), policy) == ReadTransaction(paid, "t-0"), "meanwhile it was paid"
    assert memory.after_reading_row(None).read == ()


def test_an_end_that_the_row_does_not_have_is_read_again() -> None:
    entry = row(ACCEPTED, "P")
    memory = Memory().after_reading(Shown("t-0", ENDED)).after_reading_row(entry)
    assert decide(entry, memory, ORDER) == ReadTransaction(entry, "t-0")


def test_a_paid_prompt_that_was_read_as_open_is_not_abandoned() -> None:
    entry = row(ACCEPTED, "S")
    memory = Memory(read=(Shown("t-0", OPEN, inf),))
    assert decide(entry, memory, replace(ORDER, abandon_after=0.0)) == ReturnFound(entry, "t-0")


@pytest.mark.parametrize(("left", "step"), [(PAUSE, Wait(PAUSE)), (PAUSE - 0.01, FailUnknown)])
def test_a_call_waits_for_another_ones_send_until_its_deadline(left: float, step: Any) -> None:
    entry = row(SENDING, "", 1)
    decided = decide(entry, Memory(seconds_left=left), ORDER)
    why = "another call was still sending it at this one's deadline"
    assert decided == (FailUnknown(entry, why) if step is FailUnknown else step)


@pytest.mark.parametrize(
    ("policy", "since", "now", "within"),
    [
        (KEYS, 100.0, NOW, 900.0),
        (KEYS, -799.0, NOW, 1.0),
        (KEYS, -800.0, NOW, None),
        (KEYS, 100.0, None, None),
        (KEYS, None, NOW, None),
        (Policy(PAYOUT), 100.0, NOW, None),
    ],
)
def test_an_unresolved_payout_is_sent_again_only_while_its_key_is_known(
    policy: Policy, since: float | None, now: Moment | None, within: float | None
) -> None:
    entry = row(UNKNOWN, "", 1, kind=PAYOUT, key_since=None if since is None else str(replace(NOW, clock=since)))
    assert decide(entry, Memory(now=now), policy) == Search(entry)
    decided = decide(entry, Memory(now=now, searched=entry), policy)
    why = "the list does not show it, which proves nothing"
    assert decided == (FailUnknown(entry, why) if within is None else Send(within=within))


def after(result: Result, *, attempts: int = 1, shown_id: str | None = None, pause: float = 0.0, **more: Any) -> Memory:
    sent = Memory(**more).after_send(result, attempts=attempts, shown_id=shown_id, retry_after=pause)
    return replace(sent, is_stale=False)


@pytest.mark.parametrize(
    ("result", "step"),
    [
        (Result.ACCEPTED, ReturnSent()),
        (Result.REFUSED, Fail()),
        (Result.NOT_SENT, Fail()),
        (Result.NOT_BEGUN, ReadRow()),
        (Result.RATE_LIMITED, Wait(0.5, is_retry=True)),
        (Result.LOST, ReadRow(may_fail=True)),
        (Result.OTHER_PAYMENT, ReadRow(may_fail=True)),
        (Result.SENT_BEFORE, ReadRow(may_fail=True)),
        (Result.ROW_CHANGED, ReadRow(may_fail=True)),
    ],
)
def test_the_step_after_a_send(result: Result, step: Step) -> None:
    memory = Memory().after_send(result, attempts=1, shown_id=None, retry_after=0.0)
    assert decide(None, memory, ORDER) == step


def test_another_order_with_the_reference_is_read_once() -> None:
    memory = after(Result.REFERENCE_IN_USE)
    assert decide(None, memory, ORDER) == ReadOthers()
    assert decide(None, memory, Policy(PAYOUT)) == Fail(), "a refund that would exceed what was paid"
    memory = replace(memory.after_step(), has_read_others=True)
    assert decide(None, memory, ORDER) == ReadRow()
    assert decide(None, after(Result.REFERENCE_IN_USE, has_read_others=True), ORDER) == Fail()


@pytest.mark.parametrize(
    ("pause", "attempts", "policy", "left", "step"),
    [
        (0.0, 1, ORDER, 60.0, Wait(0.5, is_retry=True)),
        (7.0, 3, ORDER, 60.0, Wait(7.0, is_retry=True)),
        (7.0, 4, ORDER, 60.0, Fail()),
        (7.0, 1, ORDER, 7.0, Fail()),
        (7.0, 1, ORDER, 7.1, Wait(7.0, is_retry=True)),
        (7.0, 1, replace(ORDER, max_wait=7.0), 60.0, Wait(7.0, is_retry=True)),
        (7.1, 1, replace(ORDER, max_wait=7.0), 60.0, Fail()),
    ],
)
def test_a_rate_limit_is_waited_for(pause: float, attempts: int, policy: Policy, left: float, step: Step) -> None:
    memory = after(Result.RATE_LIMITED, attempts=attempts, pause=pause, seconds_left=left)
    assert decide(None, memory, policy) == step
    refused = row(REFUSED, "", 1)
    assert decide(refused, memory.after_step().after_reading_row(refused), policy) == Search(refused), "before any send"


UNRESOLVED = [Result.LOST, Result.OTHER_PAYMENT, Result.SENT_BEFORE, Result.ROW_CHANGED]


@pytest.mark.parametrize("result", UNRESOLVED)
@pytest.mark.parametrize(
    ("entry", "shown_id", "is_returned"),
    [
        (row(ACCEPTED, "P"), None, True),
        (row(ACCEPTED, "P"), "t-0", True),
        (row(ACCEPTED, "P"), "t-1", False),
        (row(ACCEPTED, "C"), None, True),
        (row(ACCEPTED, "", 1), None, False),
        (row(UNKNOWN, "P"), None, False),
        (None, None, False),
    ],
)
def test_a_callback_that_was_faster_than_the_response_counts(
    result: Result, entry: Any, shown_id: str | None, is_returned: bool
) -> None:
    memory = after(result, shown_id=shown_id, was_unresolved=True)
    assert decide(entry, memory, ORDER) == (ReturnRow(entry) if is_returned else Fail())


def test_a_lost_payout_is_searched_for_and_sent_again_with_its_key() -> None:
    entry = row(UNKNOWN, "", 1, kind=PAYOUT, key_since=str(NOW))
    memory = replace(after(Result.LOST), now=NOW)
    assert decide(entry, memory, KEYS) == Wait(0.5, is_retry=True)
    memory = memory.after_step()
    assert memory.was_unresolved
    assert decide(entry, memory, KEYS) == ReadRow()
    memory = memory.after_reading_row(entry)
    assert decide(entry, memory, KEYS) == Search(entry)
    memory = memory.after_search(entry, found=None, is_doubtful=False).after_reading_row(entry)
    assert decide(entry, memory, KEYS) == Send(within=900.0)
    assert decide(entry, after(Result.LOST), Policy(PAYOUT)) == Fail()


@pytest.mark.parametrize(
    ("attempts", "left", "step"),
    [
        (1, 60.0, Wait(0.5, is_retry=True)),
        (2, 60.0, Wait(1.0, is_retry=True)),
        (3, 60.0, Wait(2.0, is_retry=True)),
        (7, 60.0, Wait(8.0, is_retry=True)),
        (9, 60.0, Fail()),
        (1, 6.5, Fail()),
        (1, 6.6, Wait(0.5, is_retry=True)),
    ],
)
def test_a_lost_payout_is_sent_again_after_a_pause_that_doubles(attempts: int, left: float, step: Step) -> None:
    policy = replace(KEYS, max_attempts=9, least_seconds=6.0)
    assert decide(None, after(Result.LOST, attempts=attempts, seconds_left=left), policy) == step
    since = str(replace(NOW, clock=NOW.clock - RESEND_WITHIN + left))
    entry = row(UNKNOWN, "", attempts, kind=PAYOUT, key_since=since)
    assert decide(entry, after(Result.LOST, attempts=attempts, now=NOW), policy) == step, "the key's time ends, too"
    another = row(SENDING, "", attempts, kind=PAYOUT, key_since=since)
    assert isinstance(decide(another, after(Result.LOST, attempts=1, now=NOW), policy), Wait)


@pytest.mark.parametrize("result", [Result.OTHER_PAYMENT, Result.ROW_CHANGED])
def test_what_the_service_takes_for_another_payment_is_not_sent_again(result: Result) -> None:
    assert decide(row(UNKNOWN, "", 1, kind=PAYOUT, key_since=str(NOW)), after(result, now=NOW), KEYS) == Fail()


def test_an_earlier_request_with_the_key_is_searched_for_once() -> None:
    entry = row(UNKNOWN, "", 1, kind=PAYOUT)
    memory = after(Result.SENT_BEFORE)
    assert decide(entry, memory, KEYS) == Wait(0.0)
    assert decide(entry, memory.after_step(), KEYS) == ReadRow()
    assert decide(entry, memory.after_step().after_reading_row(entry), KEYS) == Search(entry)
    again = after(Result.LOST).after_send(Result.SENT_BEFORE, attempts=2, shown_id=None, retry_after=0.0)
    assert decide(entry, replace(again, is_stale=False), KEYS) == Fail()


def test_a_result_is_unresolved_for_what_follows() -> None:
    for result in Result:
        memory = after(result)
        assert not memory.was_unresolved
        assert memory.after_step().was_unresolved is (result in UNRESOLVED)
        assert memory.after_send(Result.REFUSED, attempts=2, shown_id=None, retry_after=0.0).was_unresolved is (
            result in UNRESOLVED
        )
        assert after(result, was_unresolved=True).after_step().was_unresolved


def test_the_memory_of_a_send_is_that_of_the_latest() -> None:
    first = Memory().after_send(Result.LOST, attempts=1, shown_id="t-1", retry_after=3.0)
    assert (first.is_stale, first.result, first.attempts, first.shown_id, first.retry_after) == (
        *(True, Result.LOST, 1, "t-1", 3.0),
    )
    second = first.after_send(Result.NOT_SENT, attempts=2, shown_id=None, retry_after=0.0)
    assert (second.result, second.attempts, second.shown_id, second.retry_after) == (Result.NOT_SENT, 2, None, 0.0)
    assert first.after_step() == replace(first, result=None, was_unresolved=True)
    assert first.after_reading_row(None) == replace(first, is_stale=False, is_older=False)
