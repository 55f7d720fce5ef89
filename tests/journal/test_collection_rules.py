"""The rules of collections, as a table."""

from __future__ import annotations

import pytest

from momopay import JournalState, TransactionStatus
from momopay.journal.collection_rules import (
    COLLECTION_TRANSITIONS,
    CollectStep,
    Stage,
    next_collect_step,
    prompts_found,
    stage_of,
)
from momopay.journal.rules import TRANSITIONS, Cause, Finding

ENDED, OPEN, PAID = Stage.ENDED, Stage.OPEN, Stage.PAID
STATES = [None, *JournalState]
SENDS = {CollectStep.SEND, CollectStep.SEARCH_THEN_SEND}


@pytest.mark.parametrize("state", STATES[1:])
@pytest.mark.parametrize("others", [[], [ENDED], [OPEN], [PAID]])
def test_what_was_paid_is_returned_for_ever(state: JournalState, others: list[Stage]) -> None:
    for stages in ([PAID, *others], [*others, PAID]):
        assert next_collect_step(state, stages, 9, abandoned=True) is CollectStep.RETURN_PAID


@pytest.mark.parametrize("state", STATES[1:])
def test_an_open_prompt_blocks_the_next_one_unless_it_is_abandoned(state: JournalState) -> None:
    for stages in ([OPEN], [OPEN, ENDED], [ENDED, OPEN]):
        assert next_collect_step(state, stages, len(stages)) not in SENDS


@pytest.mark.parametrize(
    ("state", "stages", "attempts", "step"),
    [
        (None, [], 0, CollectStep.SEND),
        (JournalState.SENDING, [ENDED], 2, CollectStep.WAIT),
        (JournalState.UNKNOWN, [ENDED], 2, CollectStep.RECONCILE),
        (JournalState.ACCEPTED, [ENDED], 1, CollectStep.SEND),
        (JournalState.ACCEPTED, [ENDED, ENDED], 2, CollectStep.SEND),
        (JournalState.ACCEPTED, [ENDED], 2, CollectStep.SEARCH_THEN_SEND),
        (JournalState.REFUSED, [], 1, CollectStep.SEARCH_THEN_SEND),
        (JournalState.REFUSED, [ENDED], 2, CollectStep.SEARCH_THEN_SEND),
        (JournalState.NOT_SENT, [], 0, CollectStep.SEARCH_THEN_SEND),
        (JournalState.NOT_SENT, [ENDED], 1, CollectStep.SEARCH_THEN_SEND),
        (JournalState.ACCEPTED, [OPEN], 1, CollectStep.READ_OPEN),
        (JournalState.REFUSED, [OPEN], 2, CollectStep.READ_OPEN),
    ],
)
def test_the_next_step(state: JournalState | None, stages: list[Stage], attempts: int, step: CollectStep) -> None:
    assert next_collect_step(state, stages, attempts) is step


def test_an_abandoned_prompt_does_not_block() -> None:
    assert next_collect_step(JournalState.ACCEPTED, [OPEN], 1, abandoned=True) is CollectStep.SEND
    assert next_collect_step(JournalState.UNKNOWN, [], 1, abandoned=True) is CollectStep.RECONCILE


def test_only_begin_and_a_sighting_differ_from_those_of_payouts() -> None:
    differing = {cause for cause in Cause if COLLECTION_TRANSITIONS[cause] != TRANSITIONS[cause]}
    assert differing == {Cause.BEGIN, Cause.SIGHTING}


def test_what_is_being_sent_or_in_doubt_is_not_begun_again() -> None:
    assert not COLLECTION_TRANSITIONS[Cause.BEGIN][JournalState.SENDING] & {JournalState.SENDING, JournalState.UNKNOWN}


@pytest.mark.parametrize(
    ("status", "stage"),
    [
        (None, OPEN),
        ("PENDING", OPEN),
        ("PROCESSING", OPEN),
        ("ON_HOLD", OPEN),
        ("FAILED", ENDED),
        ("CANCELLED", ENDED),
        ("EXPIRED", ENDED),
        ("REVERSED", ENDED),
        ("SUCCESS", PAID),
    ],
)
def test_how_far_a_prompt_came(status: str | None, stage: Stage) -> None:
    assert stage_of(None if status is None else TransactionStatus(status)) is stage


def test_every_match_of_a_search_is_a_prompt_of_the_order() -> None:
    assert prompts_found([1, 2], [3]) is prompts_found([1], []) is Finding.MADE
    assert prompts_found([], [1]) is Finding.UNCLEAR
    assert prompts_found([], []) is Finding.ABSENT
