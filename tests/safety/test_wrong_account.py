"""A key of another account pays nothing with a journal, whatever is called, and leaves the journal as it was."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cli.kit import Shell
from drivers import Drive, Driver, unique_key
from momopay import ConfigurationError, EntryKind, Journal, JournalState, OutcomeUnknownError
from momopay.sandbox import Sandbox
from safety.kit import Between, Call, Shop, collect, moved, pay, refund, release, sweep

WALLET = "GET /wallets/service/balance"


def pay_all(journal: Journal, *references: str) -> Call:
    """Pay KES 100 under each reference; give the list of outcomes."""
    items = [{"reference": each, "amount": 100, "phone": "254712345678"} for each in references]

    def run(client: Any) -> Any:
        return client.payouts.pay_all(items, journal=journal)

    return run


@pytest.fixture
def other(drive: Drive, sandbox: Sandbox, between: Between) -> Driver:
    """A client with the key of another account, which no journal has seen."""
    return drive(api_key=unique_key(), base_url=sandbox.base_url, transport=between, deadline=3.0)


def prepare(shop: Shop) -> None:
    """Give the journal a past: an order that was paid, a payout, and an unresolved one."""
    prompt = shop.collect()
    shop.settle(prompt)
    shop.sweep()
    shop.pay("MADE")
    shop.between.hold_next_post()
    with pytest.raises(OutcomeUnknownError):
        shop.pay("UNSURE")
    shop.later(3600)
    shop.between.requests.clear()


DURABLE: dict[str, Callable[[Journal], Call]] = {
    "pay_once, new": lambda journal: pay(journal, "NEW"),
    "pay_once, made": lambda journal: pay(journal, "MADE"),
    "pay_once, unresolved": lambda journal: pay(journal, "UNSURE"),
    "collect_once, new": lambda journal: collect(journal, "O-2"),
    "collect_once, paid": lambda journal: collect(journal, "O-1"),
    "refund": lambda journal: refund(journal, "O-1"),
    "release": lambda journal: release(journal, "UNSURE"),
    "release, searched elsewhere": lambda journal: release(journal, "UNSURE", searched_elsewhere=True),
    "sweep": sweep,
}


def test_the_key_of_another_account_is_refused(shop: Shop, drive: Drive) -> None:
    """An unknown key is asked for its tenant before anything is sent or searched."""
    prepare(shop)
    before = shop.sandbox.ledger
    for name, call in DURABLE.items():
        other = drive(api_key=unique_key(), base_url=shop.sandbox.base_url, transport=shop.between)
        with pytest.raises(ConfigurationError, match=r"account|tenant") as caught:
            other(call(shop.journal))
        assert not caught.value.may_have_executed, name
    assert set(shop.between.requests) <= {WALLET}
    assert shop.sandbox.ledger == before


def test_a_payroll_with_the_key_of_another_account_stops_before_its_first_row(shop: Shop, other: Driver) -> None:
    prepare(shop)
    outcomes = other.collect(pay_all(shop.journal, "NEW", "MADE"))
    (outcome,) = outcomes
    assert isinstance(outcome.error, ConfigurationError)
    assert (outcome.stops, outcome.state) == (True, JournalState.NOT_SENT)
    assert shop.payouts == 0
    assert "GET /transactions" not in shop.between.requests


def test_the_right_key_goes_on_after_a_wrong_one(shop: Shop, other: Driver) -> None:
    """The control: the wrong key binds nothing, and blocks no reference of the right one."""
    prepare(shop)
    with pytest.raises(ConfigurationError):
        other(pay(shop.journal, "NEW"))
    assert shop.journal.get("NEW", kind=EntryKind.PAYOUT) is None
    shop.pay("NEW")
    outcomes = shop.sdk.collect(pay_all(shop.journal, "NEW", "MADE", "LAST"))
    assert [each.state for each in outcomes] == [JournalState.ACCEPTED] * 3
    assert shop.paid_out == {"MADE": 100, "NEW": 100, "LAST": 100}


def test_every_command_that_checks_tells(shop: Shop, url: str, tmp_path: Path) -> None:
    """`payouts run`, `doctor` and `journal check` fail with the wrong key; the right one pays."""
    prepare(shop)
    shop.journal.close()
    payroll = tmp_path / "b.csv"
    payroll.write_text("reference,phone,amount,description\nNEW-1,0712345678,100,November\n")
    pays = ("payouts", "run", str(payroll), "--yes")

    def run(api_key: str, *command: str) -> int:
        momopay = Shell({"MOMOPAY_API_KEY": api_key, "MOMOPAY_BASE_URL": shop.sandbox.base_url})
        return momopay(*command, "--journal", url).code

    assert all(run(unique_key(), *command) for command in (pays, ("doctor",), ("journal", "check")))
    assert moved(shop.sandbox, "payout") == {"MADE": 100}
    assert run(shop.key, *pays) == 0
    assert moved(shop.sandbox, "payout") == {"MADE": 100, "NEW-1": 100}
