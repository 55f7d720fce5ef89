"""The rules of the journal, as tables. `test_store` compares the SQL with them."""

from __future__ import annotations

import pytest

from journal.kit import ACCEPTED, COLLECTION, NOT_SENT, PAYOUT, REFUSED, SENDING, UNKNOWN, entry_of
from momopay import EntryKind, JournalState, TransactionStatus
from momopay.journal.entries import MAY_BE_SENT
from momopay.journal.rules import (
    REPEATS,
    Cause,
    Proof,
    Stage,
    Step,
    blocks,
    may_follow,
    may_have_executed,
    next_step,
    proof,
    stage_of,
    transitions,
)

OPEN, ENDED, PAID = Stage.OPEN, Stage.ENDED, Stage.PAID
SENDS = {Step.SEND, Step.SEARCH_THEN_SEND}
both_kinds = pytest.mark.parametrize("kind", EntryKind)


@both_kinds
@pytest.mark.parametrize(
    ("state", "stages", "attempts", "step"),
    [
        (None, [], 0, Step.SEND),
        (SENDING, [], 1, Step.WAIT),
        (UNKNOWN, [], 1, Step.RECONCILE),
        (UNKNOWN, [OPEN], 2, Step.RECONCILE),
        (REFUSED, [], 1, Step.SEARCH_THEN_SEND),
        (NOT_SENT, [], 0, Step.SEARCH_THEN_SEND),
        (ACCEPTED, [OPEN], 1, Step.READ),
        (REFUSED, [OPEN], 2, Step.READ),
    ],
)
def test_the_next_step(
    kind: EntryKind, state: JournalState | None, stages: list[Stage], attempts: int, step: Step
) -> None:
    assert next_step(kind, state, stages, attempts) is step


@pytest.mark.parametrize(
    ("state", "stages", "attempts", "step"),
    [
        (ACCEPTED, [ENDED], 1, Step.SEND),
        (ACCEPTED, [ENDED, ENDED], 2, Step.SEND),
        (ACCEPTED, [ENDED], 2, Step.SEARCH_THEN_SEND),
        (REFUSED, [ENDED], 2, Step.SEARCH_THEN_SEND),
        (NOT_SENT, [ENDED], 1, Step.SEARCH_THEN_SEND),
        (SENDING, [ENDED], 2, Step.WAIT),
        (UNKNOWN, [ENDED], 2, Step.RECONCILE),
    ],
)
def test_an_order_may_be_prompted_again_after_an_end_and_a_payout_is_read(
    state: JournalState, stages: list[Stage], attempts: int, step: Step
) -> None:
    assert next_step(COLLECTION, state, stages, attempts) is step
    assert next_step(PAYOUT, state, stages, attempts) is (step if step not in SENDS else Step.READ)


@both_kinds
@pytest.mark.parametrize("state", JournalState)
@pytest.mark.parametrize("others", [[], [ENDED], [OPEN], [PAID]])
def test_what_was_paid_is_read_for_ever(kind: EntryKind, state: JournalState, others: list[Stage]) -> None:
    for stages in ([PAID, *others], [*others, PAID]):
        assert next_step(kind, state, stages, 9, passed_over=[0, 1]) is Step.READ


@both_kinds
@pytest.mark.parametrize("state", JournalState)
@pytest.mark.parametrize("stages", [[OPEN], [OPEN, ENDED], [ENDED, OPEN], [OPEN, OPEN]])
def test_an_open_transaction_blocks_another_attempt(kind: EntryKind, state: JournalState, stages: list[Stage]) -> None:
    assert next_step(kind, state, stages, len(stages)) not in SENDS


def test_what_a_call_passed_over_blocks_it_no_more() -> None:
    assert next_step(COLLECTION, ACCEPTED, [OPEN], 1, passed_over=[0]) is Step.SEND
    assert next_step(COLLECTION, ACCEPTED, [OPEN, OPEN], 2, passed_over=[0]) is Step.READ
    assert next_step(COLLECTION, UNKNOWN, [OPEN], 1, passed_over=[0]) is Step.RECONCILE


def test_the_kinds_differ_only_in_what_may_follow_an_end() -> None:
    assert {PAYOUT: False, COLLECTION: True} == REPEATS
    payouts, orders = transitions(PAYOUT), transitions(COLLECTION)
    assert {cause for cause in Cause if payouts[cause] != orders[cause]} == {Cause.BEGIN, Cause.SIGHTING}
    for cause in (Cause.BEGIN, Cause.SIGHTING):
        (ours,), (theirs,) = payouts[cause].values(), orders[cause].values()
        assert theirs - ours == {ACCEPTED}
    assert [(kind, stage) for kind in EntryKind for stage in Stage if not blocks(kind, stage)] == [(COLLECTION, ENDED)]


@both_kinds
@pytest.mark.parametrize("state", [None, *JournalState])
def test_what_may_be_sent_is_what_the_next_step_sends(kind: EntryKind, state: JournalState | None) -> None:
    stages = [ENDED] if state is ACCEPTED else []
    sends = next_step(kind, state, stages, len(stages)) in SENDS
    assert sends is may_follow(kind, Cause.BEGIN, state, SENDING)
    assert not may_follow(kind, Cause.BEGIN, SENDING, SENDING)
    assert not may_follow(kind, Cause.BEGIN, UNKNOWN, SENDING)


@both_kinds
def test_only_a_person_frees_what_is_unknown(kind: EntryKind) -> None:
    freeing = {cause for cause in Cause for free in MAY_BE_SENT if may_follow(kind, cause, UNKNOWN, free)}
    assert freeing == {Cause.RELEASE}


@both_kinds
def test_what_was_accepted_stays_so_but_for_what_the_service_says_or_another_attempt(kind: EntryKind) -> None:
    leaving = {
        cause
        for cause, ends in transitions(kind).items()
        for after, before in ends.items()
        if ACCEPTED in before and after is not ACCEPTED
    }
    assert leaving == {Cause.CONTRADICTION} | ({Cause.BEGIN, Cause.SIGHTING} if kind is COLLECTION else set())


STAGES = {"SUCCESS": PAID, "FAILED": ENDED, "CANCELLED": ENDED, "EXPIRED": ENDED, "REVERSED": ENDED}


@pytest.mark.parametrize("status", [None, "ON_HOLD", *TransactionStatus])
def test_how_far_a_transaction_came(status: str | None) -> None:
    known = None if status is None else TransactionStatus(status)
    assert stage_of(known) is STAGES.get(str(status), OPEN)


@pytest.mark.parametrize(
    ("state", "statuses", "payout", "order"),
    [
        (UNKNOWN, [], True, True),
        (SENDING, [], True, True),
        (REFUSED, [], False, False),
        (NOT_SENT, ["CANCELLED"], True, False),
        (REFUSED, ["CANCELLED", "PENDING"], True, True),
        (ACCEPTED, ["CANCELLED"], True, False),
        (ACCEPTED, ["CANCELLED", "SUCCESS"], True, True),
    ],
)
def test_whether_money_may_have_moved(state: JournalState, statuses: list[str], payout: bool, order: bool) -> None:
    assert may_have_executed(entry_of(*statuses, kind=PAYOUT, state=state)) is payout
    assert may_have_executed(entry_of(*statuses, kind=COLLECTION, state=state)) is order


@pytest.mark.parametrize(
    ("exact", "near", "payout", "order"),
    [
        ([1], [], Proof.MADE, Proof.MADE),
        ([1], [2], Proof.MADE, Proof.MADE),
        ([1, 2], [], Proof.UNRESOLVED, Proof.MADE),  # an order may have several prompts
        ([], [1], Proof.UNRESOLVED, Proof.UNRESOLVED),
        ([], [], Proof.ABSENT, Proof.ABSENT),
    ],
)
def test_what_a_search_proves(exact: list[int], near: list[int], payout: Proof, order: Proof) -> None:
    assert (proof(PAYOUT, exact, near), proof(COLLECTION, exact, near)) == (payout, order)
