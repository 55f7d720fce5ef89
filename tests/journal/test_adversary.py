"""What an adversary does to the journal: forks, links, outages, a close in the middle, a database that lies."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

from drivers import Driver
from journal.kit import PHONE, TESTS, begin, callback, found, put
from momopay import (
    AsyncClient,
    ConfigurationError,
    Journal,
    JournalError,
    JournalState,
    OutcomeUnknownError,
    Payout,
    RequestValidationError,
)
from momopay._core.call import Call
from momopay.journal.journal import payments_of
from momopay.sandbox import Sandbox
from postgresql import PostgresqlServer
from virtual import envelope

forks = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")  # what is tested here


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "payouts.db"


@pytest.fixture
def key(key: str, sandbox: Sandbox) -> str:
    sandbox.account(key).rate_limit = None
    return key


def paid(sandbox: Sandbox) -> list[str | None]:
    return [movement.reference for movement in sandbox.ledger if movement.kind == "payout"]


def in_a_fork(work: Callable[[], object]) -> int | None:
    child = multiprocessing.get_context("fork").Process(target=work)
    child.start()
    child.join(30)
    return child.exitcode


def test_a_database_that_takes_no_row_and_shows_none_lets_nothing_be_sent(path: Path) -> None:
    with Journal(f"sqlite:///{path}") as journal:
        journal.get("r")
        with journal._database.connection() as connection:
            connection.exec_driver_sql(
                "CREATE TRIGGER lost BEFORE INSERT ON momopay_payouts BEGIN SELECT RAISE(IGNORE); END"
            )
        with payments_of(journal).leases.lease() as lease, pytest.raises(JournalError, match="neither took the row"):
            begin(journal, lease)


def test_an_acceptance_that_comes_after_a_release_is_kept(journal: Journal, url: str) -> None:
    with Journal(url) as human, payments_of(journal).leases.lease() as lease:
        begin(journal, lease, seconds=0)
        human.release("r")
        payments_of(journal).record_outcome(lease, "r", JournalState.ACCEPTED, transaction_id="t")
    assert (found(journal).state, found(journal).transaction_id) == (JournalState.ACCEPTED, "t")


def test_no_other_end_undoes_a_release(journal: Journal, url: str) -> None:
    with Journal(url) as human, payments_of(journal).leases.lease() as lease:
        begin(journal, lease, seconds=0)
        human.release("r")
        payments_of(journal).record_outcome(lease, "r", JournalState.REFUSED)
    assert found(journal).state is JournalState.NOT_SENT


READ = """
import sys
from journal.kit import found
from momopay import Journal
with Journal(sys.argv[1]) as journal:
    for reference in ("before", "after"):
        found(journal, reference)
"""


@forks
def test_what_a_forked_child_commits_outlasts_its_parents_journal(path: Path) -> None:
    url = f"sqlite:///{path}"
    forked = multiprocessing.get_context("fork")
    written, closed = forked.Event(), forked.Event()
    journal = Journal(url)
    put(journal, "of the parent", JournalState.ACCEPTED)

    def child() -> None:
        put(journal, "before", JournalState.ACCEPTED)
        written.set()
        assert closed.wait(30)
        put(journal, "after", JournalState.ACCEPTED)
        subprocess.run([sys.executable, "-c", READ, url], cwd=TESTS, check=True)

    process = forked.Process(target=child)
    process.start()
    assert written.wait(30)
    journal.close()
    closed.set()
    process.join(30)
    assert process.exitcode == 0


@forks
def test_a_child_in_another_folder_has_its_parents_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "here")
    with Journal("sqlite:///payouts.db") as journal:

        def child() -> None:
            os.chdir(tmp_path / "there")
            put(journal, "of the child", JournalState.ACCEPTED)

        assert in_a_fork(child) == 0
        assert found(journal, "of the child").state is JournalState.ACCEPTED
    assert list((tmp_path / "there").iterdir()) == []


@forks
def test_a_child_that_leaves_its_parents_call_says_nothing_of_it(journal: Journal) -> None:
    with payments_of(journal).leases.lease() as lease:
        begin(journal, lease)
        assert in_a_fork(lambda: payments_of(journal).record_outcome(lease, "r", JournalState.NOT_SENT)) == 0
        assert found(journal).state is JournalState.SENDING


@pytest.mark.parametrize("answer", [(500, b""), (201, b"{"), (302, b"")])
def test_an_interrupt_just_after_an_unclear_answer_leaves_the_row_in_doubt(
    drive: Callable[..., Driver], path: Path, monkeypatch: pytest.MonkeyPatch, answer: tuple[int, bytes]
) -> None:
    async def interrupted(_call: object, _failed: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Call, "_apply_pauses", interrupted)
    with Journal(f"sqlite:///{path}") as journal:
        sdk = drive(transport=httpx.MockTransport(lambda _request: httpx.Response(answer[0], content=answer[1])))
        with pytest.raises(KeyboardInterrupt):
            sdk(lambda client: client.payouts.pay_once(journal=journal, reference="r", amount=10, phone=PHONE))
        assert found(journal).state is JournalState.UNKNOWN


class Service:
    """Answers as it is told to, and counts what could pay."""

    def __init__(self, initiation: Any, records: list[Any] | None = None, *, reads: int = 404) -> None:
        self.initiations = 0
        self._initiation = initiation
        self._pages = [records or []]
        self._reads = reads

    def show_twice(self) -> None:
        """Let the list shift under whoever walks it."""
        self._pages *= 2

    def __call__(self, request: httpx.Request) -> httpx.Response:
        if request.method == "POST":
            self.initiations += 1
            return httpx.Response(201, json=envelope(self._initiation))
        if request.url.path.endswith("/transactions"):
            page = int(request.url.params.get("cursor", "0"))
            more = str(page + 1) if page + 1 < len(self._pages) else None
            overview = {"total": 1, "completed": 1, "failed": 0, "pending": 0}
            listed = {"items": self._pages[page], "overview": overview, "nextCursor": more}
            return httpx.Response(200, json=envelope(listed))
        return httpx.Response(self._reads, text="<html>")


def record(**fields: Any) -> dict[str, Any]:
    now = datetime.now(UTC).isoformat()
    return {"transactionId": "t-1", "type": "B2C", "status": "PENDING", "amount": 10, "phone": PHONE,
            "createdAt": now, "updatedAt": now, **fields}  # fmt: skip


def once(journal: Journal) -> Callable[[Any], Any]:
    return lambda client: client.payouts.pay_once(journal=journal, reference="r", amount=10, phone=PHONE)


@pytest.mark.parametrize(
    "initiation", [record(reference="another"), record(transactionId=" "), record(transactionId="")]
)
def test_another_payouts_record_is_not_taken_for_this_one(
    drive: Callable[..., Driver], path: Path, initiation: Any
) -> None:
    service = Service(initiation, [record(accountReference="r")])
    with Journal(f"sqlite:///{path}") as journal:
        sdk = drive(transport=httpx.MockTransport(service))
        with pytest.raises(OutcomeUnknownError) as caught:
            sdk(once(journal))
        assert found(journal).state is JournalState.UNKNOWN
        assert caught.value.transaction_id == found(journal).transaction_id
        assert sdk(once(journal)).transaction_id == "t-1"
    assert service.initiations == 1


def test_a_blank_reference_in_the_answer_is_no_other(drive: Callable[..., Driver], path: Path) -> None:
    with Journal(f"sqlite:///{path}") as journal:
        sdk = drive(transport=httpx.MockTransport(Service(record(reference=""))))
        assert sdk(once(journal)).transaction_id == "t-1"
        assert found(journal).state is JournalState.ACCEPTED


def test_what_is_no_journal_is_refused(drive: Callable[..., Driver]) -> None:
    service: Any = Service(record())
    nothing: Any = None
    with pytest.raises(ConfigurationError):
        drive(transport=httpx.MockTransport(service))(once(nothing))
    assert service.initiations == 0


@pytest.mark.usefixtures("no_backoff")
@pytest.mark.parametrize("status", [400, 404, 500])
def test_an_id_that_cannot_be_read_leaves_the_list_to_tell(
    drive: Callable[..., Driver], path: Path, status: int
) -> None:
    service = Service({"transactionId": "queued"}, [record(accountReference="r")], reads=status)
    service.show_twice()
    with Journal(f"sqlite:///{path}") as journal:
        sdk = drive(transport=httpx.MockTransport(service))
        with pytest.raises(OutcomeUnknownError):
            sdk(once(journal))
        assert found(journal).transaction_id == "queued"
        assert sdk(once(journal)).transaction_id == "t-1"
        assert found(journal).state is JournalState.ACCEPTED
    assert service.initiations == 1


def test_a_search_ends_with_the_calls_deadline(drive: Callable[..., Driver], path: Path) -> None:
    pages: list[int] = []

    def a_page(_request: httpx.Request) -> httpx.Response:
        pages.append(len(pages))
        time.sleep(0.02)
        overview = {"total": 1, "completed": 1, "failed": 0, "pending": 0}
        more = str(len(pages)) if len(pages) < 200 else None
        listed = {"items": [record(accountReference="another")], "overview": overview, "nextCursor": more}
        return httpx.Response(200, json=envelope(listed))

    with Journal(f"sqlite:///{path}") as journal:
        put(journal, "r", JournalState.UNKNOWN)
        with pytest.raises(OutcomeUnknownError, match="the search failed") as caught:
            drive(transport=httpx.MockTransport(a_page), deadline=0.3)(once(journal))
        assert found(journal).state is JournalState.UNKNOWN
    assert caught.value.may_have_executed
    assert 0 < len(pages) < 200


def test_an_older_payout_of_the_same_reference_settles_nothing(drive: Callable[..., Driver], path: Path) -> None:
    days_ago = (datetime.now(UTC) - timedelta(days=3)).isoformat()
    service = Service({}, [record(accountReference="r", createdAt=days_ago, updatedAt=days_ago)])
    with Journal(f"sqlite:///{path}") as journal:
        sdk = drive(transport=httpx.MockTransport(service))
        for _ in range(2):
            with pytest.raises(OutcomeUnknownError):
                sdk(once(journal))
        assert found(journal).state is JournalState.UNKNOWN
    assert service.initiations == 1


@forks
def test_a_child_that_was_forked_while_the_file_was_in_use_refuses_it(path: Path) -> None:
    with Journal(f"sqlite:///{path}") as journal:
        put(journal, "r", JournalState.UNKNOWN)

        def child() -> None:
            with pytest.raises(JournalError, match="forked while"):
                journal.get("r")

        with journal._database.connection():
            assert in_a_fork(child) == 0
        assert found(journal).state is JournalState.UNKNOWN


@forks
def test_a_child_that_closes_the_journal_leaves_its_parent_alive(journal: Journal, url: str) -> None:
    with Journal(url) as elsewhere, payments_of(journal).leases.lease() as lease:
        begin(journal, lease)
        assert in_a_fork(journal.close) == 0
        assert found(elsewhere).state is JournalState.SENDING
        with pytest.raises(RequestValidationError, match="is being sent"):
            elsewhere.release("r")


@forks
def test_a_child_is_not_stopped_by_a_lock_that_another_thread_held(path: Path) -> None:
    with Journal(f"sqlite:///{path}") as journal:
        put(journal, "r", JournalState.UNKNOWN)
        with journal._database._own.lock:
            assert in_a_fork(lambda: found(journal)) == 0


def test_one_file_by_two_names_is_one_journal(tmp_path: Path, path: Path) -> None:
    link = tmp_path / "elsewhere" / "link.db"
    link.parent.mkdir()
    link.symlink_to(path)
    with (
        Journal(f"sqlite:///{path}") as journal,
        Journal(f"sqlite:///{link}") as by_link,
        payments_of(journal).leases.lease() as lease,
    ):
        begin(journal, lease)
        assert found(by_link).state is JournalState.SENDING


def test_a_sender_whose_lock_file_was_deleted_is_known_again(path: Path) -> None:
    url = f"sqlite:///{path}"
    with Journal(url) as journal, Journal(url) as elsewhere, payments_of(journal).leases.lease() as lease:
        begin(journal, lease, "before")
        shutil.rmtree(path.with_name("payouts.db-senders"))
        assert found(elsewhere, "before").state is JournalState.UNKNOWN  # it cannot be told from a dead one
        begin(journal, lease, "after")
        assert found(elsewhere, "before").state is JournalState.SENDING
        assert found(elsewhere, "after").state is JournalState.SENDING


def test_a_journal_outlives_an_outage_of_its_server(postgresql: PostgresqlServer) -> None:
    url = postgresql.new_database()
    name = url.rpartition("/")[2]

    def allow(word: str) -> None:
        with psycopg.connect(postgresql._conninfo, autocommit=True) as connection:
            connection.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS {word}'.encode())

    with Journal(url) as journal, Journal(url) as elsewhere:
        put(journal, "before", JournalState.NOT_SENT)
        allow("false")
        postgresql.disconnect_all()
        for _ in range(2):
            with pytest.raises(JournalError, match="OperationalError"):
                put(journal, "during", JournalState.NOT_SENT)
        allow("true")
        with payments_of(journal).leases.lease() as lease:
            assert begin(journal, lease, "after") is None
            assert found(elsewhere, "after").state is JournalState.SENDING


def test_those_who_look_at_the_dead_at_once_do_not_take_one_another_for_it(postgresql: PostgresqlServer) -> None:
    url = postgresql.new_database()
    with Journal(url) as dead, payments_of(dead).leases.lease() as lease:
        begin(dead, lease)
    with Journal(url) as one, Journal(url) as other:
        sender = payments_of(one)._row("r")
        assert sender is not None
        with one._database.connection() as connection:
            held = "SELECT pg_advisory_lock_shared(%s)"
            connection.exec_driver_sql(held, (int(sender["sender"]),))
            assert found(other).state is JournalState.UNKNOWN


@pytest.mark.parametrize(
    "url",
    [
        "postgres://u@h/d",
        "postgresql+asyncpg://u@h/d",
        "postgresql+psycopg_async://u@h/d",
        "postgresql+pg8000://u@h/d",
        "postgresql+psycopg://u@h:x/d",
        "sqlite+aiosqlite:///payouts.db",
    ],
)
def test_a_url_that_another_driver_would_take_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationError):
        Journal(url)


def test_text_that_no_database_holds_is_told_by_a_typed_error(journal: Journal) -> None:
    with pytest.raises(JournalError, match="text that no database holds"):
        put(journal, "\ud800", JournalState.NOT_SENT)


def test_references_that_look_alike_are_not_the_same(journal: Journal) -> None:
    put(journal, "r", JournalState.ACCEPTED)
    for reference in ["r ", " r", "R", "\u202er", "😀", "'; --", "\u00e9", "e\u0301", "x" * 2000]:
        assert journal.get(reference) is None
        assert put(journal, reference, JournalState.NOT_SENT).reference == reference


def test_the_error_of_a_handler_is_the_one_that_is_raised(journal: Journal) -> None:
    def handle() -> None:
        with journal.handling(callback()):
            journal.close()
            raise KeyError

    with pytest.raises(KeyError):
        handle()


class _ClosesBlocking(httpx.HTTPTransport):
    journal: Journal

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        response = super().handle_request(request)
        self.journal.close()
        return response


class _ClosesAsync(httpx.AsyncHTTPTransport):
    journal: Journal

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        response = await super().handle_async_request(request)
        self.journal.close()
        return response


def test_a_journal_closed_under_a_payment_hides_nothing(
    drive: Callable[..., Driver], colour: str, sandbox: Sandbox, key: str, path: Path
) -> None:
    journal = Journal(f"sqlite:///{path}")
    transport: Any = _ClosesBlocking() if colour == "blocking" else _ClosesAsync()
    transport.journal = journal
    sdk = drive(api_key=key, base_url=sandbox.base_url, transport=transport)
    payout = sdk(lambda client: client.payouts.pay_once(journal=journal, reference="r", amount=10, phone=PHONE))
    assert isinstance(payout, Payout)
    assert paid(sandbox) == ["r"]
    with Journal(f"sqlite:///{path}") as later:
        assert found(later).state is JournalState.UNKNOWN


def test_an_outcome_that_the_disk_does_not_take_is_in_doubt_and_never_lost(
    drive: Callable[..., Driver], sandbox: Sandbox, key: str, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Journal(f"sqlite:///{path}") as journal:
        sdk = drive(api_key=key, base_url=sandbox.base_url)
        journal.get("r")
        with sqlite3.connect(path) as connection:
            connection.execute(
                "CREATE TRIGGER full BEFORE UPDATE ON momopay_payouts BEGIN SELECT RAISE(ABORT, 'disk full'); END"
            )
        connection.close()
        paying = {"journal": journal, "reference": "r", "amount": 10, "phone": PHONE}
        assert isinstance(sdk(lambda client: client.payouts.pay_once(**paying)), Payout)
        assert found(journal).state is JournalState.UNKNOWN
        sdk(lambda client: client.payouts.pay_once(**paying))
    assert "disk full" in caplog.text
    assert paid(sandbox) == ["r"]


def test_two_hundred_at_once_do_not_starve_for_connections(
    postgresql: PostgresqlServer, sandbox: Sandbox, key: str
) -> None:
    async def main() -> list[Any]:
        async with AsyncClient(key, base_url=sandbox.base_url, budget=None) as client:
            pay = client.payouts.pay_once
            calls = [pay(journal=journal, reference=f"r{number}", amount=10, phone=PHONE) for number in range(200)]
            return list(await asyncio.gather(*calls))

    with Journal(postgresql.new_database()) as journal:
        results = asyncio.run(main())
    assert {type(each) for each in results} == {Payout}
    assert sorted(map(str, paid(sandbox))) == sorted(f"r{number}" for number in range(200))
