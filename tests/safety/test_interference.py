"""Something else happens just before the k-th statement of a call, for every k that there is."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy.exc

from drivers import Drive, Driver, unique_key
from forked import forks, in_a_fork
from momopay import Client, EntryKind, Journal, MomoPayError, OutcomeUnknownError, TransactionStatus
from momopay.sandbox import Account, Fault, Sandbox
from safety.kit import BY_HAND, HOUR, Call, DatabaseClock, collect, moved, pay, refund, sweep
from safety.statements import Statements

MOST = 120
"""More statements than any call has."""
Make = Callable[[Journal], Call]


def copy_tables(path: Path) -> None:
    """Let a journal begin as a copy of an empty one: what happens while the tables are made is another matter."""
    empty = path.with_name("empty.db")
    if not empty.exists():
        with Journal(f"sqlite:///{empty}") as journal:
            journal.get("-", kind=EntryKind.PAYOUT)
    shutil.copyfile(empty, path)


class Moment:
    """An account and a journal of their own for one k."""

    def __init__(self, sandbox: Sandbox, drive: Drive, folder: Path, number: int) -> None:
        self.sandbox = sandbox
        self.key = unique_key()
        self.account: Account = sandbox.account(self.key)
        self.account.rate_limit = None
        self.path = folder / f"{number:03}.db"
        self.url = f"sqlite:///{self.path}"
        copy_tables(self.path)
        self.journal = Journal(self.url)
        self.journal.get("-", kind=EntryKind.PAYOUT)  # opens it: nobody else can, at the moment when this one does
        self.sdk = drive(api_key=self.key, base_url=sandbox.base_url, deadline=3.0)

    def pay_order(self) -> Any:
        """Collect O-1, and let it be paid."""
        prompt = self.sdk(collect(self.journal))
        self.sandbox.enter_pin(prompt.transaction_id)
        self.sandbox.advance(60)
        self.sdk(sweep(self.journal))
        return prompt

    def can_write(self) -> bool:
        """Return whether another process could write now; else it would come before or after the whole transaction."""
        other = sqlite3.connect(self.path, timeout=0.0, isolation_level=None)
        try:
            other.execute("BEGIN IMMEDIATE")
            other.execute("ROLLBACK")
        except sqlite3.OperationalError:
            return False
        finally:
            other.close()
        return True

    def elsewhere(self, *calls: Make) -> None:
        """Make calls as another process does, unless this moment is within a transaction."""
        if not self.can_write():
            return
        with (
            Journal(self.url) as journal,
            Client(self.key, base_url=self.sandbox.base_url, budget=None, deadline=3.0) as client,
        ):
            for call in calls:
                with suppress(MomoPayError):
                    call(journal)(client)

    def struck(self, strike: Statements, call: Call) -> MomoPayError | None:
        """Make a call while its statements are struck; return what it raised."""
        try:
            with strike.watched():
                self.sdk(call)
        except MomoPayError as error:
            return error
        return None

    def moved(self, kind: str) -> Counter[str]:
        return moved(self.sandbox, kind, self.account.tenant_id)


@pytest.fixture
def moment(sandbox: Sandbox, drive: Drive, tmp_path: Path) -> Callable[[int], Moment]:
    made: list[Moment] = []

    def make(number: int) -> Moment:
        made.append(Moment(sandbox, drive, tmp_path, number))
        return made[-1]

    return make


def at_each_moment(moment: Callable[[int], Moment], attempt: Callable[[Moment, int], bool]) -> None:
    """Attempt a call with k = 1, 2, ..., each with a journal of its own, until it has no k-th statement."""
    for number in range(1, MOST):
        here = moment(number)
        has_struck = attempt(here, number)
        here.journal.close()
        if not has_struck:
            assert number > 1, "nothing was struck"
            return
    raise AssertionError(f"a call of more than {MOST} statements")


@pytest.mark.parametrize("amounts", [pytest.param((60, 60), marks=pytest.mark.whole), (50, 50)])
def test_two_refunds_never_exceed_what_was_paid(moment: Callable[[int], Moment], amounts: tuple[int, int]) -> None:
    """Another process refunds before the k-th statement. The control: 50 and 50 both go out, each order of the two."""
    sums: Counter[int] = Counter()
    winners: Counter[str] = Counter()

    def attempt(here: Moment, number: int) -> bool:
        here.pay_order()
        other = partial(refund, amount=amounts[1], reference="R-OTHER")
        strike = Statements(number, lambda: here.elsewhere(other))
        here.struck(strike, refund(here.journal, amount=amounts[0], reference="R-OWN"))
        out = here.moved("payout")
        sums[out.total()] += strike.has_struck
        if strike.has_struck and len(out) == 1:
            winners.update(out.keys())
        return strike.has_struck

    at_each_moment(moment, attempt)
    if amounts == (50, 50):
        assert set(sums) <= {50, 100}
        assert sums[100] > 0, "no moment let both through: nothing came between"
    else:
        assert set(sums) == {amounts[0]}, "more was refunded than was paid, or nothing"
        assert set(winners) == {"R-OWN", "R-OTHER"}, "one of the two never came first: nothing was put to the test"


both_kinds = pytest.mark.parametrize(
    ("make", "path"), [(pay, "/b2c/payouts"), (collect, "/payments/stk")], ids=["payout", "order"]
)


@pytest.mark.parametrize(
    ("client_kind", "make"),
    [
        ("async", collect),
        *(
            pytest.param(*each, marks=pytest.mark.whole)
            for each in (("blocking", collect), ("async", pay), ("blocking", pay))
        ),
    ],
)
def test_the_same_payment_elsewhere_is_sent_once(moment: Callable[[int], Moment], make: Make) -> None:
    """Another process pays, or collects, the same reference before the k-th statement: one is made, and it is known."""

    def attempt(here: Moment, number: int) -> bool:
        strike = Statements(number, lambda: here.elsewhere(make))
        error = here.struck(strike, make(here.journal))
        assert error is None or isinstance(error, OutcomeUnknownError)
        (made,) = here.sdk(lambda client: client.transactions.list()).items
        (entry,) = here.journal.entries()
        assert entry.transaction_ids == (made.transaction_id,), f"before statement {number}"
        return strike.has_struck

    at_each_moment(moment, attempt)


class _Away(sqlite3.OperationalError):
    """The database is away."""


def _fail() -> None:
    statement, parameters = "SELECT 1", ()
    raise sqlalchemy.exc.OperationalError(statement, parameters, _Away("disk I/O error"))


@both_kinds
@pytest.mark.parametrize("sent", ["never", pytest.param("meanwhile", marks=pytest.mark.whole), "before"])
def test_no_error_says_that_nothing_was_sent_when_it_was(
    moment: Callable[[int], Moment], make: Make, path: str, sent: str
) -> None:
    """The database fails at the k-th statement and stays away.

    The reference is new, or another process sends it just then, or the same call was accepted before.
    """
    said: Counter[bool] = Counter()
    requests: Counter[int] = Counter()

    def attempt(here: Moment, number: int) -> bool:
        before = len(here.sandbox.requests)
        others = [make] if sent == "meanwhile" else []
        if sent == "before":
            here.sdk(make(here.journal))

        def send_and_fail() -> None:
            if others:
                here.elsewhere(others.pop())
            _fail()

        strike = Statements(number, send_and_fail, stays=True)
        error = here.struck(strike, make(here.journal))
        made = [each.path for each in here.sandbox.requests[before:]].count(path)
        requests[made] += 1
        assert made <= 1, f"statement {number}"
        if error is not None:
            said[error.may_have_executed] += 1
            assert error.may_have_executed or not made, f"statement {number}: {error!r}"
        return strike.has_struck

    at_each_moment(moment, attempt)
    assert said[True] > 0
    assert requests[1] >= 2
    assert (requests[0] > 0) is (sent != "before")


def prompts_of(journal: Journal, reference: str) -> tuple[str, ...]:
    entry = journal.get(reference, kind=EntryKind.COLLECTION)
    return () if entry is None else entry.transaction_ids


def prepare(here: Moment, scenario: str) -> None:
    here.sandbox.clear_planned()  # a call that died before it sent has left its fault
    if scenario == "another":
        here.sandbox.cancel(here.sdk(collect(here.journal)).transaction_id)
    if scenario == "another's id":
        here.sdk(collect(here.journal, "O-0"))
    if scenario == "nobody's id":
        here.sdk(lambda client: client.stk.initiate(amount=100, phone=BY_HAND, account_reference="O-0"))
    if scenario.endswith("id"):
        here.sandbox.fail_next("POST", "/payments/stk", Fault.other_transaction)
    if scenario == "nobody's id":
        here.sdk(collect(here.journal))  # it is believed until it is read
    here.journal.close()


@pytest.mark.whole
@forks
@pytest.mark.parametrize("client_kind", ["blocking", "async"])
@pytest.mark.parametrize("scenario", ["pay", "collect", "another", "another's id", "nobody's id"])
def test_a_crash_between_two_statements_loses_and_doubles_nothing(
    moment: Callable[[int], Moment], sandbox: Sandbox, client_kind: str, scenario: str, database_clock: DatabaseClock
) -> None:
    """The process dies before the k-th statement; hours later another one goes on.

    "another": an earlier prompt was cancelled. "another's id": the answer names the transaction of another order.
    "nobody's id": it names one that is in no journal, and the call that reads it is cut short.
    """
    make = pay if scenario == "pay" else collect
    path = "/b2c/payouts" if scenario == "pay" else "/payments/stk"
    crashed: list[Moment] = []

    def call_and_die(here: Moment, number: int) -> None:
        sdk = Driver(client_kind, api_key=here.key, base_url=sandbox.base_url, deadline=3.0)
        with Journal(here.url) as journal, Statements(number, lambda: os._exit(9)).watched(), suppress(MomoPayError):
            sdk(make(journal))
        os._exit(0)

    for number in range(1, MOST):
        here = moment(number)
        prepare(here, scenario)
        code = in_a_fork(partial(call_and_die, here, number))
        if code == 0:
            break
        assert code == 9, f"the child of statement {number} ended with {code}"
        crashed.append(here)
    sandbox.clear_planned()
    tenants = {here.account.tenant_id for here in crashed}
    sent = sum(each.tenant_id in tenants and each.path == path for each in sandbox.requests)
    if scenario in {"pay", "collect"}:  # the control: they died before and after their request
        assert 0 < sent < len(crashed) < MOST - 1
    sandbox.advance(HOUR)
    database_clock.ahead += HOUR
    for number, here in enumerate(crashed, start=1):
        moment_of = f"{scenario}, statement {number}"
        with Journal(here.url) as journal:
            for _ in range(2):
                here.sdk(sweep(journal))
                with suppress(OutcomeUnknownError):
                    here.sdk(make(journal))
            listed = here.sdk(lambda client: client.transactions.list(limit=100)).items
            made = [each.transaction_id for each in listed]
            if scenario == "pay":
                # One that died before it sent anything is UNKNOWN, for a person to decide: never two.
                known = journal.get("PAY-1", kind=EntryKind.PAYOUT)
                assert len(made) <= 1, moment_of
                assert not made or (known is not None and known.transaction_id == made[0]), moment_of
                continue
            first = made.pop() if scenario != "collect" else None
            ids = prompts_of(journal, "O-1")
            assert len(made) <= 1, f"{moment_of}: two prompts"
            assert set(ids) >= set(made), f"{moment_of}: the journal has lost a prompt"
            assert scenario == "another" or first not in ids, moment_of
            assert scenario != "another's id" or prompts_of(journal, "O-0") == (first,), moment_of
            for identity in made:  # what the customer pays is seen
                sandbox.enter_pin(identity)
                sandbox.advance(60)
                here.sdk(sweep(journal))
                assert [each.reference for each in journal.entries(status=TransactionStatus.SUCCESS)] == ["O-1"], (
                    moment_of
                )
                assert here.moved("stk") == {"O-1": 100}, moment_of
