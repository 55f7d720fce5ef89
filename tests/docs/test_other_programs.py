"""Pages whose steps need other programs, run as they are printed: pg_dump brings a journal back, curl tests."""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Iterator
from datetime import timedelta, timezone
from pathlib import Path

import pytest

from docs.blocks import ROOT, Block, blocks_in
from momopay import Client, Journal
from momopay.sandbox import Sandbox
from momopay.sandbox._control_api import ACTIONS, VIEWS
from patience import run_program
from postgresql import PostgresqlServer, required_programs

NAIROBI = timezone(timedelta(hours=3))


@pytest.fixture
def client(sandbox: Sandbox, key: str) -> Iterator[Client]:
    with Client(key, base_url=sandbox.base_url) as client:
        yield client


def pay(client: Client, url: str, reference: str) -> None:
    with Journal(url) as journal:
        client.payouts.pay_once(journal=journal, reference=reference, amount=100, phone="0712 345 678")


@pytest.mark.whole
def test_a_dump_is_restored_to_an_empty_database(client: Client, postgresql: PostgresqlServer, tmp_path: Path) -> None:
    url, restored, dump = postgresql.new_database(), postgresql.new_database(), str(tmp_path / "momopay.dump")
    pay(client, url, "S-1")
    run("pg_dump", "--format", "custom", "--file", dump, url)
    pay(client, url, "S-2")
    run("pg_restore", dump, "--dbname", restored)
    # The steps that follow once the copy is in place.
    with Journal(restored, create=False) as journal:
        (entry,) = journal.entries()
        day = entry.created_at.astimezone(NAIROBI).date()
        found = client.transactions.reconcile(journal=journal, day=day, last_day=day + timedelta(days=1))
        journal.accept_restored(by="Amina")
        assert not journal.check().needs_attention
    left = [(difference.reference, difference.remedy) for difference in found.differences]
    assert left == [("S-2", "not in our journal: find out who sent it")]


def run(program: str, *arguments: str) -> None:
    """Run a program of PostgreSQL, which takes a URL without the name of a driver."""
    plain = (each.replace("postgresql+psycopg://", "postgresql://") for each in arguments)
    run_program([required_programs() / program, *plain])


PAGE = ROOT / "docs" / "test" / "other-languages.md"
ADDRESS = "http://127.0.0.1:8787"


def run_block(block: Block, sandbox: Sandbox, folder: Path) -> str:
    """Run a program of the page in a folder, and return what it has printed."""
    (folder / "test.sh").write_text(block.text.replace(ADDRESS, sandbox.url))
    return run_program(["bash", "-eu", "test.sh"], cwd=folder, env=os.environ | {"no_proxy": "*"}).stdout


@pytest.mark.skipif(shutil.which("curl") is None, reason=f"needs curl, which this {platform.system()} lacks")
def test_the_health_check_and_the_test_with_curl(sandbox: Sandbox, tmp_path: Path) -> None:
    ready, collect = [block for block in blocks_in(PAGE) if block.language == "bash"]
    assert '"now"' in run_block(ready, sandbox, tmp_path)
    run_block(collect, sandbox, tmp_path)
    assert [movement.kind for movement in sandbox.ledger] == ["fee", "fee", "stk"]


def test_every_control_route_is_listed() -> None:
    table = PAGE.read_text().partition("## The control routes")[2]
    assert [name for name in (*ACTIONS, *VIEWS, "account", "events") if f"/sandbox/{name}" not in table] == []
