"""A day compared from the terminal."""

from __future__ import annotations

import csv
from datetime import timedelta
from pathlib import Path

from cli.kit import PHONE, Shell
from momopay import Client, Journal
from momopay.sandbox import Sandbox


def test_a_day_and_a_month(momopay: Shell, client: Client, sandbox: Sandbox, tmp_path: Path) -> None:
    path, orders, out = tmp_path / "payouts.db", tmp_path / "orders.csv", tmp_path / "differences.csv"
    with Journal(f"sqlite:///{path}") as journal:
        client.payouts.pay_once(journal=journal, reference="RENT", amount=900, phone=PHONE)
    client.stk.initiate(amount=500, phone=PHONE, account_reference="A")
    sandbox.advance(600)
    day = f"{sandbox.now + timedelta(hours=3):%Y-%m-%d}"
    command = ("reconcile", "--journal", str(path), "--orders", str(orders), "--out", str(out))
    orders.write_text("reference,amount,state\nA,500,PAID\n")
    agreed = momopay(*command, "--day", day, "--json")
    assert agreed.code == 0
    assert (agreed.json["agrees"], agreed.json["collected"], agreed.json["paid_out"]) == (True, "500", "900")
    orders.write_text("reference,amount,state\nA,500,WAITING\n")
    differs = momopay(*command, "--day", day[:7])
    assert differs.code == 1
    assert "paid and not shipped: ship" in differs.words
    assert "KES 900.00" in differs.words
    with out.open(newline="") as file:
        assert [row["reference"] for row in csv.DictReader(file)] == ["A"]
    for wrong in ("yesterday", "2026-13", "2026-11-31", "9999-12", "9999-12-31", "0001-01-01", "0001-01"):
        for zone in ([], ["--utc"]):
            refused = momopay(*command, "--day", wrong, *zone)
            assert refused.code == 2
            assert refused.err.startswith("Error: --day: ")
    for wrong_text in ("reference,amount,state\nA,500,SHIPPED\n", "reference,amount,state\nJosé,500,PAID\n"):
        orders.write_text(wrong_text, encoding="latin-1")  # as a spreadsheet may save it
        refused = momopay(*command, "--day", day)
        assert refused.code == 2
        assert refused.err.startswith("Error: --orders: ")


def test_a_file_for_the_differences_that_cannot_be_written_is_refused_first(
    momopay: Shell, sandbox: Sandbox, tmp_path: Path
) -> None:
    Journal(f"sqlite:///{tmp_path}/payouts.db").close()
    command = ("reconcile", "--day", "2026-11-20", "--journal", f"{tmp_path}/payouts.db")
    refused = momopay(*command, "--out", f"{tmp_path}/none/differences.csv")
    assert refused.code == 2
    assert refused.err.startswith("Error: --out ")
    assert sandbox.requests == []


def test_a_run_that_fails_leaves_no_empty_file(momopay: Shell, sandbox: Sandbox, tmp_path: Path) -> None:
    with Journal(f"sqlite:///{tmp_path}/payouts.db") as journal:
        journal.get("A")
    command = ("reconcile", "--day", "2026-11-20", "--journal", f"{tmp_path}/payouts.db")
    out = tmp_path / "differences.csv"
    assert momopay(*command, "--out", str(out), MOMOPAY_BASE_URL="http://127.0.0.1:1/v1").code == 6
    assert not out.exists()


def test_no_journal_is_made(momopay: Shell, sandbox: Sandbox, tmp_path: Path) -> None:
    assert momopay("reconcile", "--day", "2026-11-20", "--journal", str(tmp_path / "none.db")).code == 3
    assert list(tmp_path.iterdir()) == []
    assert sandbox.requests == []
