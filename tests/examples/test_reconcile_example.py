import csv
from datetime import datetime, time, timedelta, timezone
from pathlib import Path

from examples.runs import Service, run
from momopay import Client, Journal

NAIROBI = timezone(timedelta(hours=3))


def differences(path: Path) -> dict[str, tuple[str, str]]:
    with path.open(newline="") as file:
        return {row["reference"]: (row["theirs"], row["remedy"]) for row in csv.DictReader(file)}


def test_books_that_agree_and_books_that_differ(service: Service, tmp_path: Path) -> None:
    journal = tmp_path / "payouts.db"
    noon = datetime.combine(service.sandbox.now.astimezone(NAIROBI) + timedelta(days=1), time(12), NAIROBI)
    service.sandbox.advance((noon - service.sandbox.now).total_seconds())  # a day on which no other test makes sales
    with Client(service.key, base_url=service.sandbox.base_url) as client, Journal(f"sqlite:///{journal}") as payouts:
        for reference in ("GOOD", "LOST"):
            client.stk.initiate(amount=500, phone="0712345678", account_reference=reference)
        client.payouts.pay_once(journal=payouts, reference="RENT", amount=900, phone="0712345678")
        service.sandbox.advance(60)
        orders, out = tmp_path / "orders.csv", tmp_path / "differences.csv"
        arguments = [str(orders), "--day", str(noon.date()), "--journal", str(journal), "--out", str(out)]
        orders.write_text("reference,amount,state\nGOOD,500,PAID\nLOST,500,PAID\n")
        agreed = run("reconcile.py", *arguments, env=service.env())
        assert agreed.returncode == 0, agreed.stdout + agreed.stderr
        assert differences(out) == {}
        orders.write_text("reference,amount,state\nGOOD,500,PAID\nLOST,500,WAITING\n")
        client.payouts.initiate(amount=10, phone="0712345678", reference="STRANGER")
        disagreed = run("reconcile.py", *arguments, env=service.env())
    assert disagreed.returncode == 1, disagreed.stdout + disagreed.stderr
    found = differences(out)
    assert found.keys() == {"LOST", "STRANGER"}
    assert found["LOST"] == ("SUCCESS 500", "paid and not shipped: ship")
    assert found["STRANGER"][1].startswith("not in our journal")
    assert service.moved("payout") == {"RENT": 1, "STRANGER": 1}, "the comparison pays nobody"


def test_the_plain_command_finds_one_of_everything() -> None:
    ended = run("reconcile.py")
    assert ended.returncode == 1, ended.stdout + ended.stderr
    lines = {line.split()[0]: line for line in ended.stdout.splitlines() if line.startswith("  ")}
    assert lines.keys() == {"CHEAP", "DREAM", "GIFT", "LOST", "STRAY", "TWICE", "WATER"}
    assert "paid more than once" in lines["TWICE"]
    assert "now ACCEPTED in the journal" in lines["WATER"]
