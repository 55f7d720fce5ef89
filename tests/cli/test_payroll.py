"""Which rows are still to be paid, and when a run pauses and stops."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal

import pytest

from cli.kit import PAY, PayrollShell
from momopay import Client, Journal, Lane, RateBudget
from momopay._transport import clock
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


def new_run(client: Client, journal: Journal) -> PayrollRun:
    return PayrollRun(client, journal, budget=RateBudget())


def pay(client: Client, journal: Journal, rows: list[Row]) -> list[RowOutcome]:
    return list(new_run(client, journal).pay(rows))


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


@pytest.mark.parametrize(
    ("change", "tried"),
    [({"b2c_balance": Decimal(2500)}, 3), ({"kyc_approved": False}, 1), ({"service_balance": Decimal(2)}, 3)],
)
def test_what_every_row_would_meet_stops_the_run(
    client: Client, journal: Journal, account: Account, payroll: PayrollShell, change: dict[str, object], tried: int
) -> None:
    for name, value in change.items():
        setattr(account, name, value)
    run = new_run(client, journal)
    outcomes = list(run.pay(ROWS))
    assert [each.state for each in outcomes] == [*["ACCEPTED"] * (tried - 1), "REFUSED"]
    assert isinstance(run.stopped_by, APIError)
    assert payroll.posts == tried


def test_what_one_row_alone_meets_does_not_stop_the_run(client: Client, journal: Journal) -> None:
    too_much = replace(ROWS[1], amount=Decimal(1000000000))
    run = new_run(client, journal)
    assert [each.state for each in run.pay([ROWS[0], too_much, ROWS[2]])] == ["ACCEPTED", "REFUSED", "ACCEPTED"]
    assert run.stopped_by is None


@pytest.mark.parametrize(("faults", "tried"), [(3, 3), (2, 10)])
def test_three_unknown_outcomes_in_a_row_stop_the_run(
    client: Client, journal: Journal, sandbox: Sandbox, faults: int, tried: int
) -> None:
    sandbox.fail_next("POST", PAY, Fault.error_before_commit, times=faults)
    run = new_run(client, journal)
    outcomes = list(run.pay(ROWS))
    assert [each.state for each in outcomes] == [*["UNKNOWN"] * faults, *["ACCEPTED"] * (tried - faults)]
    assert (run.stopped_by is None) == (faults < 3)


def test_unknown_outcomes_that_are_not_in_a_row_do_not_stop_the_run(
    client: Client, journal: Journal, sandbox: Sandbox
) -> None:
    run = new_run(client, journal)
    for outcome in run.pay(ROWS):
        if outcome.row.line in {2, 4, 6}:  # the next row's answer is lost
            sandbox.fail_next("POST", PAY, Fault.error_before_commit)
    assert run.stopped_by is None


def test_a_stop_ends_a_pause_for_the_budget_and_sends_nothing(
    client: Client, journal: Journal, payroll: PayrollShell
) -> None:
    def stop() -> None:
        run.stop = True

    budget = RateBudget(requests=1, window=3600)
    budget.reserve(clock.now(), Lane.READ)
    run = PayrollRun(client, journal, budget=budget, on_pause=stop)
    assert list(run.pay(ROWS)) == []
    assert (payroll.posts, payroll.unresolved()) == (0, [])


def test_a_run_waits_for_the_budget_before_each_row(client: Client, journal: Journal) -> None:
    pauses: list[None] = []
    budget = RateBudget(requests=1, window=0.3)
    run = PayrollRun(client, journal, budget=budget, on_pause=lambda: pauses.append(None))
    for _ in run.pay(ROWS[:3]):
        budget.reserve(clock.now(), Lane.READ)  # the client of this test has no budget and takes none itself
    assert len(pauses) == 2


def test_a_run_itself_takes_no_slot(client: Client, journal: Journal) -> None:
    """The client takes them, which has no budget here."""
    run = PayrollRun(
        client, journal, budget=RateBudget(requests=2, window=3600), on_pause=lambda: pytest.fail("paused")
    )
    assert len(list(run.pay(ROWS[:4]))) == 4


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
