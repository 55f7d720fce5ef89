"""What the tests of the journal share."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from decimal import Decimal
from pathlib import Path
from types import EllipsisType
from typing import Any, TypeVar

from sqlalchemy import Engine, event

from momopay import Callback, Journal, JournalEntry, JournalState, Transaction, parse_callback
from momopay.journal.evidence import Report
from momopay.journal.journal import parts_of
from momopay.journal.lease import Lease
from momopay.journal.prepared import Prepared, Result

T = TypeVar("T")
PHONE = "254712345678"
TESTS = Path(__file__).parents[1]


def lease_of(journal: Journal) -> AbstractContextManager[Lease]:
    """Take a lease, which ends with the context."""
    return payments_of(journal).leases.lease()


def begin(
    journal: Journal,
    lease: Lease,
    reference: str = "r",
    *,
    amount: Decimal | int = 10,
    seconds: float = 600,
    read: JournalEntry | EllipsisType | None = ...,
) -> JournalEntry | None:
    """Begin a payout as a call does that has read the row; None if it may be sent."""
    return payments_of(journal).begin(
        lease,
        reference=reference,
        amount=Decimal(amount),
        phone=PHONE,
        body_hash="hash",
        seconds=seconds,
        read=journal.get(reference) if isinstance(read, EllipsisType) else read,
    )


def record(journal: Journal, lease: Lease, state: JournalState, reference: str = "r", **known: Any) -> None:
    """Record how a payout ended."""
    payments = payments_of(journal)
    if state is JournalState.ACCEPTED:
        payments.accept(reference, Report(known.get("transaction_id", f"t-{reference}")), lease=lease)
    else:
        payments.record_outcome(lease, reference, state, **known)


def put(journal: Journal, reference: str, state: JournalState, **known: str) -> JournalEntry:
    """Bring a new reference into a state."""
    with lease_of(journal) as lease:
        assert begin(journal, lease, reference) is None
        record(journal, lease, state, reference, **known)
    return found(journal, reference)


def found(journal: Journal, reference: str = "r") -> JournalEntry:
    """Return the entry of a reference that is in the journal."""
    entry = journal.get(reference)
    assert entry is not None
    return entry


def execute(journal: Journal, statement: str) -> None:
    """Change the journal's database behind its back."""
    with journal._database.connection() as connection:
        connection.exec_driver_sql(statement)


def put_collection(
    journal: Journal, reference: str = "o", amount: int = 100, statuses: Sequence[str] = ("SUCCESS",)
) -> None:
    """Put a collection into the journal, with a prompt in each of these statuses."""
    journal.get(reference)  # creates the tables
    now, status = "2026-11-20T10:00:00.000001+00:00", "SUCCESS" if "SUCCESS" in statuses else statuses[-1]
    ended = f"'{now}'" if status != "PENDING" else "NULL"
    execute(
        journal,
        "INSERT INTO momopay_payments (account, kind, reference, amount, phone, body_hash, state, transaction_id,"
        " attempts, status, created_at, sent_at, ended_at, claim, sender, lease_until) VALUES ('default', 'COLLECTION',"
        f" '{reference}', '{amount}', '{PHONE}', 'hash', 'ACCEPTED', '{reference}-0', {len(statuses)}, '{status}',"
        f" '{now}', '{now}', {ended}, '', '', 0)",
    )
    for number, each in enumerate(statuses):
        execute(
            journal,
            "INSERT INTO momopay_prompts (account, transaction_id, reference, status, sent_at)"
            f" VALUES ('default', '{reference}-{number}', '{reference}', '{each}', '{now}')",
        )


def fill(journal: Journal, count: int) -> None:
    """Put so many payouts into the journal, of which each two were made at one moment."""
    put(journal, "first", JournalState.ACCEPTED)
    is_postgresql = "postgresql" in repr(journal)
    series = "" if is_postgresql else f"WITH RECURSIVE s(n) AS (SELECT 1 UNION SELECT n + 1 FROM s WHERE n < {count}) "
    numbers = f"generate_series(1, {count}) AS s(n)" if is_postgresql else "s"
    micros = "lpad((n / 2)::text, 6, '0')" if is_postgresql else "substr('000000' || (n / 2), -6)"
    when = f"'2026-11-20T10:00:00.' || {micros} || '+00:00'"
    execute(
        journal,
        "INSERT INTO momopay_payments (account, kind, reference, amount, phone, body_hash, state, transaction_id,"
        f" attempts, created_at, sent_at, claim, sender, lease_until) {series}SELECT 'default', 'PAYOUT', 'p-' || n,"
        f" '10', '{PHONE}', 'hash', 'ACCEPTED', 't-' || n, 1, {when}, {when}, '', '', 0 FROM {numbers}",
    )


@contextmanager
def just_before(statement: str, journal: Journal, work: Callable[[], object]) -> Generator[None]:
    """Do something in the moment before the journal's next statement of that kind."""
    pending = [work]

    def interfere(text: str) -> None:
        if pending and text.startswith(statement):
            pending.pop()()

    with before_each(interfere, journal._database._own.database.engine):
        yield
    assert not pending, f"there was no {statement}"


@contextmanager
def before_each(work: Callable[[str], object], wanted: Engine | None = None) -> Generator[None]:
    """Do something with the text of each statement just before an engine, or any, executes it."""

    def listen(_connection: object, _cursor: object, text: str, *_rest: object) -> None:
        work(text)

    execute = Prepared.execute

    def intercepted(
        self: Prepared, engine: Engine, values: Mapping[str, object], before: Callable[[Any], object] | None = None
    ) -> Result:
        def interfere(cursor: Any) -> None:
            if wanted in {None, engine}:
                work(self._compiled[engine.dialect.name].text)
            if before is not None:
                before(cursor)

        return execute(self, engine, values, interfere)

    event.listen(wanted or Engine, "before_cursor_execute", listen)
    Prepared.execute = intercepted  # type: ignore[method-assign]
    try:
        yield
    finally:
        Prepared.execute = execute  # type: ignore[method-assign]
        event.remove(wanted or Engine, "before_cursor_execute", listen)


def in_threads(count: int, work: Callable[[], T]) -> list[T]:
    """Do the same in so many threads at once; return what each returned."""
    together = threading.Barrier(count)

    def start(_number: int) -> T:
        together.wait()
        return work()

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(start, range(count)))


def payout(reference: str | None = "r", **fields: Any) -> Transaction:
    """Make the service's record of a payout."""
    return Transaction.model_validate(
        {
            "transactionId": "the-id",
            "type": "B2C",
            "status": "SUCCESS",
            "amount": 10,
            "phone": PHONE,
            "accountReference": reference,
            "createdAt": "2026-11-20T10:00:00Z",
            "updatedAt": "2026-11-20T10:00:00Z",
            **fields,
        }
    )


def callback_body(reference: str = "r", identity: str = "the-id", status: str = "SUCCESS", **fields: Any) -> Any:
    """Make the body of a payout's callback."""
    return {
        "event": "transaction.updated",
        "event_type": f"transaction.{status.lower()}",
        "transaction": {
            "id": identity,
            "type": "B2C",
            "status": status,
            "amount": 10,
            "phone_number": PHONE,
            "external_reference": reference,
            "created_at": "2026-11-20T10:00:00Z",
            "updated_at": "2026-11-20T10:00:00Z",
            **fields,
        },
    }


def callback(reference: str = "r", identity: str = "the-id", status: str = "SUCCESS", **fields: Any) -> Callback:
    """Make a payout's callback."""
    return parse_callback(callback_body(reference, identity, status, **fields))


class Sender:
    """Another process that holds something in the journal."""

    def __init__(self, url: str, kind: str, reference: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "journal.sender", url, kind, reference],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=TESTS,
        )

    def says(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def go(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("!")
        self.process.stdin.flush()

    def kill(self) -> None:
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def end(self) -> None:
        """Let it return."""
        self.process.communicate()


@contextmanager
def sender(url: str, kind: str = "payout", reference: str = "r") -> Generator[Sender]:
    """Start a process that holds a reference, or a callback, in the journal."""
    started = Sender(url, kind, reference)
    try:
        yield started
    finally:
        if started.process.poll() is None:
            started.kill()
        for pipe in (started.process.stdin, started.process.stdout):
            assert pipe is not None
            pipe.close()
