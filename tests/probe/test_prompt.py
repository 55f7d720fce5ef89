"""`spend=`: one prompt, recorded before it is sent, and never two."""

from __future__ import annotations

from typing import Any

import pytest

from momopay import ConfigurationError, EntryKind, Journal, OutcomeUnknownError, TransactionStatus
from momopay.probe import ROWS, Cost, Spend
from momopay.sandbox import Fault, MovementKind, Outcome, phone_for
from probe.kit import Scene

STK = "/payments/stk"


def prompts(scene: Scene) -> int:
    """How many prompts there are, by the service's own fees."""
    return [movement.kind for movement in scene.sandbox.ledger].count(MovementKind.fee)


def spend(journal: Journal, outcome: Outcome, amount: int = 1) -> Spend:
    return Spend(amount, phone_for(outcome), journal)


CASES: list[tuple[str, Any, Outcome]] = [
    *[(row.name, value, Outcome.cancelled) for row in ROWS if row.cost is Cost.SPEND for value in row.values],
    ("fee_refunded_on_failure", True, Outcome.insufficient_funds),
    ("cancel_ends_as", "CANCELLED", Outcome.cancelled),
    ("cancel_ends_as", "FAILED", Outcome.cancelled),
    ("expired_reads_as", "EXPIRED", Outcome.expired),
    ("expired_reads_as", "FAILED", Outcome.expired),
    *[("created_status", status, Outcome.success) for status in (200, 201, 202)],
    *[("naming", style, Outcome.success) for style in ("camelCase", "snake_case")],
    *[("list_amount", style, Outcome.insufficient_funds) for style in ("amount", "with_fee")],
    *[("list_phone", style, Outcome.success) for style in ("whole", "masked")],
    *[("list_type", style, Outcome.success) for style in ("upper", "lower")],
    *[("list_times", style, Outcome.success) for style in ("utc", "local")],
]


@pytest.mark.parametrize(
    ("name", "value", "outcome"),
    [
        pytest.param(*case, marks=() if number in {0, 1, 2, 3, 6, 8} else pytest.mark.whole)
        for number, case in enumerate(CASES)
    ],
)
def test_a_prompt_finds_the_value_of_a_switch(
    scene: Scene, journal: Journal, name: str, value: Any, outcome: Outcome
) -> None:
    setattr(scene.account.switches, name, value)
    found = scene.probe(spend=spend(journal, outcome))
    assert found.switches[name] == value
    assert found.facts["expires_from"] == ("PENDING" if name == "expired_reads_as" else "unknown")
    assert prompts(scene) == 1
    (entry,) = journal.entries(kind=EntryKind.COLLECTION)
    assert entry.has_settled
    assert {request.method for request in scene.sent} == {"GET", "POST"}


def test_a_prompt_that_failed_after_the_pin_is_not_an_expired_one(scene: Scene, journal: Journal) -> None:
    found = scene.probe(spend=spend(journal, Outcome.timeout))
    assert found.switches["expired_reads_as"] == "unknown"
    assert found.switches["cancel_ends_as"] == "unknown"


def test_it_moves_no_more_than_it_said(scene: Scene, journal: Journal) -> None:
    scene.probe(spend=spend(journal, Outcome.success))
    moved = [movement.amount for movement in scene.sandbox.ledger if movement.kind is MovementKind.stk]
    assert moved == [1]
    assert "one prompt for KES 1 to 2547*****000, reference PROBE" in scene.notes[0]


def test_a_documented_refusal_is_not_tried_again(scene: Scene, journal: Journal) -> None:
    scene.account.channels = []
    found = scene.probe(spend=spend(journal, Outcome.success))
    assert len(scene.requests("POST", STK)) == 1
    assert found.findings["strict_fields"].sentence == "The prompt was refused: 400 NO_PAYMENT_CHANNELS."
    assert scene.notes[-1] == "The service refused the prompt, so the phone shows none."


@pytest.mark.parametrize("fault", [Fault.reset_after_commit, Fault.error_after_commit, Fault.truncated, Fault.html_502])
def test_a_lost_answer_sends_no_second_prompt(scene: Scene, journal: Journal, fault: Fault) -> None:
    scene.sandbox.fail_next("POST", STK, fault)
    for _ in range(2):  # run again, it follows that prompt, and sends no other one
        if fault is Fault.html_502:  # it was not executed, and nobody can know
            with pytest.raises(OutcomeUnknownError):
                scene.probe(spend=spend(journal, Outcome.by_hand))
        else:
            assert scene.probe(spend=spend(journal, Outcome.by_hand)).switches["naming"] == "camelCase"
    assert [each.method for each in scene.sandbox.requests].count("POST") == 1


def test_a_lost_answer_to_a_prompt_that_cannot_be_read_is_no_refusal(scene: Scene, journal: Journal) -> None:
    scene.sandbox.fail_next("POST", STK, Fault.reset_after_commit)
    for _ in range(8):
        scene.sandbox.fail_next("GET", "/transactions/{id}", Fault.error_before_commit)
    scene.probe(spend=spend(journal, Outcome.success))
    assert "The service refused the prompt, so the phone shows none." not in scene.notes


@pytest.mark.parametrize("is_stopped", [False, True])
def test_a_lost_answer_to_a_prompt_that_is_cancelled_at_once(
    scene: Scene, journal: Journal, is_stopped: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def stop(_self: Any, _seconds: float) -> None:
        raise KeyboardInterrupt

    scene.sandbox.fail_next("POST", STK, Fault.reset_after_commit)
    if is_stopped:
        with monkeypatch.context() as patch:
            patch.setattr(type(scene.time), "sleep", stop)
            with pytest.raises(KeyboardInterrupt):
                scene.probe(spend=spend(journal, Outcome.cancelled))
        scene.sandbox.advance(60)
        found = scene.probe(spend=spend(journal, Outcome.by_hand))
        assert scene.notes[0].startswith("Sending one prompt")  # the earlier one has ended
        assert prompts(scene) == 2
    else:
        found = scene.probe(spend=spend(journal, Outcome.cancelled))
        assert prompts(scene) == 1
    assert found.switches["cancel_ends_as"] == "CANCELLED"


def test_an_open_prompt_to_another_phone_blocks(scene: Scene, journal: Journal) -> None:
    scene.probe(spend=spend(journal, Outcome.by_hand))
    scene.probe(spend=spend(journal, Outcome.by_hand))
    assert scene.notes[0].startswith("Following an earlier probe's prompt for KES 1 to 2547")
    with pytest.raises(ConfigurationError, match="has not ended; nothing was sent"):
        scene.probe(spend=spend(journal, Outcome.success))
    assert prompts(scene) == 1


def test_a_prompt_that_ended_allows_another_one(scene: Scene, journal: Journal) -> None:
    scene.probe(spend=spend(journal, Outcome.cancelled))
    scene.probe(spend=spend(journal, Outcome.success))
    entries = list(journal.entries(kind=EntryKind.COLLECTION))
    assert [entry.status for entry in entries] == [TransactionStatus.SUCCESS, TransactionStatus.CANCELLED]


def test_a_prompt_that_ended_after_its_probe_is_not_followed(scene: Scene, journal: Journal) -> None:
    scene.probe(spend=spend(journal, Outcome.by_hand))
    (entry,) = journal.open()
    assert entry.transaction_id is not None
    scene.sandbox.cancel(entry.transaction_id)
    scene.sandbox.advance(60)
    found = scene.probe(spend=spend(journal, Outcome.success))
    assert scene.notes[0].startswith("Sending one prompt for KES 1")
    assert found.facts["prompt_created_status"] == 200
    first, second = journal.entries(kind=EntryKind.COLLECTION)
    assert first.reference != second.reference
    assert {first.status, second.status} == {TransactionStatus.SUCCESS, TransactionStatus.CANCELLED}


def test_other_payments_leave_the_fee_unknown(scene: Scene, journal: Journal) -> None:
    def sleep_and_pay(seconds: float, sleep: Any = scene.time.sleep) -> Any:
        scene.account.service_balance -= 1
        return sleep(seconds)

    scene.time.sleep = sleep_and_pay  # type: ignore[method-assign]
    found = scene.probe(spend=spend(journal, Outcome.cancelled))
    assert found.switches["fee_refunded_on_failure"] == "unknown"
    assert "lost among other payments" in found.findings["fee_refunded_on_failure"].sentence
