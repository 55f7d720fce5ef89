"""quickstart.py, branches.py and reconcile.py, each run as a user does."""

import csv
import re
import tomllib
from datetime import datetime, time, timedelta, timezone
from pathlib import Path
from typing import Any

from examples.runs import EXAMPLES, Merchant, run
from momopay import Client, Journal
from momopay.sandbox import Credential


def test_the_plain_command_collects_once_and_pays_back() -> None:
    ended = run("quickstart.py")
    lines = {line[:10].strip(): line[12:] for line in ended.stdout.splitlines()}
    assert re.fullmatch("transaction.success, receipt [A-Z0-9]{10}", lines["Callback"])
    assert lines["Confirmed"] == "the service's own record says SUCCESS"
    assert (lines["Paid"].split()[0], lines["Settled"]) == ("SUCCESS", "SUCCESS")
    assert ended.stdout.count(" Paid ") == 1
    assert (lines["Again"], lines["Wallet"]) == ("no second prompt; INV-42 is SUCCESS", "KES 9998 left for fees")


def test_on_a_real_service_it_asks_before_money_moves(merchant: Merchant) -> None:
    assert "nothing was sent" in run("quickstart.py", env=merchant.env(), typed="\n", code=1).stderr
    assert merchant.moved("fee").total() == 0


BRANCHES = tomllib.loads((EXAMPLES / "branches.toml").read_text())


def test_a_branch_without_a_channel_stops_the_program_at_its_start(merchant: Merchant) -> None:
    ended = run("branches.py", env=merchant.env(), code=1)
    assert "LookupError: no channel on the account for: westlands, mombasa" in ended.stderr


def test_the_plain_command_makes_a_few_sales() -> None:
    shown = run("branches.py").stdout
    assert "Before the channels exist: no channel on the account for: westlands, mombasa" in shown
    assert ("SALE-3: SUCCESS" in shown, "mombasa      2 sales, KES 100" in shown) == (True, True)


def test_a_sale_uses_the_channel_and_the_credentials_of_its_branch(merchant: Merchant, monkeypatch: Any) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    branches: Any = __import__("branches")
    profiles = [branch["credential_id"] for branch in BRANCHES.values() if "credential_id" in branch]
    merchant.account.credentials = {profile: Credential() for profile in profiles}
    with Client(merchant.key, base_url=merchant.sandbox.base_url) as client:
        for name in ("westlands", "mombasa"):
            client.channels.create(name=name, type="TILL_NUMBER", shortcode=BRANCHES[name]["shortcode"])
        routes = branches.Branches(client, EXAMPLES / "branches.toml")
        for number, name in enumerate(BRANCHES):
            routes.sell(name, amount=100 + number, phone="0712345678", reference=f"SALE-{number}")
        merchant.sandbox.advance(60)
        channels = {channel.shortcode: channel.id for channel in client.channels.list()}
    sent: list[Any] = [
        request.json
        for request in merchant.sandbox.requests
        if request.path == "/payments/stk" and b"SALE-" in request.body
    ]
    expected = [(channels[branch["shortcode"]], branch.get("credential_id")) for branch in BRANCHES.values()]
    assert [(body["channelId"], body.get("credential_id")) for body in sent] == expected
    assert merchant.moved("stk") == {"SALE-0": 1, "SALE-1": 1, "SALE-2": 1}
    shown = run("branches.py", env=merchant.env())
    assert "westlands    1 sales, KES 100" in shown.stdout, shown.stderr
    assert "head-office  1 sales, KES 102" in shown.stdout, shown.stderr


NAIROBI = timezone(timedelta(hours=3))


def differences(path: Path) -> dict[str, tuple[str, str]]:
    with path.open(newline="", encoding="utf-8-sig") as file:
        return {row["reference"]: (row["theirs"], row["remedy"]) for row in csv.DictReader(file)}


def test_books_that_agree_and_books_that_differ(merchant: Merchant, tmp_path: Path) -> None:
    journal = tmp_path / "payouts.db"
    noon = datetime.combine(merchant.sandbox.now.astimezone(NAIROBI) + timedelta(days=1), time(12), NAIROBI)
    merchant.sandbox.advance((noon - merchant.sandbox.now).total_seconds())  # a day on which no other test makes sales
    with Client(merchant.key, base_url=merchant.sandbox.base_url) as client, Journal(f"sqlite:///{journal}") as payouts:
        for reference in ("GOOD", "LOST"):
            client.stk.initiate(amount=500, phone="0712345678", account_reference=reference)
        client.payouts.pay_once(journal=payouts, reference="RENT", amount=900, phone="0712345678")
        merchant.sandbox.advance(60)
        orders, out = tmp_path / "orders.csv", tmp_path / "differences.csv"
        arguments = [str(orders), "--day", str(noon.date()), "--journal", str(journal), "--out", str(out)]
        orders.write_text("reference,amount,state\nGOOD,500,PAID\nLOST,500,PAID\n")
        run("reconcile.py", *arguments, env=merchant.env())
        assert differences(out) == {}
        orders.write_text("reference,amount,state\nGOOD,500,PAID\nLOST,500,WAITING\n")
        client.payouts.initiate(amount=10, phone="0712345678", reference="STRANGER")
        run("reconcile.py", *arguments, env=merchant.env(), code=1)
    found = differences(out)
    assert found.keys() == {"LOST", "STRANGER"}
    assert found["LOST"] == ("SUCCESS 500", "paid and not shipped: ship")
    assert found["STRANGER"][1].startswith("not in our journal")
    assert merchant.moved("payout") == {"RENT": 1, "STRANGER": 1}, "the comparison pays nobody"


def test_the_plain_command_finds_one_of_everything() -> None:
    ended = run("reconcile.py", code=1)
    lines = {line.split()[0]: line for line in ended.stdout.splitlines() if line.startswith("  ")}
    assert lines.keys() == {"CHEAP", "DREAM", "GIFT", "LOST", "STRAY", "TWICE", "WATER"}
    assert "paid more than once" in lines["TWICE"]
    assert "now ACCEPTED in the journal" in lines["WATER"]
