"""One database, two accounts, the same references: nothing of one counts for the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from drivers import Driver, unique_key
from momopay import EntryKind, Journal, JournalState, OutcomeUnknownError, RequestValidationError
from momopay.sandbox import Sandbox
from postgresql import PostgresqlServer
from safety.kit import (
    PHONE,
    Between,
    callback_for,
    collect,
    entry_of,
    moved,
    order_of,
    parsed,
    pay,
    refund,
    sweep,
)


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.whole)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'journal.db'}"
    server: PostgresqlServer = request.getfixturevalue("postgresql")
    return server.new_schema()


@dataclass
class Branch:
    """One account of the service, with its namespace of the one database."""

    sandbox: Sandbox
    tenant: str
    journal: Journal
    between: Between
    sdk: Driver

    def __call__(self, call: Callable[[Any], Any]) -> Any:
        return self.sdk(call)

    def moved(self, kind: str) -> dict[str, int]:
        return dict(moved(self.sandbox, kind, self.tenant))

    def order_paid(self, amount: int = 100) -> str:
        """Collect O-1, and let it be paid; return the transaction's id."""
        prompt = self(collect(self.journal, amount=amount))
        self.sandbox.enter_pin(prompt.transaction_id)
        self.sandbox.advance(60)
        self(sweep(self.journal))
        identity: str = prompt.transaction_id
        return identity

    def unresolved(self, reference: str = "UNSURE") -> None:
        self.between.hold_next_post()
        with pytest.raises(OutcomeUnknownError):
            self(pay(self.journal, reference))


@pytest.fixture
def branches(drive: Callable[..., Driver], sandbox: Sandbox, url: str) -> Iterator[tuple[Branch, Branch]]:
    made: list[Branch] = []
    for name in ("nairobi", "mombasa"):
        key, between = unique_key(), Between()
        account = sandbox.account(key)
        account.rate_limit = None
        sdk = drive(api_key=key, base_url=sandbox.base_url, transport=between, deadline=3.0)
        made.append(Branch(sandbox, account.tenant_id, Journal(url, account=name), between, sdk))
    yield made[0], made[1]
    for each in made:
        each.journal.close()
        each.between.close()


def test_the_same_references_are_paid_by_both(branches: tuple[Branch, Branch]) -> None:
    for branch in branches:
        branch(pay(branch.journal))
        branch(pay(branch.journal))
        branch.order_paid()
    assert [each.moved("payout") for each in branches] == [{"PAY-1": 100}] * 2
    assert [each.moved("stk") for each in branches] == [{"O-1": 100}] * 2
    first, second = (entry_of(each.journal, "PAY-1") for each in branches)
    assert first.transaction_id != second.transaction_id
    assert [[each.reference for each in branch.journal.entries()] for branch in branches] == [["O-1", "PAY-1"]] * 2


def test_refunds_count_in_their_own_account(branches: tuple[Branch, Branch]) -> None:
    """Each may pay back what was paid to it, and no more: the other's refunds neither use up nor raise the cap."""
    here, there = branches
    here.order_paid()
    there.order_paid(amount=300)
    there(refund(there.journal, amount=250, reference="O-1-R1"))
    here(refund(here.journal, amount=60, reference="O-1-R1"))
    with pytest.raises(RequestValidationError):
        here(refund(here.journal, amount=41, reference="O-1-R2"))
    here(refund(here.journal, amount=40, reference="O-1-R2"))
    there(refund(there.journal, amount=50, reference="O-1-R2"))
    for branch in branches:
        with pytest.raises(RequestValidationError):
            branch(refund(branch.journal, amount=10, reference="O-1-R3"))
    assert here.moved("payout") == {"O-1-R1": 60, "O-1-R2": 40}
    assert there.moved("payout") == {"O-1-R1": 250, "O-1-R2": 50}


def test_what_was_paid_to_one_cannot_be_refunded_by_the_other(branches: tuple[Branch, Branch]) -> None:
    here, there = branches
    here.order_paid()
    there(collect(there.journal))  # open
    with pytest.raises(RequestValidationError):
        there(refund(there.journal))
    assert there.moved("payout") == {}


def test_what_is_paid_twice_or_unresolved_is_reported_of_its_own_account(branches: tuple[Branch, Branch]) -> None:
    here, there = branches
    for branch in branches:
        branch.order_paid()
        branch(pay(branch.journal))
    here.unresolved()
    second = here(collect(here.journal, "O-2"))
    here.sandbox.advance(120)
    third = here(collect(here.journal, "O-2", abandon_after=60))
    for prompt in (second, third):
        here.sandbox.enter_pin(prompt.transaction_id)
    here.sandbox.advance(60)
    here(sweep(here.journal))
    checks = [each.journal.check() for each in branches]
    assert [each.paid_twice for each in checks] == [("O-2",), ()]
    assert [each.unresolved for each in checks] == [("UNSURE",), ()]
    assert [each.tenant_id for each in checks] == [here.tenant, there.tenant]
    assert [sum(each.counts.values()) for each in checks] == [4, 2]
    assert [len(each.journal.unresolved()) for each in branches] == [1, 0]


def test_a_sweep_reads_and_settles_its_own_account(branches: tuple[Branch, Branch]) -> None:
    here, there = branches
    for branch in branches:
        branch(pay(branch.journal))
        branch(collect(branch.journal))
        branch.unresolved()
        branch.between.requests.clear()
    opened = [{each.transaction_id for each in branch.journal.open()} for branch in branches]
    assert [len(each) for each in opened] == [2, 2]
    assert not opened[0] & opened[1]
    here.sandbox.advance(60)
    handled: list[str] = []

    def handle(transaction: Any) -> None:
        handled.append(transaction.transaction_id)

    here(sweep(here.journal, handle))
    assert there.between.requests == []
    assert not [path for path in here.between.requests if path.rpartition("/")[2] in opened[1]]
    assert handled == [entry_of(here.journal, "PAY-1").transaction_id]
    assert [entry_of(each.journal, "PAY-1").status for each in branches] == ["SUCCESS", "PENDING"]
    there(sweep(there.journal, handle))
    assert handled == [entry_of(each.journal, "PAY-1").transaction_id for each in branches]


def test_receipts_and_callbacks_belong_to_one_account(branches: tuple[Branch, Branch]) -> None:
    """The same receipt, and a callback that each account handles for itself."""
    ids = [branch(pay(branch.journal)).transaction_id for branch in branches]
    here, there = branches
    body = callback_for(ids[0], "PAY-1", momo_receipt="RECEIPT-1")
    here.journal.record(parsed(body))
    assert there.journal.by_receipt("RECEIPT-1") is None
    found = here.journal.by_receipt("RECEIPT-1")
    assert found is not None
    assert found.transaction_id == ids[0]
    # An id of the other account is no end of this one's payout, though all else is the same.
    there.journal.record(parsed(callback_for(ids[1], "PAY-1", momo_receipt="RECEIPT-1")))
    assert [entry_of(each.journal, "PAY-1").transaction_id for each in branches] == ids
    only_there = there(pay(there.journal, "ONLY-THERE")).transaction_id
    assert here.journal.by_transaction(parsed(callback_for(only_there, "ONLY-THERE"))) is None


def test_each_account_handles_a_callback_once_for_itself(branches: tuple[Branch, Branch]) -> None:
    """A handler that fails in one account makes nothing come again in the other."""
    here, there = branches
    callback = parsed(callback_for("an-id-of-both", "PAY-1"))
    with there.journal.handling(callback) as first:
        assert first
    handling = here.journal.handling(callback)
    assert handling.__enter__()
    with suppress(ZeroDivisionError):
        handling.__exit__(ZeroDivisionError, ZeroDivisionError(), None)
    for journal, expected in ((there.journal, False), (here.journal, True), (here.journal, False)):
        with journal.handling(callback) as first:
            assert first is expected
    assert [each.journal.first_seen(callback) for each in branches] == [False, False]


def test_anonymising_one_account_leaves_the_other(branches: tuple[Branch, Branch]) -> None:
    here, there = branches
    for branch in branches:
        branch(pay(branch.journal))
    here.sandbox.advance(60)
    for branch in branches:
        branch(sweep(branch.journal))
    assert here.journal.anonymise(before=datetime.now(UTC) + timedelta(days=1)) == 1
    assert entry_of(here.journal, "PAY-1").phone == ""
    assert entry_of(there.journal, "PAY-1").phone == PHONE


def test_what_the_other_account_paid_resolves_no_doubt(branches: tuple[Branch, Branch]) -> None:
    here, there = branches
    there.order_paid()
    there(pay(there.journal, "UNSURE"))
    here.unresolved()
    assert entry_of(there.journal, "UNSURE").state is JournalState.ACCEPTED
    assert entry_of(here.journal, "UNSURE").state is JournalState.UNKNOWN
    assert here.journal.get("O-1", kind=EntryKind.COLLECTION) is None
    assert order_of(there.journal).status == "SUCCESS"
    here(sweep(here.journal))
    assert entry_of(here.journal, "UNSURE").state is JournalState.UNKNOWN
