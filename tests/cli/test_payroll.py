"""Which rows are still to be paid, and when a run pauses and stops."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from types import FrameType

import pytest

from cli.kit import PAY, PayrollShell, signalling
from momopay import Client, Journal, PollSchedule, RateBudget, WaitTimeoutError, normalise_phone
from momopay.cli.exit_codes import CommandError, ExitCode
from momopay.cli.payroll import PayrollRun, RowOutcome, check_account, make_plan, read_wallet, reconcile
from momopay.cli.payroll_file import Row
from momopay.errors import APIError, MomoPayError
from momopay.sandbox import Account, Fault, Outcome, Sandbox, phone_for

ROWS = [Row(line, f"SAL-{line - 2}", f"2547{line:08}", Decimal(1000), None) for line in range(2, 12)]


@pytest.fixture
def journal(payroll: PayrollShell) -> Iterator[Journal]:
    with Journal(f"sqlite:///{payroll.database}") as journal:
        yield journal


def pay(client: Client, journal: Journal, rows: list[Row]) -> list[RowOutcome]:
    return list(PayrollRun(client, journal).pay(rows))


def test_the_plan_of_a_new_journal_and_of_none() -> None:
    assert make_plan(ROWS, None).to_pay == ROWS


def test_the_plan_after_a_run(client: Client, journal: Journal, sandbox: Sandbox, account: Account) -> None:
    sandbox.fail_next("POST", PAY, Fault.error_before_commit)
    pay(client, journal, ROWS[:2])
    account.kyc_approved = False
    pay(client, journal, ROWS[2:3])
    plan = make_plan(ROWS[:4], journal)
    assert [each.row for each in plan.in_doubt] == ROWS[:1]
    assert [each.row for each in plan.accepted] == ROWS[1:2]
    assert plan.to_pay == ROWS[2:4]


@pytest.mark.parametrize(
    "other",
    [replace(ROWS[0], amount=Decimal("1000.01")), replace(ROWS[0], phone="254799999999")],
    ids=["amount", "phone"],
)
def test_a_reference_with_another_amount_or_phone_is_refused(client: Client, journal: Journal, other: Row) -> None:
    pay(client, journal, ROWS[:1])
    with pytest.raises(CommandError, match="the references on lines 2 are in the journal with another amount or phone"):
        make_plan([other, *ROWS[1:]], journal)


def test_the_journal_of_another_account_is_refused(client: Client, journal: Journal, sandbox: Sandbox) -> None:
    """Or a rehearsal on the sandbox would make the real payroll skip everybody."""
    check_account(make_plan(ROWS, journal), client)
    assert sandbox.requests == []
    pay(client, journal, ROWS[:1])
    check_account(make_plan(ROWS, journal), client)
    with Client("pk_test_other", base_url=sandbox.base_url) as other:
        plan = make_plan(ROWS, journal)
        with pytest.raises(CommandError, match="journal of another account") as refused:
            check_account(plan, other)
    assert refused.value.code is ExitCode.CONFIGURATION


def test_the_last_fee_is_that_of_a_payout_that_did_not_fail(
    client: Client, journal: Journal, sandbox: Sandbox, account: Account
) -> None:
    assert read_wallet(client).estimated_fees(4) is None
    account.fee = Decimal(5)
    pay(client, journal, ROWS[:1])
    client.payouts.initiate(amount=50, phone=phone_for(Outcome.insufficient_funds), reference="FAILS")
    sandbox.advance(300)
    wallet = read_wallet(client)
    assert (wallet.available, wallet.estimated_fees(4)) == (account.service_balance, Decimal(20))


def test_what_every_row_would_meet_stops_the_run(
    client: Client, journal: Journal, account: Account, payroll: PayrollShell
) -> None:
    account.b2c_balance = Decimal(2500)
    run = PayrollRun(client, journal)
    outcomes = list(run.pay(ROWS))
    assert [(each.row, each.state) for each in outcomes] == [
        (ROWS[0], "ACCEPTED"),
        (ROWS[1], "ACCEPTED"),
        (ROWS[2], "REFUSED"),
    ]
    assert isinstance(run.stopped_by, APIError)
    assert payroll.posts == 3


def test_three_unknown_outcomes_in_a_row_stop_the_run(client: Client, journal: Journal, sandbox: Sandbox) -> None:
    sandbox.fail_next("POST", PAY, Fault.error_before_commit, times=3)
    run = PayrollRun(client, journal)
    assert [each.state for each in run.pay(ROWS)] == ["UNKNOWN"] * 3
    assert isinstance(run.stopped_by, CommandError)
    assert run.stopped_by.code is ExitCode.UNKNOWN


def test_a_stop_ends_the_run_after_the_payout_under_way(
    client: Client, journal: Journal, payroll: PayrollShell
) -> None:
    run = PayrollRun(client, journal)
    for outcome in run.pay(ROWS):
        run.stop = outcome.row == ROWS[1]
    assert (payroll.posts, payroll.unresolved()) == (2, [])


def test_a_run_may_be_interrupted_while_it_waits(journal: Journal, key: str, sandbox: Sandbox) -> None:
    """Else an interrupt leaves the payout under way in doubt, and only the second one does that."""
    with Client(key, base_url=sandbox.base_url, budget=RateBudget(1, 3.0)) as client:
        run = PayrollRun(client, journal)
        assert run.may_be_interrupted
        allowed: list[bool] = []

        def interrupt(_number: int, _frame: FrameType | None) -> None:
            allowed.append(run.may_be_interrupted)
            raise KeyboardInterrupt

        before = signal.signal(signal.SIGALRM, interrupt)
        with signalling([signal.SIGALRM], lambda: len(sandbox.requests) == 1 and run.may_be_interrupted):
            outcomes = run.pay(ROWS[:3])
            assert next(outcomes).state == "ACCEPTED"
            assert not run.may_be_interrupted
            assert list(outcomes) == []
    signal.signal(signal.SIGALRM, before)
    assert allowed == [True]
    assert journal.unresolved() == []


def test_what_was_broken_off_has_the_state_of_the_journal(
    client: Client, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    run = PayrollRun(client, journal)
    outcomes = run.pay(ROWS)
    next(outcomes)
    monkeypatch.setattr("momopay._core.call.Call._parse", interrupted)
    assert [(each.row, each.state) for each in outcomes] == [(ROWS[1], "UNKNOWN")]


def test_each_entry_has_the_file_and_who_ran_it(client: Client, journal: Journal) -> None:
    list(PayrollRun(client, journal, metadata={"payroll": {"file": "a.csv"}}).pay(ROWS[:1]))
    entry = journal.get("SAL-0")
    assert entry is not None
    assert entry.metadata == {"payroll": {"file": "a.csv"}}


def test_rows_are_followed_to_their_end(client: Client, journal: Journal, sandbox: Sandbox) -> None:
    fails = replace(ROWS[1], phone=normalise_phone(phone_for(Outcome.insufficient_funds)))
    outcomes = pay(client, journal, [ROWS[0], fails])
    assert [(each.end, each.has_settled) for each in outcomes] == [(None, False)] * 2
    run = PayrollRun(client, journal)
    with pytest.raises(WaitTimeoutError):
        list(run.follow(outcomes, PollSchedule(first=0, every=0.1, limit=0.3)))
    sandbox.advance(900)
    ended = {each.row: each for each in run.follow(outcomes, PollSchedule(first=0, every=0.1))}
    assert (ended[ROWS[0]].is_paid, ended[ROWS[0]].has_failed) == (True, False)
    assert (ended[fails].end, ended[fails].has_failed) == ("REVERSED", True)
    plan = make_plan([ROWS[0], fails], journal)
    assert [each.end for each in plan.accepted] == ["SUCCESS", "REVERSED"]  # the journal has it
    before = len(sandbox.requests)
    assert list(run.follow(plan.accepted, PollSchedule(first=0, every=0.1))) == []
    assert len(sandbox.requests) == before


def test_unknown_rows_are_searched_for_once_more(client: Client, journal: Journal, sandbox: Sandbox) -> None:
    sandbox.fail_next("POST", PAY, Fault.reset_after_commit)
    sandbox.fail_next("POST", PAY, Fault.error_before_commit)
    outcomes = {each.row.reference: each for each in pay(client, journal, ROWS[:3])}
    assert [each.state for each in outcomes.values()] == ["UNKNOWN", "UNKNOWN", "ACCEPTED"]
    before = len(sandbox.requests)
    reconcile(journal, client, outcomes)
    assert [each.state for each in outcomes.values()] == ["ACCEPTED", "UNKNOWN", "ACCEPTED"]
    assert isinstance(outcomes["SAL-1"].error, MomoPayError)
    searches = len(sandbox.requests) - before
    assert searches > 0
    reconcile(journal, client, {"SAL-2": outcomes["SAL-2"]})
    assert len(sandbox.requests) == before + searches
