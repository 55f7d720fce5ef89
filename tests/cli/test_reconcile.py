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
    for wrong in ("yesterday", "2026-13", "2026-11-31"):
        assert momopay(*command, "--day", wrong).code == 2
    orders.write_text("reference,amount,state\nA,500,SHIPPED\n")
    assert momopay(*command, "--day", day).code == 2


def test_no_journal_is_made(momopay: Shell, sandbox: Sandbox, tmp_path: Path) -> None:
    assert momopay("reconcile", "--day", "2026-11-20", "--journal", str(tmp_path / "none.db")).code == 3
    assert list(tmp_path.iterdir()) == []
    assert sandbox.requests == []
