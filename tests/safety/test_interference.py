"""Something else happens just before the k-th statement of a call, for every k that there is."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy.exc

from drivers import Driver, unique_key
from momopay import Client, EntryKind, Journal, MomoPayError, OutcomeUnknownError
from momopay.sandbox import Account, Sandbox
from safety.crasher import copy_tables, key_of, url_of
from safety.kit import HOUR, TESTS, Call, DatabaseClock, collect, moved, order_of, pay, refund, sweep
from safety.statements import Statements, each_moment

MOST = 120
"""More statements than any call has."""


class Moment:
    """An account and a journal of their own for one k."""

    def __init__(self, sandbox: Sandbox, drive: Callable[..., Driver], folder: Path, number: int) -> None:
        self.sandbox = sandbox
        self.key = unique_key()
        self.account: Account = sandbox.account(self.key)
        self.account.rate_limit = None
        self.path = folder / f"{number:03}.db"
        copy_tables(self.path)
        self.journal = Journal(f"sqlite:///{self.path}")
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

    def elsewhere(self, *calls: Callable[[Journal], Callable[[Any], Any]]) -> None:
        """Make calls as another process does, unless this moment is within a transaction."""
        if not self.can_write():
            return
        with (
            Journal(f"sqlite:///{self.path}") as journal,
            Client(self.key, base_url=self.sandbox.base_url, budget=None, deadline=3.0) as client,
        ):
            for call in calls:
                with suppress(MomoPayError):
                    call(journal)(client)

    def moved(self, kind: str) -> Counter[str]:
        return moved(self.sandbox, kind, self.account.tenant_id)


@pytest.fixture
def moment(sandbox: Sandbox, drive: Callable[..., Driver], tmp_path: Path) -> Callable[[int], Moment]:
    made: list[Moment] = []

    def make(number: int) -> Moment:
        made.append(Moment(sandbox, drive, tmp_path, number))
        return made[-1]

    return make


@pytest.mark.parametrize("amounts", [(100, 100), (60, 60), (50, 50)])
def test_two_refunds_never_exceed_what_was_paid(
    moment: Callable[[int], Moment], amounts: tuple[int, int], capsys: pytest.CaptureFixture[str]
) -> None:
    """Another process refunds before the k-th statement. The control: 50 and 50 both go out, each order of the two."""
    sums: Counter[int] = Counter()
    winners: Counter[str] = Counter()

    def attempt(number: int) -> bool:
        here = moment(number)
        here.pay_order()
        strike = Statements(
            number,
            lambda: here.elsewhere(lambda journal: refund(journal, amount=amounts[1], reference="R-OTHER")),
        )
        with strike.watched(), suppress(MomoPayError):
            here.sdk(refund(here.journal, amount=amounts[0], reference="R-OWN"))
        out = here.moved("payout")
        sums[out.total()] += strike.has_struck
        if strike.has_struck and len(out) == 1:
            winners.update(out.keys())
        here.journal.close()
        return strike.has_struck

    moments = each_moment(MOST, attempt)
    sys.stdout.write(f"{moments} moments, {dict(sums)}, {dict(winners)}\n")
    assert moments >= 3
    if amounts == (50, 50):
        assert set(sums) <= {50, 100}
        assert sums[100] > 0, "no moment let both through: nothing came between"
    else:
        assert set(sums) == {amounts[0]}, "more was refunded than was paid, or nothing"
        assert set(winners) == {"R-OWN", "R-OTHER"}, "one of the two never came first: nothing was put to the test"


def test_the_same_payout_elsewhere_is_sent_once(moment: Callable[[int], Moment]) -> None:
    """Another process pays the same reference before the k-th statement."""

    def attempt(number: int) -> bool:
        here = moment(number)
        strike = Statements(number, lambda: here.elsewhere(pay))
        with strike.watched(), suppress(OutcomeUnknownError):
            here.sdk(pay(here.journal))
        assert here.moved("payout") == {"PAY-1": 100}, f"before statement {number}"
        here.journal.close()
        return strike.has_struck

    assert each_moment(MOST, attempt) >= 3


def test_a_prompt_elsewhere_is_the_only_one(moment: Callable[[int], Moment]) -> None:
    """Another process collects the same order before the k-th statement: one prompt is open, and it is known."""

    def attempt(number: int) -> bool:
        here = moment(number)
        strike = Statements(number, lambda: here.elsewhere(collect))
        with strike.watched(), suppress(OutcomeUnknownError):
            here.sdk(collect(here.journal))
        open_prompts = here.sdk(lambda client: client.transactions.list(type="STK")).items
        assert len(open_prompts) == 1, f"before statement {number}"
        assert order_of(here.journal).transaction_ids == (open_prompts[0].transaction_id,)
        here.journal.close()
        return strike.has_struck

    assert each_moment(MOST, attempt) >= 3


class _Away(sqlite3.OperationalError):
    """The database is away."""


def _fail() -> None:
    statement, parameters = "SELECT 1", ()
    raise sqlalchemy.exc.OperationalError(statement, parameters, _Away("disk I/O error"))


def error_of(strike: Statements, here: Moment, call: Call) -> MomoPayError | None:
    """Make a call while its statements are struck; return what it raised."""
    try:
        with strike.watched():
            here.sdk(call)
    except MomoPayError as error:
        return error
    return None


@pytest.mark.parametrize("name", ["payout", "order"])
def test_no_error_says_that_nothing_was_sent_when_it_was(moment: Callable[[int], Moment], name: str) -> None:
    """The database fails at the k-th statement and stays away, for a new reference."""
    make, path = (pay, "/b2c/payouts") if name == "payout" else (collect, "/payments/stk")
    said: Counter[bool] = Counter()

    def attempt(number: int) -> bool:
        here = moment(number)
        strike = Statements(number, _fail, stays=True)
        before = len(here.sandbox.requests)
        error = error_of(strike, here, make(here.journal))
        if error is not None:
            said[error.may_have_executed] += 1
            sent = [each.path for each in here.sandbox.requests[before:]].count(path)
            assert error.may_have_executed or not sent, f"statement {number}: {error!r}"
        here.journal.close()
        return strike.has_struck

    moments = each_moment(MOST, attempt)
    sys.stdout.write(f"{moments} moments, may_have_executed: {dict(said)}\n")
    assert moments >= 3
    assert said[True] > 0


@pytest.mark.parametrize("name", ["payout", "order"])
def test_what_another_process_sent_meanwhile_may_have_executed(moment: Callable[[int], Moment], name: str) -> None:
    """Another process sends before the k-th statement, and there the database fails and stays away."""
    make, path = (pay, "/b2c/payouts") if name == "payout" else (collect, "/payments/stk")
    by_others = 0

    def attempt(number: int) -> bool:
        nonlocal by_others
        here = moment(number)
        others: list[Callable[[Journal], Call]] = [make]

        def send_and_fail() -> None:
            if others:
                here.elsewhere(others.pop())
            _fail()

        strike = Statements(number, send_and_fail, stays=True)
        before = len(here.sandbox.requests)
        error = error_of(strike, here, make(here.journal))
        sent = [each.path for each in here.sandbox.requests[before:]].count(path)
        by_others += sent
        assert sent <= 1, f"statement {number}"
        assert error is None or error.may_have_executed or not sent, f"statement {number}: {error!r}"
        here.journal.close()
        return strike.has_struck

    assert each_moment(MOST, attempt) >= 3
    assert by_others >= 2


@pytest.mark.parametrize("name", ["payout", "order"])
def test_what_was_sent_before_may_have_executed_whatever_fails(moment: Callable[[int], Moment], name: str) -> None:
    """The same call was accepted an hour ago; the database fails at the k-th statement now, and stays away."""
    make = pay if name == "payout" else collect
    raised: list[bool] = []

    def attempt(number: int) -> bool:
        here = moment(number)
        here.sdk(make(here.journal))
        strike = Statements(number, _fail, stays=True)
        error = error_of(strike, here, make(here.journal))
        if error is not None:
            raised.append(error.may_have_executed)
            assert error.may_have_executed, f"statement {number}: {error!r}"
        here.journal.close()
        return strike.has_struck

    each_moment(MOST, attempt)
    assert raised


@pytest.mark.parametrize(
    ("client_kind", "scenario"),
    [
        ("blocking", "pay"),
        ("async", "pay"),
        ("blocking", "collect"),
        ("blocking", "another"),
        ("blocking", "another's id"),
        ("async", "nobody's id"),
        *(pytest.param("async", name, marks=pytest.mark.whole) for name in ("collect", "another", "another's id")),
    ],
)
def test_a_crash_between_two_statements_loses_and_doubles_nothing(
    sandbox: Sandbox,
    drive: Callable[..., Driver],
    client_kind: str,
    tmp_path: Path,
    scenario: str,
    database_clock: DatabaseClock,
) -> None:
    """The process dies before the k-th statement; hours later another one goes on.

    "another": an earlier prompt was cancelled. "another's id": the answer names the transaction of another order.
    "nobody's id": it names one that is in no journal, and the call that reads it is cut short.
    """
    prefix = unique_key()
    arguments = [sys.executable, "-m", "safety.crasher", client_kind, scenario, sandbox.base_url, prefix, str(tmp_path)]
    done = subprocess.run(arguments, cwd=TESTS, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    sandbox.clear_planned()
    moments = int(done.stdout)
    path = "/b2c/payouts" if scenario == "pay" else "/payments/stk"
    tenants = {sandbox.account(key_of(prefix, number)).tenant_id for number in range(1, moments + 1)}
    sent = sum(each.tenant_id in tenants and each.path == path for each in sandbox.requests)
    sys.stdout.write(f"{scenario}: {moments} moments, {sent} requests before the crashes\n")
    if scenario in {"pay", "collect"}:  # the control: they died before and after their request
        assert 0 < sent < moments
    sandbox.advance(HOUR)
    database_clock.ahead += HOUR
    for number in range(1, moments + 1):
        moment = f"{scenario}, statement {number}"
        key = key_of(prefix, number)
        tenant = sandbox.account(key).tenant_id
        sdk = drive(api_key=key, base_url=sandbox.base_url, deadline=3.0)
        with Journal(url_of(tmp_path, number)) as journal:
            call = pay(journal) if scenario == "pay" else collect(journal)
            for _ in range(2):
                sdk(sweep(journal))
                with suppress(OutcomeUnknownError):
                    sdk(call)
            made = [each.transaction_id for each in sdk(lambda client: client.transactions.list(limit=100)).items]
            if scenario == "pay":
                # One that died before it sent anything is UNKNOWN, for a person to decide: never two.
                known = journal.get("PAY-1", kind=EntryKind.PAYOUT)
                assert len(made) <= 1, moment
                assert not made or (known is not None and known.transaction_id == made[0]), moment
                continue
            first = made.pop() if scenario != "collect" else None
            entry = journal.get("O-1", kind=EntryKind.COLLECTION)
            ids = entry.transaction_ids if entry is not None else ()
            assert len(made) <= 1, f"{moment}: two prompts"
            assert set(ids) >= set(made), f"{moment}: the journal has lost a prompt"
            assert scenario == "another" or first not in ids, moment
            assert scenario != "another's id" or order_of(journal, "O-0").transaction_ids == (first,), moment
            for identity in made:  # what the customer pays is seen
                sandbox.enter_pin(identity)
                sandbox.advance(60)
                sdk(sweep(journal))
                assert order_of(journal).status == "SUCCESS", moment
                assert moved(sandbox, "stk", tenant) == {"O-1": 100}, moment
