"""What a sweep asks for follows from the journal, the answers and the time: no client and no database."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from durable.kit import listed
from journal.constants import UNKNOWN
from journal.kit import entry_of
from momopay import Transaction
from momopay.durable.lookup import search_for
from momopay.durable.plan import Finding, Plan
from momopay.journal.queue import Due, Followed
from momopay.types import TransactionSummary

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)


def followed(number: int = 1, status: str | None = None, **fields: Any) -> list[Followed]:
    """Make so many orders, each with a transaction t-0, t-1, ..."""
    made = list[Followed]()
    for each in range(number):
        entry = entry_of(status, reference=f"o-{each}")
        (known,) = entry.transactions
        transaction = known.model_copy(update={"transaction_id": f"t-{each}"})
        made.append(Followed(entry.model_copy(update={"transactions": (transaction,)}), transaction, **fields))
    return made


def shown(number: int, status: str = "SUCCESS", **fields: Any) -> TransactionSummary:
    """Return what a page shows of an order."""
    stated: dict[str, Any] = {"type": "STK", "amount": 100, "transactionId": f"t-{number}", "status": status}
    return TransactionSummary.model_validate(listed(f"o-{number}", **stated | fields))


def read(number: int, status: str = "SUCCESS", **fields: Any) -> Transaction:
    """Return what a read shows of an order."""
    return Transaction.model_validate(shown(number, status, **fields).model_dump())


UNRESOLVED = entry_of(state=UNKNOWN)


@pytest.mark.parametrize(
    ("plan", "is_page"),
    [
        (Plan(Due()), False),
        (Plan(Due(followed())), False),
        (Plan(Due(followed(2))), True),
        (Plan(Due(undelivered=followed(1, "SUCCESS"))), False),
        (Plan(Due(undelivered=followed(2, "SUCCESS"))), True),
        (Plan(Due(ended_prompts=followed(1, "CANCELLED"))), True),  # it needs the service's time
        (Plan(Due(), [(UNRESOLVED, search_for(UNRESOLVED))]), True),
    ],
)
def test_the_first_request_is_a_page_unless_one_transaction_is_all(plan: Plan, *, is_page: bool) -> None:
    assert plan.wants_page is is_page


@pytest.mark.parametrize(("on_page", "another"), [(0, False), (1, False), (2, True), (3, True), (5, False)])
def test_another_page_is_read_while_one_shows_what_it_costs(on_page: int, *, another: bool) -> None:
    plan = Plan(Due(followed(5)))
    plan.note_page()
    for number in range(on_page):
        assert plan.find(shown(number), None)
    assert plan.wants_page is another
    assert set(plan.reads(None)) == {f"t-{number}" for number in range(on_page, 5)}


def test_what_is_undelivered_and_to_be_read_once_more_is_read_once() -> None:
    plan = Plan(Due((), followed(1, "CANCELLED"), followed(1, "CANCELLED", known_for=600.0)))
    assert plan.find(shown(0, "CANCELLED"), None)
    assert plan.reads(None) == ["t-0"]


def test_a_pass_has_fourteen_requests_for_each_kind_in_turn() -> None:
    old = NOON - timedelta(hours=1)
    ended = followed(30, "CANCELLED", learned_at_service=old.isoformat())
    plan = Plan(Due(followed(30)[:10], followed(30, "SUCCESS")[10:20], ended[20:]))
    plan.note_page()
    ids = plan.reads(NOON)
    assert (len(ids), len(set(ids))) == (13, 13)
    assert [int(each[2:]) // 10 for each in ids] == [0, 1, 2] * 4 + [0]
    assert not any(int(each[2:]) >= 20 for each in plan.reads(old)), "it is too early to read those again"


@pytest.mark.parametrize(
    ("known", "record", "expected"),
    [
        ("PENDING", shown(0), {"has_changed": True}),
        ("PENDING", shown(0, "PENDING"), {}),
        ("PENDING", shown(0, amount=101), None),  # perhaps with the fee: it is read by id
        ("PENDING", read(0, amount=101), {"differing": ["amount"]}),
        ("SUCCESS", read(0, amount=101), {}),
        ("FAILED", read(0, amount=101), {"differing": ["amount"]}),
    ],
)
def test_what_a_record_says(known: str, record: TransactionSummary, expected: dict[str, Any] | None) -> None:
    plan = Plan(Due(followed(1, known)))
    found = plan.find(record, None)
    if expected is None:
        assert (found, plan.reads(None)) == (None, ["t-0"])
        return
    assert isinstance(found, Finding)
    assert found.has_changed is expected.get("has_changed", False)
    assert found.differing == expected.get("differing", ())
    assert (found.evidence is not None) is (found.has_changed and not found.differing)
    assert plan.reads(None) == []


def test_why_it_failed_is_read_by_id_once() -> None:
    plan = Plan(Due(followed(2)))
    assert plan.find(shown(0, "CANCELLED"), None)
    assert plan.find(shown(1, "SUCCESS"), None)
    assert plan.reads(None) == ["t-0"]
    found = plan.find(read(0, "CANCELLED"), None)
    assert found is not None
    assert found.evidence is not None
    assert (found.has_changed, found.evidence.source) == (False, "sweep")
    assert plan.reads(None) == []
