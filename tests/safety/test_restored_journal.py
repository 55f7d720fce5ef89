"""A journal that went back in time, or has a second name, pays nothing until a person accepts it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from drivers import Drive
from forked import in_a_fresh_process
from journal.kit import pay_and_die
from momopay import ConfigurationError, Journal
from momopay.sandbox import Account, Sandbox
from safety.kit import Call, collect, moved, pay, refund, release, sweep

Opened = Callable[[Callable[[Journal], Call]], Any]
"""Makes a call with the journal that a program opens when it starts."""


def paying(reference: str) -> Callable[[Journal], Call]:
    return lambda journal: pay(journal, reference)


DURABLE: dict[str, Callable[[Journal], Call]] = {
    "pay_once, lost": paying("LOST"),
    "pay_once, kept": paying("KEPT"),
    "pay_once, new": paying("NEW"),
    "collect_once": collect,
    "refund": lambda journal: refund(journal, "O-PAID"),
    "release": lambda journal: release(journal, "KEPT"),
    "sweep": sweep,
}


@pytest.fixture
def path(url: str) -> Path:
    return Path(url.removeprefix("sqlite:///"))


@pytest.fixture
def open_journal(drive: Drive, sandbox: Sandbox, key: str, account: Account, url: str) -> Opened:
    """Open the journal anew for a call, as a program that is started again does."""
    sdk = drive(api_key=key, base_url=sandbox.base_url, deadline=3.0)

    def run(make: Callable[[Journal], Call]) -> Any:
        with Journal(url) as journal:
            return sdk(make(journal))

    return run


def restore(path: Path, open_journal: Opened) -> None:
    """Pay KEPT, copy the journal, pay LOST, and put the copy back."""
    copy = path.with_name("copy.db")
    open_journal(paying("KEPT"))
    shutil.copyfile(path, copy)
    open_journal(paying("LOST"))
    shutil.copyfile(copy, path)


def test_a_copy_that_was_written_back_is_refused(path: Path, open_journal: Opened, sandbox: Sandbox) -> None:
    """Nothing is sent, and the error says which days to reconcile and how to go on."""
    restore(path, open_journal)
    before = len(sandbox.requests)
    for name, call in DURABLE.items():
        with pytest.raises(ConfigurationError, match=r"(?s)reconcile.*\d{4}-\d\d-\d\d.*accept.restored") as caught:
            open_journal(call)
        assert not caught.value.may_have_executed, name
    assert [each.path for each in sandbox.requests[before:] if each.method == "POST"] == []
    assert moved(sandbox, "payout") == {"KEPT": 100, "LOST": 100}


def test_a_payroll_stops_before_its_first_row(
    path: Path, open_journal: Opened, sandbox: Sandbox, drive: Drive, key: str, url: str
) -> None:
    restore(path, open_journal)
    sdk = drive(api_key=key, base_url=sandbox.base_url)
    items = [{"reference": each, "amount": 100, "phone": "254712345678"} for each in ("KEPT", "LOST", "NEW")]
    with Journal(url) as journal:
        (outcome,) = sdk.collect(lambda client: client.payouts.pay_all(items, journal=journal))
    assert isinstance(outcome.error, ConfigurationError)
    assert outcome.stops
    assert moved(sandbox, "payout") == {"KEPT": 100, "LOST": 100}


def test_what_was_restored_can_be_read_and_reconciled(path: Path, open_journal: Opened, sandbox: Sandbox) -> None:
    """The reconciliation that the error asks for works before anything is accepted, and shows what was lost."""
    day = sandbox.now.date()
    restore(path, open_journal)
    sandbox.advance(60)
    found: list[str] = []

    def look(journal: Journal) -> Call:
        assert journal.get("KEPT") is not None
        found.extend(each.reference for each in journal.entries())
        days = {"day": day, "last_day": sandbox.now.date(), "utc": True}
        return lambda client: client.transactions.reconcile(journal=journal, **days)

    report = open_journal(look)
    assert found == ["KEPT"]
    assert [each.reference for each in report.differences] == ["LOST"]


def cut(wal: Path) -> None:
    os.truncate(wal, wal.stat().st_size // 2)


def damage(wal: Path) -> None:
    with wal.open("r+b") as file:
        file.seek(wal.stat().st_size // 2)
        file.write(bytes(1024))


def leave(wal: Path) -> None:
    assert wal.stat().st_size


LOST = [f"LOST-{number}" for number in range(8)]


@pytest.mark.parametrize(
    "harm", [cut, leave, *(pytest.param(each, marks=pytest.mark.whole) for each in (Path.unlink, damage))]
)
def test_a_wal_that_was_harmed_after_a_kill_is_noticed(
    path: Path, url: str, open_journal: Opened, sandbox: Sandbox, key: str, harm: Callable[[Path], None]
) -> None:
    """A killed process leaves its newest rows in the WAL; without them, nothing may be paid. Untouched: all goes on."""
    open_journal(paying("KEPT"))
    process = in_a_fresh_process(pay_and_die, key, sandbox.base_url, url, LOST, 100)
    process.join(30)
    assert process.exitcode == -9
    harm(Path(f"{path}-wal"))
    for reference in LOST:
        if harm is leave:
            open_journal(paying(reference))
        else:
            with pytest.raises(ConfigurationError):
                open_journal(paying(reference))
    assert moved(sandbox, "payout") == dict.fromkeys(["KEPT", *LOST], 100)
