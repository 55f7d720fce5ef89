"""A journal that went back in time, or has a second name, pays nothing until a person accepts it."""

import os
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from drivers import Driver
from durable.kit import Call, pay, pay_all
from forked import KILLED, in_a_fresh_process
from journal.kit import pay_and_die
from momopay import ConfigurationError, Journal
from momopay.sandbox import Sandbox
from safety.kit import moved


@pytest.fixture
def path(url: str) -> Path:
    return Path(url.removeprefix("sqlite:///"))


def opened(sdk: Driver, url: str, make: Callable[[Journal], Call]) -> Any:
    """Make a call with the journal opened anew, as a program that is started again does."""
    with Journal(url) as journal:
        return sdk(make(journal))


def test_a_copy_that_was_written_back_pays_nothing_and_can_be_reconciled(
    path: Path, sdk: Driver, sandbox: Sandbox, url: str
) -> None:
    """The error says which days to reconcile and how to go on. A payroll stops before its first row."""
    begun = sandbox.now
    copy = path.with_name("copy.db")
    opened(sdk, url, partial(pay, reference="MADE"))
    shutil.copyfile(path, copy)
    opened(sdk, url, partial(pay, reference="UNSURE"))
    shutil.copyfile(copy, path)
    before = len(sandbox.requests)
    with pytest.raises(ConfigurationError, match=r"(?s)reconcile.*\d{4}-\d\d-\d\d.*accept.restored") as caught:
        opened(sdk, url, partial(pay, reference="NEW"))
    assert not caught.value.may_have_executed
    with Journal(url) as journal:
        (outcome,) = sdk.collect(pay_all(journal, "MADE", "UNSURE", "NEW"))
    assert isinstance(outcome.error, ConfigurationError)
    assert outcome.stops
    assert [each.path for each in sandbox.requests[before:] if each.method == "POST"] == []
    assert moved(sandbox, "payout") == {"MADE": 10, "UNSURE": 10}
    sandbox.advance(60)
    with Journal(url) as journal:
        assert [each.reference for each in journal.entries()] == ["MADE"]
        days = {"day": begun.date(), "last_day": sandbox.now.date(), "utc": True}
        report = sdk(lambda client: client.transactions.reconcile(journal=journal, **days))
        assert [each.reference for each in report.differences] == ["UNSURE"]
        journal.accept_restored(by="Njeri")
        sdk(pay(journal, "NEW"))
    assert moved(sandbox, "payout") == {"MADE": 10, "UNSURE": 10, "NEW": 10}


def cut(wal: Path) -> None:
    os.truncate(wal, wal.stat().st_size // 2)


def damage(wal: Path) -> None:
    with wal.open("r+b") as file:
        middle = wal.stat().st_size // 2
        file.seek(middle)
        were = file.read(1024)
        file.seek(middle)
        file.write(bytes(255 - byte for byte in were))  # zeros would change nothing where a page is empty


def leave(wal: Path) -> None:
    assert wal.stat().st_size


LOST = [f"LOST-{number}" for number in range(8)]


@pytest.mark.parametrize(
    "harm", [cut, leave, *(pytest.param(each, marks=pytest.mark.whole) for each in (Path.unlink, damage))]
)
def test_a_wal_that_was_harmed_after_a_kill_is_noticed(
    path: Path, url: str, sdk: Driver, sandbox: Sandbox, key: str, harm: Callable[[Path], None]
) -> None:
    """A killed process leaves its newest rows in the WAL; without them, nothing may be paid. Untouched: all goes on."""
    opened(sdk, url, partial(pay, reference="MADE"))
    process = in_a_fresh_process(pay_and_die, key, sandbox.base_url, url, LOST, 10)
    process.join(100)
    assert process.exitcode == KILLED
    harm(Path(f"{path}-wal"))
    for reference in LOST:
        if harm is leave:
            opened(sdk, url, partial(pay, reference=reference))
        else:
            with pytest.raises(ConfigurationError):
                opened(sdk, url, partial(pay, reference=reference))
    assert moved(sandbox, "payout") == dict.fromkeys(["MADE", *LOST], 10)
