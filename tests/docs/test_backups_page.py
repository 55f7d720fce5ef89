"""The steps of "Back up and restore" bring a journal back, and name what was paid since the backup."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from datetime import timedelta, timezone
from pathlib import Path

import pytest

from momopay import Client, Journal
from momopay.sandbox import Account, Sandbox
from postgresql import PostgresqlServer, required_programs

NAIROBI = timezone(timedelta(hours=3))


@pytest.fixture
def client(sandbox: Sandbox, account: Account, key: str) -> Iterator[Client]:
    assert account.tenant_id
    with Client(key, base_url=sandbox.base_url) as client:
        yield client


def pay(client: Client, url: str, reference: str) -> None:
    with Journal(url) as journal:
        client.payouts.pay_once(journal=journal, reference=reference, amount=100, phone="0712 345 678")


def paid_since(client: Client, url: str) -> list[tuple[str, str]]:
    """Do the steps that follow once the copy is in place."""
    with Journal(url, create=False) as journal:
        (entry,) = journal.entries()
        day = entry.created_at.astimezone(NAIROBI).date()
        found = client.transactions.reconcile(journal=journal, day=day, last_day=day + timedelta(days=1))
        journal.accept_restored(by="Amina")
        assert not journal.check().needs_attention
        return [(difference.reference, difference.remedy) for difference in found.differences]


def test_a_dump_is_restored_into_an_empty_database(
    client: Client, postgresql: PostgresqlServer, tmp_path: Path
) -> None:
    url, restored = postgresql.new_database(), postgresql.new_database()
    pay(client, url, "S-1")
    run("pg_dump", "--format", "custom", "--file", str(tmp_path / "momopay.dump"), plain(url))
    pay(client, url, "S-2")
    run("pg_restore", "--dbname", plain(restored), str(tmp_path / "momopay.dump"))
    assert paid_since(client, restored) == [("S-2", "not in our journal: find out who sent it")]


def plain(url: str) -> str:
    return url.replace("postgresql+psycopg://", "postgresql://")


def run(program: str, *arguments: str) -> None:
    subprocess.run([required_programs() / program, *arguments], check=True)
