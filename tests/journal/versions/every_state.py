"""Fills a journal with payments in every state, and writes a database out as SQL text.

The databases of a version were written by the code of that version, before the next one changed a table:

    python -m journal.versions.every_state sqlite:///new.db > journal/versions/1.sqlite.sql

runs in `tests`, on a database that is new. They are never written again: a later momopay could not.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

from sqlalchemy import select

from journal.constants import ACCEPTED, COLLECTION, NOT_SENT, PAYOUT, REFUSED, UNKNOWN
from journal.database_kit import execute, store_of
from journal.kit import begin, draft, found, lease_of, put, record
from journal.records import callback, report
from momopay import Journal, TransactionStatus
from momopay._core.config import KeyIdentity
from momopay.journal.journal import internals
from momopay.journal.schema import metadata
from momopay.journal.upgrade import VERSION, statements

KEYS: Final = {  # by account
    "default": (KeyIdentity("test", "api.example", "1" * 64), KeyIdentity("test", "api.example", "2" * 64)),
    "second shop": (KeyIdentity("live", "pay.example", "3" * 64),),
}
STATUSES: Final = (None, "ON_HOLD", *map(str, TransactionStatus))
_LONG_AGO: Final = "2026-01-05T08:00:00.000001+00:00"


class _HandlerError(Exception):
    """What a handler raised."""


def fill(url: str) -> None:
    """Bring two accounts into every state that there is."""
    for account, identities in KEYS.items():
        with Journal(url, account=account) as journal:
            store = store_of(journal)
            for number, identity in enumerate(identities):
                store.check(identity)
                store.accounts.learn(identity, f"tenant of {account}", by_wallet=number == 0)
            _fill_account(journal)
    with Journal(url) as journal:
        _accept_restored(journal)


def _fill_account(journal: Journal) -> None:
    for kind in (PAYOUT, COLLECTION):
        for status in STATUSES:
            put(journal, f"{kind} {status}", kind=kind, status=status)
        put(journal, "refused", REFUSED, kind, code="INSUFFICIENT_FUNDS", ends_attempt=True)
        put(journal, "not sent", NOT_SENT, kind)
        put(journal, "unknown", UNKNOWN, kind, seen_id=f"seen-{kind}", clock_offset=1.5)
        put(journal, "released", UNKNOWN, kind)
        assert store_of(journal).release(found(journal, "released", kind), "Njeri", datetime.now(UTC))
        put(journal, "again", REFUSED, kind)
        put(journal, "again", kind=kind, transaction_id=f"second-{kind}", status="SUCCESS")
    _payouts(journal)
    _orders(journal)
    _deliveries(journal)
    _anonymised(journal)
    with lease_of(journal) as lease:  # whose process dies
        assert begin(journal, lease, "sending")
        assert begin(journal, lease, "sending", COLLECTION)


def _payouts(journal: Journal) -> None:
    key: dict[str, Any] = {
        "idempotency_key": "mp-0123456789abcdef",
        "key_since": '["m", 12.5, 1767600000.0]',
        "amount": 45,
    }
    with lease_of(journal) as lease:
        assert begin(journal, lease, "with a key", metadata={"shop": "Kilimani", "n": [1, 2.5]}, **key)
        record(journal, lease, UNKNOWN, "with a key")
    put(journal, "contradicted", transaction_id="other")
    assert store_of(journal).mark_contradicted(found(journal, "contradicted"), "other")
    put(journal, "seen", REFUSED)
    assert store_of(journal).mark_seen(found(journal, "seen"))


def _orders(journal: Journal) -> None:
    store, order = store_of(journal), draft("order", COLLECTION, amount=100)
    with lease_of(journal) as lease:
        assert begin(journal, lease, "order", COLLECTION, amount=100, wire_reference="TOKEN-123456")
        first = report("first prompt", "PENDING", source="answer", fee="2.50")
        assert store.record(order, first, lease=lease, clock_offset=-0.25)
    paid = replace(report("first prompt", "SUCCESS", source="callback", receipt="SGR7XYZ123"), result_code="0")
    assert store.record(order, paid)
    for number, status in enumerate(("CANCELLED", "FAILED", "SUCCESS")):
        put(journal, "third time", ACCEPTED, COLLECTION, transaction_id=f"prompt {number}", status=status)
    internals(journal).queue.mark_checked(["prompt 0"])
    for number in range(2):
        put(journal, "twice", ACCEPTED, COLLECTION, transaction_id=f"twice {number}", status="CANCELLED")
    for number in range(2):
        assert store.record(found(journal, "twice"), report(f"twice {number}", "SUCCESS", source="sweep"))
    refunds: list[tuple[str, int, str | None]]
    refunds = [("order-R1", 40, "SUCCESS"), ("order-R2", 60, "REVERSED"), ("order-R3", 5, None)]
    for reference, amount, last in refunds:
        put(journal, reference, amount=amount, refund_of="order", status=last)


def _deliveries(journal: Journal) -> None:
    for reference in ("told", "failed to be told"):
        put(journal, reference, transaction_id=f"t-{reference}")
        assert journal.record(callback(reference, f"t-{reference}"))
    with journal.handling(callback("told", "t-told")) as is_new:
        assert is_new
    with suppress(_HandlerError), journal.handling(callback("failed to be told", "t-failed to be told")):
        raise _HandlerError
    with journal.handling(callback("a stranger", "t-stranger")):
        pass


def _anonymised(journal: Journal) -> None:
    for reference, secret in {"without a phone": None, "with a hash": "0123456789abcdef"}.items():
        put(journal, reference, transaction_id=f"t-{reference}", status="SUCCESS")
        where = f"WHERE reference = '{reference}'"
        execute(journal, f"UPDATE momopay_payments SET created_at = '{_LONG_AGO}', sent_at = '{_LONG_AGO}' {where}")
        execute(journal, f"UPDATE momopay_transactions SET ended_at = '{_LONG_AGO}' {where}")
        before = datetime.fromisoformat(_LONG_AGO) + timedelta(seconds=1)
        assert journal.anonymise(before=before, secret=secret) == 1


def _accept_restored(journal: Journal) -> None:
    """Lose the latest payments, and let a person accept that."""
    execute(journal, "UPDATE momopay_accounts SET sequence = sequence - 2 WHERE account = 'default'")
    assert journal.accept_restored(by="Amina")


def as_sql(url: str) -> Iterator[str]:
    """Yield the statements that make a journal's tables, and then its rows."""
    with Journal(url, create=False) as journal, store_of(journal).database.connection() as connection:
        dialect = connection.dialect.name
        made_by = [each for number in range(1, VERSION + 1) for each in statements(number, dialect)]
        yield from (each for each in made_by if each.split()[0] not in {"INSERT", "UPDATE"})
        for table in metadata.sorted_tables:
            names = ", ".join(table.columns.keys())
            rows = connection.execute(select(table).order_by(*table.primary_key.columns)).all()
            if not rows:
                continue
            values = ",\n".join(f"({', '.join(map(_literal, row))})" for row in rows)
            yield f"INSERT INTO {table.name} ({names}) VALUES\n{values}"
        if dialect == "postgresql":
            yield "SELECT setval('momopay_history_number_seq', (SELECT max(number) FROM momopay_history))"


def _literal(value: Any) -> str:
    if value is None:
        return "NULL"
    return repr(value) if isinstance(value, int | float | Decimal) else "'" + str(value).replace("'", "''") + "'"


if __name__ == "__main__":
    (database,) = sys.argv[1:]
    fill(database)
    sys.stdout.write(f"-- A journal of version {VERSION}, with payments in every state: see every_state.py.\n\n")
    for statement in as_sql(database):
        lines = (line.rstrip() for line in statement.strip().splitlines())
        sys.stdout.write("\n".join(filter(None, lines)) + ";\n")
