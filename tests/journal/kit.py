"""Payments of a journal, as durable calls write them."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime
from decimal import Decimal
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from types import EllipsisType
from typing import Any

from forked import in_a_fresh_process, kill_this_process
from journal.constants import ACCEPTED, COLLECTION, ENDED_AT, PAYOUT, PHONE
from journal.database_kit import execute, store_of
from journal.records import callback, report
from momopay import Client, EntryKind, Journal, JournalEntry, JournalState
from momopay.journal.evidence import Draft
from momopay.journal.leases import Lease
from patience import until


def entry_of(
    *statuses: str | None,
    kind: EntryKind = COLLECTION,
    state: JournalState = ACCEPTED,
    amount: Decimal | int = 100,
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
) -> bool:
    """Record how a payment ended, as the call that sent it does; return whether it was recorded."""
    store, payment = store_of(journal), draft(reference, kind)
    if state is ACCEPTED:
        said = report(transaction_id or f"t-{reference}", status, source="answer")
        return store.record(payment, said, lease=lease, **known)
    return store.record_outcome(lease, payment, state, **known)


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


def told(journal: Journal, reference: str, kind: EntryKind | None = None) -> list[str]:
    """Return what the history says: what happened, from what to what, and where it was learnt."""
    return [
        f"{each.what}: {each.from_ or ''} -> {each.to or ''} ({each.transaction_id or each.attempt}, {each.source})"
        for each in journal.history(reference, kind)
    ]


def statuses_of(entry: JournalEntry) -> list[str]:
    """Return the id and the status of each transaction, oldest first."""
    return [f"{each.transaction_id} {each.status}" for each in entry.transactions]


# Other processes


def hold(url: str, pipe: Connection) -> None:
    """Hold the payout "r" and the callback "c", say so, and keep them until this process is killed."""
    with Journal(url) as journal, lease_of(journal) as lease, journal.handling(callback("c", "c")):
        assert begin(journal, lease)
        pipe.send("held")
        pipe.recv()


def pay_and_die(key: str, base_url: str, url: str, references: Sequence[str], amount: int) -> None:
    """Pay under each reference, and kill this process."""
    client, journal = Client(key, base_url=base_url, budget=None), Journal(url)
    for reference in references:
        client.payouts.pay_once(journal=journal, reference=reference, amount=amount, phone=PHONE)
    kill_this_process()


@contextmanager
def sender(url: str) -> Generator[None]:
    """Hold the payout "r" and the callback "c" in another process, which is killed when the context ends."""
    ours, theirs = Pipe()
    process = in_a_fresh_process(hold, url, theirs)
    try:
        until(ours.poll, "the other process holds them")
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
