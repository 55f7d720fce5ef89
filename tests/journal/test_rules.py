"""The rules of the journal, as a table."""

from __future__ import annotations

import pytest

from momopay import JournalState
from momopay.journal.entries import MAY_BE_SENT
from momopay.journal.rules import TRANSITIONS, Cause, Finding, Step, finding, may_follow, next_step


@pytest.mark.parametrize("state", [None, *JournalState])
def test_only_a_new_refused_or_unsent_reference_leads_to_sending(state: JournalState | None) -> None:
    sends = next_step(state) in {Step.SEND, Step.SEARCH_THEN_SEND}
    assert sends == (state is None or state in MAY_BE_SENT) == may_follow(Cause.BEGIN, state, JournalState.SENDING)
    assert (next_step(state) is Step.SEND) == (state is None)


@pytest.mark.parametrize("cause", [cause for cause in Cause if cause not in {Cause.ACCEPTANCE, Cause.CONTRADICTION}])
def test_what_was_accepted_is_changed_only_by_a_record_that_contradicts_it(cause: Cause) -> None:
    assert not any(JournalState.ACCEPTED in sources for sources in TRANSITIONS[cause].values())
    assert not may_follow(cause, JournalState.ACCEPTED, JournalState.NOT_SENT)


def test_only_a_person_frees_what_is_unknown() -> None:
    freeing = {cause for cause in Cause for free in MAY_BE_SENT if may_follow(cause, JournalState.UNKNOWN, free)}
    assert freeing == {Cause.RELEASE}


@pytest.mark.parametrize(
    ("exact", "near", "proof"),
    [
        ([1], [], Finding.MADE),
        ([1], [2], Finding.MADE),
        ([1, 2], [], Finding.UNCLEAR),
        ([], [1], Finding.UNCLEAR),
        ([], [], Finding.ABSENT),
    ],
)
def test_what_a_search_proves(exact: list[int], near: list[int], proof: Finding) -> None:
    assert finding(exact, near) is proof
