"""What the tests of the journal share."""

from __future__ import annotations

import os
import signal
import sqlite3
import threading
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing, contextmanager
from datetime import datetime
from decimal import Decimal
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from types import EllipsisType, SimpleNamespace
from typing import Any, TypeVar
from unittest.mock import patch

import pytest
from sqlalchemy import Engine, event

from forked import in_a_fresh_process
from momopay import (
    Callback,
    Client,
    EntryKind,
    Journal,
    JournalEntry,
    JournalError,
    JournalState,
    Transaction,
    TransactionStatus,
    parse_callback,
)
from momopay.journal.database import bounded
from momopay.journal.evidence import Draft, Evidence
from momopay.journal.journal import internals
from momopay.journal.leases import Lease
from momopay.journal.postgresql import BoundedConnection
from momopay.journal.store import Store

T = TypeVar("T")
PHONE = "254712345678"
PAYOUT, COLLECTION = EntryKind.PAYOUT, EntryKind.COLLECTION
SENDING, ACCEPTED, REFUSED, NOT_SENT, UNKNOWN = (
    JournalState.SENDING,
    JournalState.ACCEPTED,
    JournalState.REFUSED,
    JournalState.NOT_SENT,
    JournalState.UNKNOWN,
)
ENDED_AT = "2026-11-20T10:00:00+00:00"
# Without a zone, and one that UTC does not have.
NO_TIMES = datetime(2026, 11, 1), datetime.fromisoformat("0001-01-01T00:00:00+03:00")  # noqa: DTZ001


def entry_of(
    *statuses: str | None,
    kind: EntryKind = COLLECTION,
    state: JournalState = ACCEPTED,
    amount: int = 100,
    **fields: Any,
) -> JournalEntry:
    """Make the entry of a payment, with a transaction in each of these statuses, without a journal."""
    fields = {"reference": "o", "attempts": len(statuses), "sent_at": ENDED_AT, "created_at": ENDED_AT, **fields}
    fields = {"phone": PHONE, "wire_reference": fields["reference"], **fields}
    made = [
        {"transaction_id": f"t-{number}", "amount": amount, "phone": PHONE, "status": status, "sent_at": ENDED_AT}
        for number, status in enumerate(statuses)
    ]
    return JournalEntry.model_validate({"kind": kind, "state": state, "amount": amount, "transactions": made} | fields)


# Payments, as durable calls write them


def store_of(journal: Journal) -> Store:
    """Return the journal's payments."""
    return internals(journal).store


def lease_of(journal: Journal) -> AbstractContextManager[Lease]:
    """Take a lease, which ends with the context."""
    return store_of(journal).leases.lease()


def draft(reference: str = "r", kind: EntryKind = PAYOUT, *, amount: Decimal | int = 10, **fields: Any) -> Draft:
    """Return what is about to be sent."""
    known: dict[str, Any] = {"phone": PHONE, "wire_reference": reference, **fields}
    return Draft(kind=kind, reference=reference, amount=Decimal(amount), **known)


def begin(
    journal: Journal,
    lease: Lease,
    reference: str = "r",
    kind: EntryKind = PAYOUT,
    *,
    seconds: float = 600,
    read: JournalEntry | EllipsisType | None = ...,
    **fields: Any,
) -> bool:
    """Begin a payment as a call does that has read the row; return whether it may be sent."""
    if isinstance(read, EllipsisType):
        read = journal.get(reference, kind)
    return store_of(journal).begin(lease, draft(reference, kind, **fields), seconds, read=read)


def record(
    journal: Journal,
    lease: Lease,
    state: JournalState,
    reference: str = "r",
    kind: EntryKind = PAYOUT,
    *,
    transaction_id: str | None = None,
    status: str | None = None,
    **known: Any,
) -> None:
    """Record how a payment ended, as the call that sent it does."""
    store, payment = store_of(journal), draft(reference, kind)
    if state is ACCEPTED:
        told = report(transaction_id or f"t-{reference}", status, source="answer")
        store.record(payment, told, lease=lease, **known)
    else:
        store.record_outcome(lease, payment, state, **known)


def put(
    journal: Journal,
    reference: str = "r",
    state: JournalState = ACCEPTED,
    kind: EntryKind = PAYOUT,
    *,
    amount: int = 10,
    refund_of: str | None = None,
    **known: Any,
) -> JournalEntry:
    """Bring a reference into a state by an attempt; return its entry."""
    with lease_of(journal) as lease:
        assert begin(journal, lease, reference, kind, amount=amount, refund_of=refund_of)
        record(journal, lease, state, reference, kind, **known)
    return found(journal, reference, kind)


def put_collection(
    journal: Journal, reference: str = "o", amount: int = 100, statuses: Sequence[str] = ("SUCCESS",)
) -> JournalEntry:
    """Put an order into the journal, with a prompt in each of these statuses, sent at ten o'clock; return its entry."""
    for number, status in enumerate(statuses):
        identity = f"{reference}-{number}"
        put(journal, reference, ACCEPTED, COLLECTION, amount=amount, transaction_id=identity, status=status)
        then = f"'2026-11-20T10:00:00.{number + 1:06}+00:00'"
        execute(journal, f"UPDATE momopay_transactions SET sent_at = {then} WHERE transaction_id = '{identity}'")
    then = "'2026-11-20T10:00:00.000001+00:00'"
    where = f"reference = '{reference}' AND kind = 'COLLECTION'"
    execute(journal, f"UPDATE momopay_payments SET created_at = {then}, sent_at = {then} WHERE {where}")
    return found(journal, reference, COLLECTION)


def fill(journal: Journal, count: int) -> None:
    """Put so many accepted payouts into the journal, of which each two were made at one moment."""
    put(journal, "first")
    is_postgresql = "postgresql" in repr(journal)
    series = "" if is_postgresql else f"WITH RECURSIVE s(n) AS (SELECT 1 UNION SELECT n + 1 FROM s WHERE n < {count}) "
    numbers = f"generate_series(1, {count}) AS s(n)" if is_postgresql else "s"
    micros = "lpad((n / 2)::text, 6, '0')" if is_postgresql else "substr('000000' || (n / 2), -6)"
    when = f"'2026-11-20T10:00:00.' || {micros} || '+00:00'"
    execute(
        journal,
        "INSERT INTO momopay_payments (account, kind, reference, amount, phone, state, attempts, created_at,"
        " sent_at, wire_reference, revision, claim, sender, machine, lease_seconds, lease_until)"
        f" {series}SELECT 'default', 'PAYOUT',"
        f" 'p-' || n, '10', '{PHONE}', 'ACCEPTED', 1, {when}, {when}, 'p-' || n, 1, '', '', '', 0, 0 FROM {numbers}",
    )
    execute(
        journal,
        "INSERT INTO momopay_transactions (account, transaction_id, kind, reference, amount, phone, sent_at)"
        f" {series}SELECT 'default', 't-' || n, 'PAYOUT', 'p-' || n, '10', '{PHONE}', {when} FROM {numbers}",
    )


def found(journal: Journal, reference: str = "r", kind: EntryKind | None = None) -> JournalEntry:
    """Return the entry of a reference that is in the journal."""
    entry = journal.get(reference, kind)
    assert entry is not None, f"the journal has no {reference!r}"
    return entry


def state_of(journal: Journal, reference: str = "r", kind: EntryKind | None = None) -> JournalState:
    """Return the state of an entry that is in the journal: a failure shows the state, and not the whole entry."""
    return found(journal, reference, kind).state


def statuses_of(entry: JournalEntry) -> list[str]:
    """Return the id and the status of each transaction, oldest first."""
    return [f"{each.transaction_id} {each.status}" for each in entry.transactions]


# What the service says


def report(transaction_id: str, status: str | None = None, **fields: Any) -> Evidence:
    """Return what the service's record says of a transaction."""
    known = None if status is None else TransactionStatus(status)
    if known is not None and known.is_terminal:
        fields = {"ended_at": ENDED_AT, **fields}
    return Evidence(transaction_id, known, **fields)


def payout(reference: str | None = "r", **fields: Any) -> Transaction:
    """Make the service's record of a payout."""
    said = {"transactionId": "the-id", "type": "B2C", "status": "SUCCESS", "amount": 10, "phone": PHONE}
    times = dict.fromkeys(("createdAt", "updatedAt"), "2026-11-20T10:00:00Z")
    return Transaction.model_validate({**said, "accountReference": reference, **times, **fields})


def callback_body(reference: str = "r", identity: str = "the-id", status: str = "SUCCESS", **fields: Any) -> Any:
    """Make the body of a payout's callback."""
    said = {"id": identity, "type": "B2C", "status": status, "amount": 10, "phone_number": PHONE}
    times = dict.fromkeys(("created_at", "updated_at"), "2026-11-20T10:00:00Z")
    transaction = {**said, "external_reference": reference, **times, **fields}
    return {"event": "transaction.updated", "event_type": f"transaction.{status.lower()}", "transaction": transaction}


def callback(reference: str = "r", identity: str = "the-id", status: str = "SUCCESS", **fields: Any) -> Callback:
    """Make a payout's callback."""
    return parse_callback(callback_body(reference, identity, status, **fields))


# Behind the journal's back


def execute(journal: Journal, statement: str) -> list[Any]:
    """Execute a statement in the journal's database; return the rows that it yields."""
    with store_of(journal).database.connection() as connection:
        result = connection.exec_driver_sql(statement)
        return list(result) if result.returns_rows else []


def engine_of(journal: Journal) -> Any:
    """Return what this process uses the journal's database by."""
    with store_of(journal).database.connection() as connection:
        return connection.engine


@contextmanager
def before_each(
    work: Callable[[str], object], journal: Journal | None = None, moment: str = "before"
) -> Generator[None]:
    """Do something with the text of each statement just before, or "after", a journal, or any, executes it."""

    def listen(_connection: object, _cursor: object, text: str, *_rest: object) -> None:
        work(text)

    def execute_itself(connection: Any, text: Any, *values: Any, **options: Any) -> Any:
        if str(text).endswith("BEGIN") and moment == "before":
            work("BEGIN")
        return execute(connection, text, *values, **options)

    engine, execute = Engine if journal is None else engine_of(journal), BoundedConnection.execute
    event.listen(engine, f"{moment}_cursor_execute", listen)
    try:
        with patch.object(BoundedConnection, "execute", execute_itself):  # PostgreSQL's BEGIN does not pass SQLAlchemy
            yield
    finally:
        event.remove(engine, f"{moment}_cursor_execute", listen)


@contextmanager
def before_statement(
    number: int, work: Callable[[], object], journal: Journal | None = None, *, stays: bool = False
) -> Generator[list[int]]:
    """Do something before statement `number`, counted from 1; if it `stays`, also before all later ones.

    What the work itself executes is not counted. Yields the numbers of the statements before which it was done.
    """
    count, is_working = 0, False
    struck = list[int]()

    def strike(_text: str) -> None:
        nonlocal count, is_working
        if is_working:
            return
        count += 1
        if count == number or (stays and count > number):
            struck.append(count)
            is_working = True
            try:
                work()
            finally:
                is_working = False

    with before_each(strike, journal):
        yield struck


@contextmanager
def just_before(
    statement: str, journal: Journal, work: Callable[[], object], moment: str = "before"
) -> Generator[None]:
    """Do something in the moment before, or "after", the journal's next statement that begins so.

    After BEGIN a payment's transaction keeps other writers out: whoever writes here would wait for this thread.
    """
    pending = [work]

    def interfere(text: str) -> None:
        if pending and text.startswith(statement):
            pending.pop()()

    with before_each(interfere, journal, moment):
        yield
    assert not pending, f"there was no {statement}"


@contextmanager
def locked(url: str) -> Generator[sqlite3.Connection]:
    """Lock the file of a journal against all who write."""
    path = url.removeprefix("sqlite:///")
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as other:
        other.execute("BEGIN EXCLUSIVE")
        yield other


def in_threads(count: int, work: Callable[[], T]) -> list[T]:
    """Do the same in so many threads at once; return what each returned."""
    together = threading.Barrier(count)

    def start(_number: int) -> T:
        together.wait()
        return work()

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(start, range(count)))


# Waits

BOUND = 0.2
"""Seconds for which the tests wait."""
MUCH = 8.0
"""Seconds that a busy machine may need more. Whatever does not end takes longer."""


@contextmanager
def refused_in_time(match: str | None = None) -> Generator[None]:
    """Expect a JournalError when the time is over, and no later."""
    begun = time.monotonic()
    with pytest.raises(JournalError, match=match), bounded(BOUND):
        yield
    assert time.monotonic() - begun < BOUND + MUCH


def stopped_clock() -> AbstractContextManager[object]:
    """Let no time pass for what waits for the database, so that a busy machine ends no wait."""
    return patch("momopay.journal.database.time", SimpleNamespace(monotonic=lambda: 0.0))


# Other processes


def hold(url: str, told: Connection) -> None:
    """Hold the payout "r" and the callback "c", say so, and keep them until this process is killed."""
    with Journal(url) as journal, lease_of(journal) as lease, journal.handling(callback("c", "c")):
        assert begin(journal, lease)
        told.send("held")
        told.recv()


def pay_and_die(key: str, base_url: str, url: str, references: Sequence[str], amount: int) -> None:
    """Pay under each reference, and kill this process."""
    client, journal = Client(key, base_url=base_url, budget=None), Journal(url)
    for reference in references:
        client.payouts.pay_once(journal=journal, reference=reference, amount=amount, phone=PHONE)
    os.kill(os.getpid(), signal.SIGKILL)


@contextmanager
def sender(url: str) -> Generator[None]:
    """Hold the payout "r" and the callback "c" in another process, which is killed when the context ends."""
    ours, theirs = Pipe()
    process = in_a_fresh_process(hold, url, theirs)
    try:
        assert ours.recv() == "held"
        yield
    finally:
        process.kill()
        process.join()
        ours.close()
        theirs.close()


def dated(
    journal: Journal, reference: str, when: datetime, state: JournalState = ACCEPTED, status: str | None = None
) -> None:
    """Put a payout into the journal that was made, and ended, then."""
    known: Any = {"status": status} if state is ACCEPTED else {}
    put(journal, reference, state, **known)
    moment = when.isoformat(timespec="microseconds")
    where = f"WHERE reference = '{reference}'"
    execute(journal, f"UPDATE momopay_payments SET created_at = '{moment}', sent_at = '{moment}' {where}")
    execute(journal, f"UPDATE momopay_transactions SET ended_at = '{moment}' {where} AND status IS NOT NULL")


def names(entries: Iterable[JournalEntry]) -> list[str]:
    return [entry.reference for entry in entries]
