"""A key of another account pays nothing with a journal, whatever is called, and leaves the journal as it was."""

from pathlib import Path

import pytest

from cli.kit import Shell
from drivers import Drive, Driver, unique_key
from durable.kit import KEY_CHECK, collect, pay, pay_all, refund, release, sweep
from momopay import ConfigurationError, EntryKind, JournalState
from safety.kit import FragileShop, moved


def stranger(shop: FragileShop, drive: Drive) -> Driver:
    """Make a client with the key of another account, which no journal has seen."""
    return drive(api_key=unique_key(), base_url=shop.sandbox.base_url, transport=shop.between, deadline=3.0)


def prepare(shop: FragileShop) -> None:
    """Give the journal a past: an order that was paid, a payout, and an unresolved one."""
    prompt = shop.collect()
    shop.settle(prompt)
    shop.sweep()
    shop.pay("MADE")
    shop.send_unresolved(shop.pay, "UNSURE")
    shop.later(3600)
    shop.between.requests.clear()


def test_the_key_of_another_account_is_refused(shop: FragileShop, drive: Drive) -> None:
    """An unknown key is asked for its tenant before anything else. A payroll stops before its first row."""
    prepare(shop)
    before = shop.sandbox.ledger
    journal = shop.journal
    calls = [
        *(pay(journal, each) for each in ("NEW", "MADE", "UNSURE")),
        collect(journal, "O-2"),
        collect(journal, "o"),
    ]
    calls += [release(journal, "UNSURE"), release(journal, "UNSURE", searched_elsewhere=True)]
    for call in (*calls, refund(journal, "o"), sweep(journal)):
        with pytest.raises(ConfigurationError, match=r"account|tenant") as caught:
            stranger(shop, drive)(call)
        assert not caught.value.may_have_executed
    (outcome,) = stranger(shop, drive).collect(pay_all(shop.journal, "NEW", "MADE"))
    assert isinstance(outcome.error, ConfigurationError)
    assert (outcome.stops, outcome.state) == (True, JournalState.NOT_SENT)
    assert set(shop.between.requests) <= {KEY_CHECK}
    assert shop.sandbox.ledger == before


def test_the_right_key_goes_on_after_a_wrong_one(shop: FragileShop, drive: Drive) -> None:
    """The control: the wrong key binds nothing, and blocks no reference of the right one."""
    prepare(shop)
    with pytest.raises(ConfigurationError):
        stranger(shop, drive)(pay(shop.journal, "NEW"))
    assert shop.journal.get("NEW", kind=EntryKind.PAYOUT) is None
    shop.pay("NEW")
    outcomes = shop.sdk.collect(pay_all(shop.journal, "NEW", "MADE", "LAST"))
    assert [each.state for each in outcomes] == [JournalState.ACCEPTED] * 3
    assert shop.paid_out == {"MADE": 10, "NEW": 10, "LAST": 10}


def test_every_command_that_checks_tells(shop: FragileShop, url: str, tmp_path: Path) -> None:
    """`payouts run`, `doctor` and `journal check` fail with the wrong key; the right one pays."""
    prepare(shop)
    shop.journal.close()
    payroll = tmp_path / "b.csv"
    payroll.write_text("reference,phone,amount,description\nNEW-1,0712345678,10,November\n")
    pays = ("payouts", "run", str(payroll), "--yes")

    def run(api_key: str, *command: str) -> int:
        momopay = Shell({"MOMOPAY_API_KEY": api_key, "MOMOPAY_BASE_URL": shop.sandbox.base_url})
        return momopay(*command, "--journal", url).code

    assert all(run(unique_key(), *command) for command in (pays, ("doctor",), ("journal", "check")))
    assert moved(shop.sandbox, "payout") == {"MADE": 10}
    assert run(shop.key, *pays) == 0
    assert moved(shop.sandbox, "payout") == {"MADE": 10, "NEW-1": 10}
