"""A journal that moves is never in two places, and nothing of it is lost, whenever the move is killed."""

from __future__ import annotations

import os
import random
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, event, select

from drivers import Drive
from durable.kit import Service, payout_record
from forked import KILLED, in_a_fresh_process, kill_this_process
from in_turn import some_by_default
from journal.constants import ACCEPTED, SENDING, UNKNOWN
from journal.database_kit import another_process, before_statement, execute, store_of
from journal.kit import begin, lease_of, put, record, sender, state_of
from journal.records import callback
from journal.versions import version_1
from journal.versions.kit import connected, load
from momopay import ConfigurationError, Journal, JournalError
from momopay.journal.schema import metadata, moves, versions
from postgresql import PostgresqlServer

DIRECTIONS = [("sqlite", "postgresql"), ("postgresql", "sqlite"), ("sqlite", "sqlite")]
Rows = Mapping[str, list[str]]


@pytest.fixture(params=some_by_default([(each,) for each in DIRECTIONS]), ids=["-".join(each) for each in DIRECTIONS])
def urls(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str]:
    """The URLs of a journal with payments in every state, and of a database that nobody used."""
    made = list[str]()
    for number, kind in enumerate(request.param):
        if kind == "sqlite":
            made.append(f"sqlite:///{tmp_path / f'{number}.db'}")
        else:
            server: PostgresqlServer = request.getfixturevalue("postgresql")
            made.append(server.new_database())
    load(made[0], 1)
    Journal.migrate(made[0])
    return made[0], made[1]


def rows_of(url: str) -> Rows:
    """Return all rows of a journal, in any order, without those that are of the database itself."""
    with another_process(url, create=False) as journal, store_of(journal).database.connection() as connection:
        tables = [table for table in metadata.sorted_tables if table not in {moves, versions}]
        return {table.name: sorted(map(repr, connection.execute(select(table)).all())) for table in tables}


def move(source: str, target: str, **options: bool) -> str:
    with another_process(source, create=False) as journal:
        return journal.move_to(target, **options)


def works(url: str) -> bool:
    """Return whether calls can use a journal: by its mark, which each of them reads first."""
    try:
        with another_process(url, create=False) as journal:
            return journal.check().went_back is None
    except ConfigurationError:
        return False


def refused(url: str, match: str, **options: Any) -> None:
    """Expect that a journal refuses each way to use it, and says why."""
    with another_process(url, **options) as journal:
        for call in (lambda: put(journal, "new"), lambda: journal.accept_restored(by="Amina")):
            with pytest.raises(ConfigurationError, match=match) as caught:
                call()
            assert not caught.value.may_have_executed
        went_back = journal.check().went_back
        assert went_back is not None
        assert re.search(match, went_back)


def test_everything_moves_and_the_old_one_refuses(urls: tuple[str, str]) -> None:
    source, target = urls
    before = rows_of(source)
    with another_process(source) as journal:
        known = {entry.reference: journal.history(entry.reference, entry.kind) for entry in journal.entries()}
    assert move(source, target).startswith("moved the journal from")
    assert rows_of(target) == before
    refused(source, "was moved to")
    with another_process(target, create=False) as journal:
        assert {entry.reference: journal.history(entry.reference, entry.kind) for entry in journal.entries()} == known
        assert journal.check().differing == ()
        put(journal, "new")
        assert journal.history("new")
    with another_process(target, account="second shop") as journal:
        put(journal, "new")
    assert (works(source), works(target)) == (False, True)
    assert move(source, target).startswith("moved the journal from"), "done already"


@pytest.mark.usefixtures("live_keys")
def test_processes_that_have_the_old_one_open_send_and_record_nothing(urls: tuple[str, str], drive: Drive) -> None:
    source, target = urls
    service = Service(payout_record())
    sdk = drive(transport=service.transport, api_key="pk_live_1", base_url="https://pay.example/v1")
    with another_process(source, account="second shop") as held:
        put(held, "before")
        with lease_of(held) as lease:
            move(source, target)
            with pytest.raises(ConfigurationError, match="was moved to"):
                begin(held, lease, "after", read=None)
        with suppress(JournalError):
            held.record(callback("told", "t-told"))
        with suppress(JournalError):
            put_history(held)
        with pytest.raises(ConfigurationError, match="was moved to") as caught:
            sdk(lambda client: client.payouts.pay_once(journal=held, reference="x", amount=10, phone="0712345678"))
        assert not caught.value.may_have_executed
    assert service.sent == 0
    moved, left = rows_of(target), rows_of(source)
    for table in ("momopay_payments", "momopay_transactions", "momopay_history", "momopay_deliveries"):
        assert left[table] == moved[table]


def put_history(journal: Journal) -> None:
    with journal.handling(callback("somebody", "t-somebody")):
        pass


def test_a_process_of_version_1_that_has_the_old_one_open_begins_nothing(urls: tuple[str, str]) -> None:
    source, target = urls
    with connected(source) as old:
        old.exec_driver_sql("SELECT 1")
        _, before, _ = old.exec_driver_sql(version_1.READ.format(reference="r")).one()
        move(source, target)
        assert old.exec_driver_sql(version_1.READ.format(reference="r")).one()[1] < 0 <= before
        with pytest.raises(Exception, match="was moved to"):
            version_1.begin(old, "r")
        old.exec_driver_sql("ROLLBACK")


# Refusals, which change nothing


def test_it_is_refused_while_a_call_is_sending(tmp_path: Path) -> None:
    source, target = (f"sqlite:///{tmp_path / name}.db" for name in ("source", "target"))
    with another_process(source) as journal:
        put(journal, "a")
    with sender(source):
        with pytest.raises(ConfigurationError, match="is sending"):
            move(source, target)
        assert works(source)
        with another_process(source) as journal, lease_of(journal) as lease:
            assert begin(journal, lease, "b")
    assert move(source, target)  # the process is dead
    with another_process(target) as journal:
        assert state_of(journal, "r") is UNKNOWN


def test_a_call_of_this_process_that_is_sending_refuses_it_too(urls: tuple[str, str]) -> None:
    source, target = urls
    with Journal(source) as journal:
        with lease_of(journal) as lease:
            assert begin(journal, lease, "under way")
            with pytest.raises(ConfigurationError, match="is sending"):
                journal.move_to(target)
            assert state_of(journal, "under way") is SENDING
            assert record(journal, lease, ACCEPTED, "under way")
        journal.move_to(target)
    with another_process(target) as journal:
        assert state_of(journal, "under way") is ACCEPTED


@pytest.mark.parametrize("what", ["a payment", "a delivery"])
def test_a_target_that_holds_payments_is_refused(urls: tuple[str, str], what: str) -> None:
    source, target = urls
    with another_process(target) as journal:
        if what == "a payment":
            put(journal, "theirs")
        else:
            put_history(journal)
    before = rows_of(source), rows_of(target)
    with pytest.raises(ConfigurationError, match="holds payments"):
        move(source, target)
    assert (rows_of(source), rows_of(target)) == before
    assert (works(source), works(target)) == (True, True)


def test_a_target_in_which_nothing_happened_is_taken(urls: tuple[str, str]) -> None:
    source, target = urls
    with another_process(target) as journal:
        assert journal.get("r") is None
    assert move(source, target)


def test_source_and_target_must_be_two(tmp_path: Path) -> None:
    source = f"sqlite:///{tmp_path / 'a.db'}"
    with Journal(source) as journal:
        put(journal)
        with pytest.raises(ConfigurationError, match="same database"):
            journal.move_to(source)
        assert put(journal, "s").state is ACCEPTED


def test_two_urls_of_one_database_are_noticed(postgresql: PostgresqlServer) -> None:
    source = postgresql.new_database()
    target = source.replace("127.0.0.1", "localhost")
    with another_process(source) as journal:
        journal.get("r")
    with pytest.raises(ConfigurationError, match="same database"):
        move(source, target)
    with another_process(source) as journal:
        put(journal)


def test_a_newer_journal_is_not_moved(urls: tuple[str, str]) -> None:
    source, target = urls
    with another_process(source) as journal:
        execute(journal, "UPDATE momopay_journal SET version = 99")
        execute(journal, "INSERT INTO momopay_versions VALUES (99, 2, 'then')")
    with pytest.raises(ConfigurationError, match="version 99"):
        move(source, target)
    with another_process(source) as journal:
        put(journal)


def test_a_password_is_not_kept(postgresql: PostgresqlServer, tmp_path: Path) -> None:
    source = f"sqlite:///{tmp_path / 'a.db'}"
    target = postgresql.new_database().replace("postgres@", "postgres:s3cr3t-word@")
    with another_process(source) as journal:
        put(journal)
    assert "s3cr3t" not in move(source, target)
    with another_process(source) as journal:
        assert "s3cr3t" not in str(execute(journal, "SELECT * FROM momopay_moves"))
        with pytest.raises(ConfigurationError, match="was moved to") as caught:
            put(journal, "s")
        assert "s3cr3t" not in str(caught.value)
    assert b"s3cr3t" not in (tmp_path / "a.db").read_bytes()


# Undoing


def test_undoing_opens_the_old_one_with_what_was_recorded_meanwhile(urls: tuple[str, str]) -> None:
    source, target = urls
    move(source, target)
    with another_process(target) as journal:
        put_history(journal)  # an end was delivered
    moved = rows_of(target)
    assert move(source, target, undo=True).startswith("undone")
    assert rows_of(source) == moved
    refused(target, "was undone")
    with another_process(source) as journal:
        put(journal, "new")
        with journal.handling(callback("somebody", "t-somebody")) as may_handle:
            assert not may_handle
    with pytest.raises(ConfigurationError, match="was not moved"):
        move(source, target, undo=True)
    assert move(source, target), "again"
    assert (works(source), works(target)) == (False, True)


def test_what_was_sent_since_is_not_undone_but_can_move_back(urls: tuple[str, str]) -> None:
    source, target = urls
    move(source, target)
    with another_process(target) as journal:
        put(journal, "new")
    for options in ({"undo": True}, {"undo": True, "lost": True}):
        with pytest.raises(ConfigurationError, match=r"has begun payments|can be reached"):
            move(source, target, **options)
    assert (works(source), works(target)) == (False, True)
    moved = rows_of(target)
    assert move(target, source)
    assert rows_of(source) == moved
    assert (works(source), works(target)) == (True, False)
    with another_process(source) as journal:
        put(journal, "newer")


def test_without_its_target_the_old_one_counts_as_restored(urls: tuple[str, str], tmp_path: Path) -> None:
    source, target = urls
    move(source, target)
    lost(target, tmp_path)
    said = move(source, target, undo=True, lost=True)
    assert "accept-restored" in said
    for account in ("default", "second shop"):
        with another_process(source, account=account) as journal:
            with pytest.raises(ConfigurationError, match="accept-restored"):
                put(journal, "new")
            assert "reconcile" in journal.accept_restored(by="Amina")
            put(journal, "new")
    with another_process(source) as journal:
        put(journal, "newer")


def lost(url: str, tmp_path: Path) -> None:
    if url.startswith("sqlite"):
        for each in tmp_path.glob("1.db*"):
            each.rename(each.with_name(f"gone-{each.name}"))
        return
    with connected(url) as connection:
        connection.exec_driver_sql("DROP SCHEMA momopay CASCADE")


# Interruptions


class _KilledError(BaseException):
    """The process dies."""


def die() -> None:
    raise _KilledError


@pytest.mark.parametrize("stride", [17, pytest.param(3, marks=pytest.mark.whole)])
def test_a_move_that_dies_at_any_statement_is_in_one_place_and_goes_on(tmp_path: Path, stride: int) -> None:
    for number, (source, target) in zip(range(1, 1000, stride), pairs(tmp_path), strict=False):
        before = rows_of(source)
        with suppress(_KilledError), before_statement(number, die, stays=True) as struck:
            move(source, target)
        if not struck:
            assert number > 30
            return
        check_interrupted(source, target, before, is_undone=number % 2 == 0)
    raise AssertionError("it has no end")


def pairs(tmp_path: Path) -> Iterator[tuple[str, str]]:
    """Yield the URLs of a small journal and of a new database, again and again."""
    for number in range(1000):
        source = f"sqlite:///{tmp_path / f'source {number}.db'}"
        with Journal(source) as journal:
            put(journal, "a", status="SUCCESS")
            with lease_of(journal) as lease:
                begin(journal, lease, "b")
        yield source, f"sqlite:///{tmp_path / f'target {number}.db'}"


def check_interrupted(source: str, target: str, before: Rows, *, is_undone: bool) -> None:
    """Check a move that died: at most one of the two works, each says which it is, and nothing is lost."""
    working = [url for url in (source, target) if works(url)]
    assert len(working) <= 1, working
    if is_undone:
        with suppress(ConfigurationError):  # there may be nothing to undo
            move(source, target, undo=True)
    if not is_undone or not works(source):
        move(source, target)
    there = target if works(target) else source
    assert rows_of(there) == before
    assert [works(source), works(target)].count(True) == 1
    with another_process(there) as journal:
        put(journal, "after")


def killed_at(source: str, target: str, statement: int, undo: bool) -> None:
    """Move, and kill this process before a statement."""
    count = 0

    def strike(*_arguments: Any) -> None:
        nonlocal count
        count += 1
        if count == statement:
            kill_this_process()

    with Journal(source, create=False) as journal:
        event.listen(Engine, "before_cursor_execute", strike)
        event.listen(Engine, "commit", strike)
        journal.move_to(target, undo=undo)


@pytest.mark.campaign
@pytest.mark.parametrize("urls", DIRECTIONS, ids="-".join, indirect=True)
@pytest.mark.parametrize("undo", [False, True], ids=["move", "undo"])
def test_kill_9_at_every_statement(urls: tuple[str, str], undo: bool, fresh: Callable[[], tuple[str, str]]) -> None:
    step = round(2 / float(os.environ.get("MOMOPAY_CAMPAIGN", "1")) ** 2)
    statement, code = random.randint(1, step), KILLED
    while code == KILLED:
        source, target = fresh()
        if undo:
            move(source, target)
        before = rows_of(target if undo else source)
        process: Any = in_a_fresh_process(killed_at, source, target, statement, undo)
        process.join(60)
        code = process.exitcode or 0
        assert [works(source), works(target)].count(True) <= 1, statement
        if undo:
            with suppress(ConfigurationError):  # it was undone
                move(source, target, undo=True)
            there = source
        else:
            move(source, target)
            there = target
        assert rows_of(there) == before, statement
        assert [works(source), works(target)] == [undo, not undo], statement
        with another_process(there) as journal:
            put(journal, "after")
        statement += step
    assert (code, statement > 30) == (0, True)


@pytest.fixture
def fresh(urls: tuple[str, str], tmp_path: Path, postgresql: PostgresqlServer) -> Callable[[], tuple[str, str]]:
    """Return what makes a small journal and names a new database, of the same kinds as `urls`."""
    count = 0

    def make() -> tuple[str, str]:
        nonlocal count
        count += 1
        made = [
            f"sqlite:///{tmp_path / f'{count} {number}.db'}" if url.startswith("sqlite") else postgresql.new_schema()
            for number, url in enumerate(urls)
        ]
        with another_process(made[0]) as journal:
            put(journal, "a", status="SUCCESS")
            put(journal, "b", UNKNOWN)
        return made[0], made[1]

    return make
