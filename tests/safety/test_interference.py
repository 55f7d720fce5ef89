"""Something else happens just before the k-th statement of a call, for every k that there is."""

import os
import sqlite3
from collections import Counter
from collections.abc import Callable
from contextlib import closing, suppress
from functools import partial
from pathlib import Path

import pytest
from sqlalchemy.exc import OperationalError

from drivers import Drive, Driver, unique_key
from durable.kit import Call, collect, pay, sweep
from forked import in_a_fork
from journal.database_kit import another_process, before_statement
from momopay import Client, Journal, MomoPayError, OutcomeUnknownError, TransactionStatus
from momopay.sandbox import Account, Sandbox
from safety.kit import HOUR, DatabaseClock, moved

MOST = 120
"""More statements than any call has."""
Make = Callable[[Journal], Call]
PATHS: dict[Make, str] = {pay: "/b2c/payouts", collect: "/payments/stk"}


class Moment:
    """An account and a journal of their own for one k."""

    def __init__(self, sandbox: Sandbox, drive: Drive, folder: Path, number: int) -> None:
        self.sandbox = sandbox
        self.key = unique_key()
        self.account: Account = sandbox.account(self.key)
        self.account.rate_limit = None
        self.path = folder / f"{number:03}.db"
        self.url = f"sqlite:///{self.path}"
        self.journal = Journal(self.url)
        self.journal.get("-")  # what happens while the tables are made is another matter
        self.sdk = drive(api_key=self.key, base_url=sandbox.base_url, deadline=3.0)

    def can_write(self) -> bool:
        """Return whether another process could write now; else it would come before or after the whole transaction."""
        other = sqlite3.connect(self.path, timeout=0.0, isolation_level=None)
        with closing(other), suppress(sqlite3.OperationalError):
            other.execute("BEGIN IMMEDIATE")
            return True
        return False

    def elsewhere(self, make: Make) -> None:
        """Make a call as another process does, unless this moment is within a transaction."""
        if not self.can_write():
            return
        with (
            another_process(self.url) as journal,
            Client(self.key, base_url=self.sandbox.base_url, budget=None, deadline=0.5) as client,
            suppress(MomoPayError),
        ):
            make(journal)(client)

    def error_of(self, call: Call) -> MomoPayError | None:
        try:
            self.sdk(call)
        except MomoPayError as error:
            return error
        return None


@pytest.fixture
def moment(sandbox: Sandbox, drive: Drive, tmp_path: Path) -> Callable[[int], Moment]:
    return partial(Moment, sandbox, drive, tmp_path)


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


@pytest.mark.parametrize(
    ("client_kind", "make"), [("blocking", pay), pytest.param("async", collect, marks=pytest.mark.whole)]
)
def test_the_same_payment_elsewhere_is_sent_once(moment: Callable[[int], Moment], make: Make) -> None:
    """Another process pays, or collects, the same reference before the k-th statement: one is made, and it is known."""

    def attempt(here: Moment, number: int) -> bool:
        with before_statement(number, lambda: here.elsewhere(make)) as struck:
            error = here.error_of(make(here.journal))
        assert error is None or isinstance(error, OutcomeUnknownError)
        (made,) = here.sdk(lambda client: client.transactions.list()).items
        (entry,) = here.journal.entries()
        assert entry.transaction_ids == (made.transaction_id,), f"before statement {number}"
        return bool(struck)

    at_each_moment(moment, attempt)


@pytest.mark.parametrize(
    ("make", "sent"),
    [(pay, "never"), pytest.param(pay, "meanwhile", marks=pytest.mark.whole), (collect, "before")],
)
def test_no_error_says_that_nothing_was_sent_when_it_was(
    moment: Callable[[int], Moment], make: Make, sent: str
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
            raise OperationalError("SELECT 1", (), sqlite3.OperationalError("disk I/O error"))

        with before_statement(number, send_and_fail, stays=True) as struck:
            error = here.error_of(make(here.journal))
        made = [each.path for each in here.sandbox.requests[before:]].count(PATHS[make])
        requests[made] += 1
        assert made <= 1, f"statement {number}"
        if error is not None:
            said[error.may_have_executed] += 1
            assert error.may_have_executed or not made, f"statement {number}: {error!r}"
        return bool(struck)

    at_each_moment(moment, attempt)
    assert said[True] > 0
    assert requests[1] >= 2
    assert (requests[0] > 0) is (sent != "before")


@pytest.mark.whole
@pytest.mark.parametrize(
    ("client_kind", "scenario"), [("blocking", "pay"), ("async", "collect"), ("blocking", "collect again")]
)
def test_a_crash_between_two_statements_loses_and_doubles_nothing(
    moment: Callable[[int], Moment], sandbox: Sandbox, client_kind: str, scenario: str, database_clock: DatabaseClock
) -> None:
    """The process dies before the k-th statement; hours later another one goes on.

    "collect again": an earlier prompt was cancelled.
    """
    make = pay if scenario == "pay" else collect
    crashed: list[Moment] = []

    def call_and_die(here: Moment, number: int) -> None:
        sdk = Driver(client_kind, api_key=here.key, base_url=sandbox.base_url, deadline=3.0)
        with Journal(here.url) as journal, before_statement(number, lambda: os._exit(9)), suppress(MomoPayError):
            sdk(make(journal))
        os._exit(0)

    for number in range(1, MOST):
        here = moment(number)
        if scenario == "collect again":
            sandbox.cancel(here.sdk(collect(here.journal)).transaction_id)
        here.journal.close()
        code = in_a_fork(partial(call_and_die, here, number))
        if code == 0:
            break
        assert code == 9, f"the child of statement {number} ended with {code}"
        crashed.append(here)
    tenants = {here.account.tenant_id for here in crashed}
    sent = sum(each.tenant_id in tenants and each.path == PATHS[make] for each in sandbox.requests)
    if scenario != "collect again":  # the control: they died before and after their request
        assert 0 < sent < len(crashed) < MOST - 1
    sandbox.advance(HOUR)
    database_clock.ahead += HOUR
    for number, here in enumerate(crashed, start=1):
        with Journal(here.url) as journal:
            for _ in range(2):
                here.sdk(sweep(journal))
                with suppress(OutcomeUnknownError):
                    here.sdk(make(journal))
            check_after_crash(here, journal, scenario, f"{scenario}, statement {number}")


def check_after_crash(here: Moment, journal: Journal, scenario: str, name: str) -> None:
    made = [each.transaction_id for each in here.sdk(lambda client: client.transactions.list(limit=100)).items]
    known = [identity for entry in journal.entries() for identity in entry.transaction_ids]
    if scenario == "collect again":
        made.pop()  # the cancelled prompt is the oldest
    assert len(made) <= 1, f"{name}: two payments"
    # A payout that died before it sent anything is UNKNOWN, for a person to decide.
    assert set(known) >= set(made), f"{name}: the journal has lost a payment"
    for identity in made if scenario != "pay" else ():  # what the customer pays is seen
        here.sandbox.enter_pin(identity)
        here.sandbox.advance(60)
        here.sdk(sweep(journal))
        paid = [each.reference for each in journal.entries(status=TransactionStatus.SUCCESS)]
        assert (paid, moved(here.sandbox, "stk", here.account.tenant_id)) == (["r"], {"r": 10}), name
