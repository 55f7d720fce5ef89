"""A key of another account pays nothing with a journal, whatever is called, and leaves the journal as it was."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from drivers import Driver, unique_key
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
def other(drive: Callable[..., Driver], sandbox: Sandbox, between: Between) -> Driver:
    """A client with the key of another account, which no journal has seen."""
    return drive(api_key=unique_key(), base_url=sandbox.base_url, transport=between, deadline=3.0)


def prepare(shop: Shop) -> None:
    """Give the journal a past: an order that was paid, a payout, and an unresolved one."""
    prompt = shop(collect(shop.journal))
    shop.settle(prompt)
    shop(sweep(shop.journal))
    shop(pay(shop.journal, "MADE"))
    shop.between.hold_next_post()
    with pytest.raises(OutcomeUnknownError):
        shop(pay(shop.journal, "UNSURE"))
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


@pytest.mark.parametrize("call", DURABLE.values(), ids=DURABLE.keys())
def test_the_key_of_another_account_is_refused(shop: Shop, other: Driver, call: Callable[[Journal], Call]) -> None:
    """An unknown key is asked for its tenant before anything is sent or searched."""
    prepare(shop)
    before = shop.sandbox.ledger
    with pytest.raises(ConfigurationError, match=r"account|tenant") as caught:
        other(call(shop.journal))
    assert not caught.value.may_have_executed
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
    shop(pay(shop.journal, "NEW"))
    outcomes = shop.sdk.collect(pay_all(shop.journal, "NEW", "MADE", "LAST"))
    assert [each.state for each in outcomes] == [JournalState.ACCEPTED] * 3
    assert shop.paid_out == {"MADE": 100, "NEW": 100, "LAST": 100}


def test_a_key_is_asked_once_for_each_journal(
    shop: Shop, drive: Callable[..., Driver], key: str, url: str, between: Between
) -> None:
    """One wallet read, before the first payment; its answer is remembered by the key's hash, in the database."""
    shop(pay(shop.journal, "PAY-1"))
    assert between.requests == [WALLET, "POST /b2c/payouts"]
    shop(pay(shop.journal, "PAY-2"))
    with Journal(url) as again:
        sdk = drive(api_key=key, base_url=shop.sandbox.base_url, transport=between)
        sdk(pay(again, "PAY-3"))
        sdk(collect(again))
    assert between.requests.count(WALLET) == 1
    assert key.encode() not in Path(url.removeprefix("sqlite:///")).read_bytes()


def test_another_key_of_the_same_account_pays_after_one_question(shop: Shop, other: Driver) -> None:
    """A key that was rotated is no other account."""

    def one_tenant(_path: str, data: Any) -> None:
        for record in (data, *data.get("items", ())):
            if "tenantId" in record:
                record["tenantId"] = shop.account.tenant_id

    shop.between.edit = one_tenant
    shop(pay(shop.journal, "PAY-1"))
    other(pay(shop.journal, "PAY-2"))
    other(pay(shop.journal, "PAY-3"))
    assert shop.between.requests.count(WALLET) == 2
    assert shop.payouts == 3


def test_a_read_that_shows_no_tenant_blocks_nobody(shop: Shop) -> None:
    def without_tenant(path: str, data: Any) -> None:
        if path == "/wallets/service/balance":
            del data["tenantId"]

    shop.between.edit = without_tenant
    shop(pay(shop.journal))
    assert shop.paid_out == {"PAY-1": 100}


def test_the_first_answer_binds_where_no_read_shows_a_tenant(shop: Shop, other: Driver) -> None:
    """What is known is used: a second account is refused as soon as a read shows that it is one."""
    test_a_read_that_shows_no_tenant_blocks_nobody(shop)
    shop.between.edit = lambda _path, _data: None
    with pytest.raises(ConfigurationError):
        other(pay(shop.journal, "PAY-2"))
    assert shop.payouts == 1


@pytest.mark.parametrize("client_kind", ["blocking"])
def test_every_command_that_checks_tells(shop: Shop, url: str, tmp_path: Path) -> None:
    """`payouts run`, `doctor` and `journal check` fail with the wrong key, and pass with the right one."""
    prepare(shop)
    shop.journal.close()
    payroll = tmp_path / "b.csv"
    payroll.write_text("reference,phone,amount,description\nNEW-1,0712345678,100,November\n")

    def run(api_key: str) -> list[subprocess.CompletedProcess[str]]:
        environment = {**os.environ, "MOMOPAY_API_KEY": api_key, "MOMOPAY_BASE_URL": shop.sandbox.base_url}
        options = ("--journal", url)
        return [
            subprocess.run(
                [sys.executable, "-m", "momopay", *command, *options],
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                check=False,
            )
            for command in (("payouts", "run", str(payroll), "--yes"), ("doctor",), ("journal", "check"))
        ]

    wrong = run(unique_key())
    assert moved(shop.sandbox, "payout") == {"MADE": 100}
    assert all(each.returncode for each in wrong), [each.stdout for each in wrong if not each.returncode]
    right, _doctor, _check = run(shop.key)
    assert right.returncode == 0, right.stderr
    assert moved(shop.sandbox, "payout") == {"MADE": 100, "NEW-1": 100}
