"""The tables: their conditions follow the enumerations, and no payment or sweep reads a whole one."""

import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import TextClause, event

from drivers import Driver
from durable.kit import Handler
from journal.constants import COLLECTION, REFUSED, UNKNOWN
from journal.database_kit import another_process, engine_of, execute, in_threads, store_of
from journal.kit import fill, found, put
from journal.records import callback
from momopay import ConfigurationError, EntryKind, Journal, TransactionStatus
from momopay.journal.rules import REPEATS
from momopay.journal.schema import HAS_NOT_SETTLED, HAS_SETTLED, IS_TO_CHECK, metadata
from momopay.journal.upgrade import VERSION
from momopay.models.enums import has_settled
from momopay.sandbox import Account, Outcome, Sandbox, phone_for

STATUSES = [None, "ON_HOLD", *map(str, TransactionStatus)]


def having(journal: Journal, condition: TextClause) -> set[tuple[str, str | None]]:
    """Return the kind and the status of the transactions for which a condition holds."""
    return {tuple(row) for row in execute(journal, f"SELECT kind, status FROM momopay_transactions WHERE {condition}")}


@pytest.mark.both_databases
def test_the_conditions_are_what_the_enumerations_say(journal: Journal) -> None:
    """A new status, or one that has become terminal, needs no change of the SQL."""
    for kind in EntryKind:
        for status in STATUSES:
            put(journal, f"{kind} {status}", kind=kind, status=status)
    known = {(kind, status): TransactionStatus(status) for kind in EntryKind for status in STATUSES if status}
    settled = {(kind, text) for (kind, text), status in known.items() if has_settled(kind.transaction_type, status)}
    everything = {(kind, status) for kind in EntryKind for status in STATUSES}
    assert having(journal, HAS_NOT_SETTLED) == everything - settled
    late = {(kind, text) for (kind, text), status in known.items() if REPEATS[kind] and status.ended_without_success}
    assert having(journal, IS_TO_CHECK) == late
    execute(journal, "UPDATE momopay_transactions SET checked_at = sent_at")
    assert having(journal, IS_TO_CHECK) == set()
    assert having(journal, HAS_SETTLED) == settled


# Creation


@pytest.mark.both_databases
def test_threads_that_create_the_tables_at_once_create_them_once(url: str) -> None:
    with Journal(url) as journal, another_process(url) as other:
        each = iter([journal, other] * 4)
        assert in_threads(8, lambda: next(each).get("r")) == [None] * 8
        assert execute(journal, "SELECT version, sequence FROM momopay_journal") == [(VERSION, 0)]


@pytest.mark.parametrize("content", [None, "", "tables of something else"])
def test_without_create_nothing_is_created_in_a_file(path: Path, content: str | None) -> None:
    if content == "":
        path.touch()
    elif content is not None:
        with closing(sqlite3.connect(path)) as other:
            other.execute("CREATE TABLE momopay_orders (id INTEGER)")
    before = {each.name: each.read_bytes() for each in path.parent.iterdir()}
    with Journal(f"sqlite:///{path}", create=False) as journal:
        for _ in range(2):
            with pytest.raises(ConfigurationError, match="create=False"):
                journal.get("r")
    assert {each.name: each.read_bytes() for each in path.parent.iterdir()} == before


# Plans

ROWS = 3000
LARGE = ("momopay_payments", "momopay_transactions", "momopay_history", "momopay_deliveries")
PARTIAL = {
    str(index.name)
    for table in metadata.tables.values()
    for index in table.indexes
    if index.dialect_options["sqlite"]["where"] is not None
}


def statements_of(journal: Journal) -> dict[str, Any]:
    """Return what gets the statements that a journal executes from now on, with the parameters of each."""
    seen: dict[str, Any] = {}

    def listen(_connection: object, _cursor: object, text: str, parameters: Any, _context: object, many: bool) -> None:
        if text.startswith(("SELECT", "INSERT", "UPDATE", "DELETE")):
            seen[text] = parameters[0] if many else parameters

    event.listen(engine_of(journal), "before_cursor_execute", listen)
    return seen


def sqlite_scans(connection: Any, text: str, parameters: Any) -> list[str]:
    """Return how a statement reads a large table of which it uses only the account, or less."""
    rows = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {text}", parameters).all()
    steps = [str(row[3]) for row in rows if any(f" {table}" in str(row[3]) for table in LARGE)]
    return [
        step
        for step in steps
        if "INDEX" not in step or ("AND" not in step and not any(f" {name} " in step for name in PARTIAL))
    ]


def postgresql_scans(connection: Any, text: str, parameters: Any) -> list[str]:
    """Return how a statement reads a large table of which it uses only the account, or less."""
    plan: Any
    (plan,) = connection.exec_driver_sql(f"EXPLAIN (FORMAT JSON) {text}", parameters).scalars()
    nodes: list[Any] = [plan[0]["Plan"]]
    bad: list[str] = []
    while nodes:
        node = nodes.pop()
        nodes += node.get("Plans", [])
        index = node.get("Index Name")
        if node["Node Type"] == "Seq Scan" and node["Relation Name"] in LARGE:
            bad.append(f"Seq Scan on {node['Relation Name']}")
        elif index is not None and index not in PARTIAL and " AND " not in node.get("Index Cond", ""):
            bad.append(f"{index}: {node.get('Index Cond')}")
    return bad


def use_all(client: Any, sandbox: Sandbox, journal: Journal, other: Journal) -> None:
    """Pay, collect, refund, record, handle and sweep, each in the ways that there are."""
    client.payouts.pay_once(reference="PAY-1", amount=100, phone="0712345678")
    client.payouts.pay_once(reference="PAY-1", amount=100, phone="0712345678")
    put(journal, "PAY-2", REFUSED, amount=100)
    client.payouts.pay_once(reference="PAY-2", amount=100, phone="0712345678")
    put(journal, "LOST", UNKNOWN, amount=100)
    cancelled = client.stk.collect_once(reference="O-1", amount=100, phone=phone_for(Outcome.cancelled))
    sandbox.advance(600)
    client.stk.collect_once(reference="O-2", amount=100, phone="0712345678")
    sandbox.advance(600)
    client.transactions.sweep(handler=Handler())
    client.stk.collect_once(reference="O-1", amount=100, phone="0712345678")
    client.payouts.refund(of="O-2", amount=50)
    execute(other, "UPDATE momopay_payments SET search_after = 0 WHERE reference = 'PAY-1'")
    execute(other, "UPDATE momopay_transactions SET learned_at = 0, learned_at_service = NULL")
    client.transactions.sweep(handler=Handler())
    assert cancelled.transaction_id in found(journal, "O-1").transaction_ids
    for record in (callback("PAY-1", found(journal, "PAY-1").transaction_ids[0], amount=100), callback("no", "such")):
        journal.record(record)
        with journal.handling(record):
            pass
    store = store_of(journal)
    assert store.release(found(journal, "LOST"), "Njeri")
    assert store.seconds_to_release(found(journal, "LOST")) < 700
    assert journal.by_receipt("none") is None
    unknown: Any = None
    assert journal.by_receipt("\udcff") is journal.get(unknown) is None
    assert store.sharing(found(journal, "O-1")) == []
    assert len(journal.history("O-1", COLLECTION)) > 5


@pytest.mark.both_databases
@pytest.mark.parametrize("client_kind", ["blocking"])
def test_a_payment_and_a_sweep_read_what_they_need_by_an_index(
    journal: Journal, other: Journal, drive: Callable[..., Driver], sandbox: Sandbox, account: Account, key: str
) -> None:
    account.rate_limit = None
    fill(journal, ROWS)
    for table in ("payments", "transactions"):  # some are orders
        execute(journal, f"UPDATE momopay_{table} SET kind = '{COLLECTION}' WHERE length(reference) = 5")
    ended = (datetime.now(UTC) - timedelta(days=31)).isoformat()  # for a handler, a sweep looks at 30 days
    execute(journal, f"UPDATE momopay_transactions SET status = 'SUCCESS', ended_at = '{ended}'")
    execute(
        journal,
        "INSERT INTO momopay_history (account, kind, reference, at, what, after, transaction_id) SELECT account, kind,"
        f" reference, {time.time()}, 'delivered', 'SUCCESS', transaction_id FROM momopay_transactions",
    )
    execute(
        journal,
        "INSERT INTO momopay_deliveries SELECT account, transaction_id, '', '', '', 0, 0 FROM momopay_transactions",
    )
    is_sqlite = engine_of(journal).dialect.name == "sqlite"
    if not is_sqlite:  # which autovacuum does elsewhere
        execute(journal, "ANALYZE")
    sdk = drive(api_key=key, base_url=sandbox.base_url, journal=journal)
    seen = statements_of(journal)
    sdk(lambda client: use_all(client, sandbox, journal, other))
    assert len(seen) > 25
    scans = sqlite_scans if is_sqlite else postgresql_scans
    with store_of(journal).database.connection() as connection:
        wrong = {text: bad for text, parameters in seen.items() if (bad := scans(connection, text, parameters))}
    assert not wrong, "\n\n".join(f"{bad}\n{text}" for text, bad in wrong.items())


@pytest.mark.both_databases
def test_the_control_finds_a_statement_without_an_index(journal: Journal) -> None:
    fill(journal, ROWS)
    is_sqlite = engine_of(journal).dialect.name == "sqlite"
    scans = sqlite_scans if is_sqlite else postgresql_scans
    with store_of(journal).database.connection() as connection:
        if not is_sqlite:
            connection.exec_driver_sql("ANALYZE")
        for where in ("code = 'x'", "account = 'default' AND code = 'x'", "account = 'default' AND amount = '10'"):
            assert scans(connection, f"SELECT * FROM momopay_payments WHERE {where}", ()), where
        indexed = "SELECT * FROM momopay_payments WHERE account = 'default' AND wire_reference = 'p-7'"
        assert not scans(connection, indexed, ())
