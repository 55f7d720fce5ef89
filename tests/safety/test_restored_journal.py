"""A journal that went back in time, or has a second name, pays nothing until a person accepts it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from drivers import Driver
from momopay import ConfigurationError, Journal, RequestValidationError
from momopay.sandbox import Account, Sandbox
from postgresql import PostgresqlServer
from safety.kit import TESTS, Call, Shop, collect, moved, pay, refund, release, sweep

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
def open_journal(drive: Callable[..., Driver], sandbox: Sandbox, key: str, account: Account, url: str) -> Opened:
    """Open the journal anew for a call, as a program that is started again does."""
    sdk = drive(api_key=key, base_url=sandbox.base_url, deadline=3.0)

    def run(make: Callable[[Journal], Call]) -> Any:
        with Journal(url) as journal:
            return sdk(make(journal))

    return run


def copied_into(path: Path, copy: Path) -> None:
    shutil.copyfile(copy, path)


def renamed_to(path: Path, copy: Path) -> None:
    copy.replace(path)


def restore(path: Path, open_journal: Opened, put_back: Callable[[Path, Path], None] = copied_into) -> None:
    """Pay KEPT, copy the journal, pay LOST, and put the copy back."""
    copy = path.with_name("copy.db")
    open_journal(paying("KEPT"))
    shutil.copyfile(path, copy)
    open_journal(paying("LOST"))
    put_back(path, copy)


def assert_says_what_to_do(text: str) -> None:
    assert re.search("reconcil", text, re.IGNORECASE), text
    assert re.search(r"\d{4}-\d\d-\d\d", text), text


@pytest.mark.parametrize("call", DURABLE.values(), ids=DURABLE.keys())
def test_a_copy_that_was_written_back_is_refused(
    path: Path, open_journal: Opened, sandbox: Sandbox, call: Callable[[Journal], Call]
) -> None:
    """Nothing is sent, and the error says which days to reconcile and how to go on."""
    restore(path, open_journal)
    before = len(sandbox.requests)
    with pytest.raises(ConfigurationError) as caught:
        open_journal(call)
    assert not caught.value.may_have_executed
    assert_says_what_to_do(str(caught.value))
    assert re.search("accept.restored", str(caught.value))
    assert [each.path for each in sandbox.requests[before:] if each.method == "POST"] == []
    assert moved(sandbox, "payout") == {"KEPT": 100, "LOST": 100}


def test_a_backup_that_took_the_place_of_the_file_is_refused(
    path: Path, open_journal: Opened, sandbox: Sandbox
) -> None:
    restore(path, open_journal, renamed_to)
    with pytest.raises(ConfigurationError):
        open_journal(paying("LOST"))
    assert moved(sandbox, "payout") == {"KEPT": 100, "LOST": 100}


def test_a_payroll_stops_before_its_first_row(
    path: Path, open_journal: Opened, sandbox: Sandbox, drive: Callable[..., Driver], key: str, url: str
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


def test_a_person_accepts_what_was_restored(
    path: Path, url: str, open_journal: Opened, sandbox: Sandbox, capsys: pytest.CaptureFixture[str], caplog: Any
) -> None:
    """It is usable again, until it goes back once more."""
    restore(path, open_journal)
    for nobody in ("", " "):
        with Journal(url) as journal, pytest.raises(RequestValidationError):
            journal.accept_restored(by=nobody)
    with pytest.raises(ConfigurationError):
        open_journal(paying("NEW"))
    with Journal(url) as journal:
        returned = journal.accept_restored(by="Njeri")
    printed = capsys.readouterr()
    assert_says_what_to_do(f"{returned} {printed.out} {printed.err} {caplog.text}")
    copy = path.with_name("second.db")
    shutil.copyfile(path, copy)
    for reference in ("NEW", "NEW-2"):
        open_journal(paying(reference))
    copied_into(path, copy)
    with pytest.raises(ConfigurationError):
        open_journal(paying("NEW"))
    assert moved(sandbox, "payout") == {"KEPT": 100, "LOST": 100, "NEW": 100, "NEW-2": 100}


def delete(wal: Path) -> None:
    wal.unlink()


def cut(wal: Path) -> None:
    os.truncate(wal, wal.stat().st_size // 2)


def damage(wal: Path) -> None:
    with wal.open("r+b") as file:
        file.seek(wal.stat().st_size // 2)
        file.write(bytes(1024))


def leave(wal: Path) -> None:
    assert wal.stat().st_size


LOST = [f"LOST-{number}" for number in range(8)]


@pytest.mark.parametrize("harm", [delete, cut, damage, leave])
def test_a_wal_that_was_harmed_after_a_kill_is_noticed(
    path: Path, url: str, open_journal: Opened, sandbox: Sandbox, key: str, harm: Callable[[Path], None]
) -> None:
    """A killed process leaves its newest rows in the WAL; without them, nothing may be paid. Untouched: all goes on."""
    open_journal(paying("KEPT"))
    arguments = [sys.executable, "-m", "safety.payer", url, sandbox.base_url, key, *LOST]
    ended = subprocess.run(arguments, cwd=TESTS, check=False)
    assert ended.returncode == -9
    harm(Path(f"{path}-wal"))
    for reference in LOST:
        if harm is leave:
            open_journal(paying(reference))
        else:
            with pytest.raises(ConfigurationError):
                open_journal(paying(reference))
    assert moved(sandbox, "payout") == dict.fromkeys(["KEPT", *LOST], 100)


@pytest.mark.parametrize("opened_by", ["first name", "second name"])
def test_a_second_name_of_the_file_is_refused(
    path: Path, shop: Shop, opened_by: str, open_journal: Opened, tmp_path: Path
) -> None:
    """Under two names, a file has two WALs and two sets of locks. Once the second is removed, the first works again."""
    open_journal(paying("KEPT"))
    second = tmp_path / "elsewhere" / "same.db"
    second.parent.mkdir()
    second.hardlink_to(path)
    with Journal(f"sqlite:///{second if opened_by == 'second name' else path}") as journal:
        with pytest.raises(ConfigurationError, match=r"name|link") as caught:
            shop(pay(journal, "NEW"))
        assert not caught.value.may_have_executed
    assert shop.payouts == 0
    second.unlink()
    open_journal(paying("NEW"))
    assert shop.paid_out == {"KEPT": 100, "NEW": 100}


def test_a_second_name_that_is_made_in_use_is_refused(path: Path, shop: Shop) -> None:
    shop(pay(shop.journal, "KEPT"))
    second = path.with_name("same.db")
    second.hardlink_to(path)
    with pytest.raises(ConfigurationError):
        shop(pay(shop.journal, "NEW"))
    second.unlink()
    shop(pay(shop.journal, "NEW"))
    assert shop.paid_out == {"KEPT": 100, "NEW": 100}


def test_a_symbolic_link_is_no_second_name(path: Path, open_journal: Opened, shop: Shop, tmp_path: Path) -> None:
    """The control: it leads to the same WAL and the same locks."""
    open_journal(paying("KEPT"))
    link = tmp_path / "link.db"
    link.symlink_to(path)
    with Journal(f"sqlite:///{link}") as journal:
        shop(pay(journal, "KEPT"))
        shop(pay(journal, "NEW"))
    assert shop.paid_out == {"KEPT": 100, "NEW": 100}


@pytest.mark.whole
def test_a_failover_to_an_older_standby_is_refused(
    postgresql: PostgresqlServer, drive: Callable[..., Driver], sandbox: Sandbox, key: str, account: Account
) -> None:
    """Over PostgreSQL, a process remembers the sequence number: an older database under the same name is refused."""
    url = postgresql.new_database()
    name = url.rpartition("/")[2]
    server = url.replace("postgresql+psycopg", "postgresql").rpartition("/")[0] + "/postgres"
    sdk = drive(api_key=key, base_url=sandbox.base_url)

    def administer(*commands: str) -> None:
        postgresql.disconnect_all()
        with psycopg.connect(server, autocommit=True) as connection:
            for command in commands:
                connection.execute(command.encode())

    with Journal(url) as journal:
        sdk(pay(journal, "KEPT"))
        administer(f'CREATE DATABASE "{name}-old" TEMPLATE "{name}"')
        sdk(pay(journal, "LOST"))
        administer(f'DROP DATABASE "{name}"', f'ALTER DATABASE "{name}-old" RENAME TO "{name}"')
        with pytest.raises(ConfigurationError):
            sdk(pay(journal, "LOST"))
        journal.accept_restored(by="Njeri")
        sdk(pay(journal, "NEW"))
    assert moved(sandbox, "payout") == {"KEPT": 100, "LOST": 100, "NEW": 100}
