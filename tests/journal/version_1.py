"""What momopay 0.2 wrote: its own statements, and a journal with a row in each state.

python -m journal.version_1 sqlite:///payouts.db      in tests, makes such a journal
"""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

from sqlalchemy import Connection, NullPool, create_engine, text

from journal.kit import PHONE

SENT_AT: Final = "2026-11-20T10:00:00+00:00"
LATER: Final = "2026-11-21T10:00:00+00:00"

# As SQLAlchemy compiled them; version 1 executed them whenever a process began to use the journal.
START: Final = (
    (
        "CREATE TABLE IF NOT EXISTS momopay_callbacks (transaction_id TEXT NOT NULL, status TEXT NOT NULL,"
        " seen_at TEXT NOT NULL, handled BOOLEAN NOT NULL, claim TEXT NOT NULL, sender TEXT NOT NULL,"
        " lease_until {double} NOT NULL, PRIMARY KEY (transaction_id, status))"
    ),
    "CREATE TABLE IF NOT EXISTS momopay_journal (version {serial} NOT NULL, PRIMARY KEY (version))",
    (
        "CREATE TABLE IF NOT EXISTS momopay_payouts (reference TEXT NOT NULL, amount TEXT NOT NULL,"
        " phone TEXT NOT NULL, body_hash TEXT NOT NULL, state TEXT NOT NULL, transaction_id TEXT, code TEXT,"
        " sent_at TEXT NOT NULL, released BOOLEAN NOT NULL, claim TEXT NOT NULL, sender TEXT NOT NULL,"
        " lease_until {double} NOT NULL, PRIMARY KEY (reference))"
    ),
    "CREATE INDEX IF NOT EXISTS momopay_payouts_by_state ON momopay_payouts (state)",
)
BEGIN_PAYOUT: Final = text(
    "INSERT INTO momopay_payouts (reference, amount, phone, body_hash, state, transaction_id, code, sent_at, released,"
    " claim, sender, lease_until) VALUES (:reference, :amount, :phone, :body_hash, :state, :transaction_id, :code,"
    " :sent_at, :released, :claim, :sender, :lease_until) ON CONFLICT DO NOTHING"
)
BEGIN_AGAIN: Final = text(
    "UPDATE momopay_payouts SET body_hash=:body_hash, state=:state, transaction_id=:transaction_id, code=:code,"
    " sent_at=CASE WHEN momopay_payouts.released THEN momopay_payouts.sent_at ELSE :sent_at END, claim=:claim,"
    " sender=:sender, lease_until=:lease_until WHERE momopay_payouts.reference = :reference"
    " AND momopay_payouts.amount = :amount AND momopay_payouts.phone = :phone"
    " AND momopay_payouts.state IN ('NOT_SENT', 'REFUSED')"
)
ACCEPT: Final = text(
    "UPDATE momopay_payouts SET state='ACCEPTED', transaction_id=:transaction_id, code=NULL"
    " WHERE momopay_payouts.reference = :reference AND momopay_payouts.state != 'ACCEPTED'"
)
SEE_CALLBACK: Final = text(
    "INSERT INTO momopay_callbacks (transaction_id, status, seen_at, handled, claim, sender, lease_until)"
    " VALUES (:transaction_id, :status, :seen_at, :handled, :claim, :sender, :lease_until) ON CONFLICT DO NOTHING"
)
SELECT: Final = text("SELECT * FROM momopay_payouts WHERE momopay_payouts.reference = :reference")


@contextmanager
def connected(url: str) -> Generator[Connection]:
    """Yield a connection as a process of version 1 has one."""
    engine = create_engine(url, isolation_level="AUTOCOMMIT", poolclass=NullPool)
    with engine.connect() as connection:
        yield connection


def start(connection: Connection) -> int | None:
    """Begin to use a journal as a process of version 1 did; return the version that it found."""
    names = ("DOUBLE", "INTEGER") if connection.dialect.name == "sqlite" else ("DOUBLE PRECISION", "SERIAL")
    for statement in START:
        connection.exec_driver_sql(statement.format(double=names[0], serial=names[1]))
    found: int | None = connection.exec_driver_sql("SELECT version FROM momopay_journal").scalar()
    if found is None:
        connection.exec_driver_sql("INSERT INTO momopay_journal (version) VALUES (1)")
    return found


def row(reference: str, state: str = "SENDING", /, **values: object) -> dict[str, object]:
    """Return the parameters of a row."""
    return {
        "reference": reference,
        "amount": "10",
        "phone": PHONE,
        "body_hash": "hash",
        "state": state,
        "transaction_id": None,
        "code": None,
        "sent_at": SENT_AT,
        "released": False,
        "claim": f"claim of {reference}",
        "sender": "0",
        "lease_until": 9e12,
        **values,
    }


ROWS: Final = (
    row("paid", "ACCEPTED", transaction_id="t1"),
    row("paid by settle", "ACCEPTED", transaction_id=None),
    row("died", "SENDING"),
    row("in doubt", "UNKNOWN"),
    row("in doubt with id", "UNKNOWN", transaction_id="t2"),
    row("refused", "REFUSED", code="INSUFFICIENT_FUNDS"),
    row("not sent", "NOT_SENT"),
    row("released", "NOT_SENT", released=True),
    row("released and paid", "ACCEPTED", released=True, transaction_id="t3"),
    # Version 1 let two references have one transaction.
    row("z: first of two", "ACCEPTED", transaction_id="shared"),
    row("a: second of two", "ACCEPTED", transaction_id="shared", sent_at=LATER),
)
CALLBACKS: Final = (
    {"transaction_id": "the-id", "status": "SUCCESS", "handled": True},
    {"transaction_id": "another", "status": "FAILED", "handled": False},
    # One end, of which version 1 made three.
    {"transaction_id": "cancelled", "status": "FAILED", "handled": False},
    {"transaction_id": "cancelled", "status": "CANCELLED", "handled": True},
    {"transaction_id": "cancelled", "status": "EXPIRED", "handled": True},
    {"transaction_id": "expired", "status": "EXPIRED", "handled": True},
    {"transaction_id": "expired", "status": "SUCCESS", "handled": True},
)


def make(url: str) -> None:
    """Make a journal of version 1."""
    with connected(url) as connection:
        assert start(connection) is None
        for each in ROWS:
            connection.execute(BEGIN_PAYOUT, each)
        lease = {"seen_at": SENT_AT, "claim": "c", "sender": "0", "lease_until": 0.0}
        for callback in CALLBACKS:
            connection.execute(SEE_CALLBACK, {**callback, **lease})


if __name__ == "__main__":
    make(sys.argv[1])
