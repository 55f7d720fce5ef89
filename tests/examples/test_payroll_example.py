import csv
import os
import random
import shutil
import signal
import subprocess
from decimal import Decimal
from pathlib import Path

from durable.kit import long_ago
from examples.runs import Merchant, command, run
from momopay import Client, Journal
from momopay.sandbox import Fault
from patience import until

PEOPLE = 20


def salaries(folder: Path) -> Path:
    path = folder / "salaries.csv"
    lines = [f"E{number:02},07123450{number:02},{1000 + number}.50" for number in range(PEOPLE)]
    path.write_text("employee,phone,amount\n" + "\n".join(lines) + "\n")
    return path


def report(folder: Path) -> dict[str, dict[str, str]]:
    with (folder / "report.csv").open(newline="") as file:
        return {row["reference"]: row for row in csv.DictReader(file)}


def all_once() -> dict[str, int]:
    return {f"SALARY-2026-11-E{number:02}": 1 for number in range(PEOPLE)}


def arguments(tmp_path: Path) -> list[str]:
    options = ("--month", "2026-11", "--folder", str(tmp_path / "kept"), "--every", "0.3", "--yes")
    return [str(salaries(tmp_path)), *options]


def kill_while_a_payout_hangs(merchant: Merchant, tmp_path: Path, dice: random.Random) -> None:
    """Kill the payroll at the worst moment: the service has paid, and nobody reads the response."""
    paid_before = dice.randrange(2, PEOPLE - 4)
    merchant.sandbox.fail_next("POST", "/b2c/payouts", Fault.callback_lost, times=paid_before)  # changes nothing here
    merchant.sandbox.fail_next("POST", "/b2c/payouts", Fault.hang_after_commit)
    with subprocess.Popen(
        command("payroll.py", *arguments(tmp_path)), env=merchant.env(), stdout=subprocess.DEVNULL, text=True
    ) as process:
        until(lambda: merchant.moved("payout").total() > paid_before, "the payout that hangs is made")
        assert process.poll() is None, "the payroll ended though a payout hangs"
        os.kill(process.pid, signal.SIGKILL)
    assert merchant.moved("payout").total() == paid_before + 1


def test_a_killed_run_resumes_and_pays_nobody_twice(merchant: Merchant, tmp_path: Path, dice: random.Random) -> None:
    kill_while_a_payout_hangs(merchant, tmp_path, dice)
    resumed = run("payroll.py", *arguments(tmp_path), env=merchant.env())
    assert merchant.moved("payout") == all_once()
    assert "was sent before" in resumed.stdout
    rows = report(tmp_path / "kept")
    assert rows.keys() == all_once().keys()
    assert {row["state"] for row in rows.values()} == {"SUCCESS"}
    changed = arguments(tmp_path)
    path = Path(changed[0])
    path.write_text(path.read_text().replace(",1000.50", ",2000.50"))
    run("payroll.py", *changed, env=merchant.env(), code=1)
    assert "was used with another amount" in report(tmp_path / "kept")["SALARY-2026-11-E00"]["note"]
    assert merchant.moved("payout") == all_once()


def test_without_its_journal_it_would_pay_twice(merchant: Merchant, tmp_path: Path, dice: random.Random) -> None:
    kill_while_a_payout_hangs(merchant, tmp_path, dice)
    shutil.rmtree(tmp_path / "kept")
    run("payroll.py", *arguments(tmp_path), env=merchant.env())
    # A service that honours keys knows the second one, which is the same from any journal.
    honoured = merchant.account.switches.payout_keys == "honoured"
    assert max(merchant.moved("payout").values()) == (1 if honoured else 2)


def test_after_missing_funds_and_an_unknown_outcome_it_resumes(merchant: Merchant, tmp_path: Path) -> None:
    enough = merchant.account.b2c_balance
    merchant.account.b2c_balance = Decimal(5_000)
    merchant.sandbox.fail_next("POST", "/b2c/payouts", Fault.error_before_commit)
    assert "Stopped" in run("payroll.py", *arguments(tmp_path), env=merchant.env(), code=3).stdout
    unknown = "SALARY-2026-11-E00"
    assert report(tmp_path / "kept")[unknown]["state"] == "UNKNOWN"
    assert merchant.moved("payout") == {f"SALARY-2026-11-E{number:02}": 1 for number in range(1, 5)}
    merchant.account.b2c_balance = enough
    with (
        Journal(f"sqlite:///{tmp_path / 'kept' / 'payouts.db'}") as journal,
        Client(merchant.key, base_url=merchant.sandbox.base_url) as client,
    ):
        long_ago(journal)
        client.payouts.release(journal=journal, reference=unknown, by="Wanjiku")
    run("payroll.py", *arguments(tmp_path), env=merchant.env())
    assert merchant.moved("payout") == all_once()


def test_an_invalid_file_pays_nobody_and_lists_every_fault(merchant: Merchant, tmp_path: Path) -> None:
    faulty = {
        "E01,0712345678,1.005": "line 3: the amount must be KES 10 or more",
        "E02,0712345678,NaN": "line 4: the amount must be KES 10 or more",
        "E03,12345,100": "line 5: must be a Kenyan phone",
        "E04,0712345678,much": "line 6: needs employee, phone and amount",
        "E05,0712345678": "line 7: needs employee, phone and amount",
        "E00,0712345679,100": "line 8: this employee is in the file twice",
    }
    path = tmp_path / "bad.csv"
    path.write_text("\n".join(["employee,phone,amount", "E00,0712345678,100", *faulty]))
    refused = run("payroll.py", str(path), "--folder", str(tmp_path), "--yes", env=merchant.env(), code=1)
    assert [fault for fault in faulty.values() if fault not in refused.stderr] == []
    assert merchant.moved("payout").total() == 0


def test_the_plain_command_pays_on_the_embedded_sandbox(tmp_path: Path) -> None:
    ended = run("payroll.py", "--folder", str(tmp_path), code=1)
    states = [row["state"] for row in report(tmp_path).values()]
    assert (sorted(set(states)), states.count("SUCCESS")) == (["REVERSED", "SUCCESS"], 11)
    assert ended.stdout.count("REVERSED") == 1
