"""The tables: created once, kept as they were in version 1, and refused if they are of a later version."""

from __future__ import annotations

import sqlite3
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from sqlalchemy import update

from journal.kit import PHONE, begin, callback, execute, found, lease_of, put, sender
from momopay import ConfigurationError, Journal, JournalState
from momopay.journal.schema import insert_new, payments, update_one

VERSION_1 = f"""
CREATE TABLE momopay_journal (version INTEGER NOT NULL PRIMARY KEY);
INSERT INTO momopay_journal VALUES (1);
CREATE TABLE momopay_payouts (
    reference TEXT NOT NULL PRIMARY KEY, amount TEXT NOT NULL, phone TEXT NOT NULL, body_hash TEXT NOT NULL,
    state TEXT NOT NULL, transaction_id TEXT, code TEXT, sent_at TEXT NOT NULL, released BOOLEAN NOT NULL,
    claim TEXT NOT NULL, sender TEXT NOT NULL, lease_until DOUBLE NOT NULL
);
CREATE INDEX momopay_payouts_by_state ON momopay_payouts (state);
CREATE TABLE momopay_callbacks (
    transaction_id TEXT NOT NULL, status TEXT NOT NULL, seen_at TEXT NOT NULL, handled BOOLEAN NOT NULL,
    claim TEXT NOT NULL, sender TEXT NOT NULL, lease_until DOUBLE NOT NULL, PRIMARY KEY (transaction_id, status)
);
INSERT INTO momopay_payouts VALUES
    ('paid', '10', '{PHONE}', 'h', 'ACCEPTED', 't', NULL, '2026-11-20T10:00:00+00:00', 0, 'c', 's', 0.0),
    ('died', '10', '{PHONE}', 'h', 'SENDING', NULL, NULL, '2026-11-20T10:00:00+00:00', 0, 'c', 's', 0),
    ('refused', '10', '{PHONE}', 'h', 'REFUSED', NULL, 'CODE', '2026-11-20T10:00:00+00:00', 0, 'c', 's', 0.0);
INSERT INTO momopay_callbacks VALUES ('the-id', 'SUCCESS', '2026-11-20T10:00:00+00:00', 1, 'c', 's', 0.0);
"""
"""What momopay 0.2.0 wrote."""


def test_a_file_of_version_1_goes_on(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "payouts.db")) as old:
        old.executescript(VERSION_1)
    with Journal(f"sqlite:///{tmp_path / 'payouts.db'}") as journal:
        assert (found(journal, "paid").state, found(journal, "paid").transaction_id) == (JournalState.ACCEPTED, "t")
        assert [entry.reference for entry in journal.unresolved()] == ["died"]
        assert journal.release("died").state is JournalState.NOT_SENT
        with lease_of(journal) as lease:
            assert begin(journal, lease, "refused") is None
        with journal.handling(callback()) as is_new:
            assert not is_new


def test_a_human_can_read_the_file(tmp_path: Path) -> None:
    with Journal(f"sqlite:///{tmp_path / 'payouts.db'}") as journal:
        put(journal, "SALARY-7", JournalState.REFUSED, code="INSUFFICIENT_FUNDS")
    with closing(sqlite3.connect(tmp_path / "payouts.db")) as other:
        row = other.execute("SELECT reference, amount, state, code FROM momopay_payments").fetchone()
    assert row == ("SALARY-7", "10", "REFUSED", "INSUFFICIENT_FUNDS")


def test_many_processes_create_the_tables_at_once(url: str) -> None:
    with ExitStack() as stack:
        others = [stack.enter_context(sender(url, reference=f"r{number}")) for number in range(4)]
        assert [other.says() for other in others] == ["held"] * 4


def test_a_later_version_is_refused(journal: Journal, url: str) -> None:
    execute(journal, "UPDATE momopay_journal SET version = 99")
    with Journal(url) as later, pytest.raises(ConfigurationError, match="version 99"):
        later.get("r")


def test_statements_report_whether_they_changed_a_row(journal: Journal) -> None:
    put(journal, "r", JournalState.REFUSED)
    with journal._database.connection() as connection:
        row: dict[str, object] = dict(connection.execute(payments.select()).mappings().one())
        row["lease_seconds"] = row.pop("lease_until")
        assert not insert_new(connection, payments, row | {"state": "ACCEPTED"})
        assert insert_new(connection, payments, row | {"reference": "another"})
        change = update(payments).where(payments.c.reference == "r").values(state="UNKNOWN")
        assert not update_one(connection, change.where(payments.c.state == "SENDING"))
        assert update_one(connection, change.where(payments.c.state == "REFUSED"))
    assert found(journal).state is JournalState.UNKNOWN
