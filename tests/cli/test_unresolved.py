"""What a payroll leaves in doubt: seen, searched for, and released by a person."""

import json

import pytest

from cli.kit import PAY, Done, PayrollShell, wait_is_over
from momopay import Client
from momopay.sandbox import Fault


def test_an_empty_file_stays_empty_and_the_status_needs_no_key(payroll: PayrollShell) -> None:
    for arguments in (("payouts", "status"), ("payouts", "release", "SAL-0")):
        payroll.database.touch()  # as a redirection of the shell leaves it
        assert payroll.momopay(*arguments, *payroll.journal).code == 3
        assert payroll.database.read_bytes() == b""
        payroll.database.unlink()
        assert [*payroll.folder.iterdir()] == [payroll.file]
    payroll.write(2)
    payroll.run("--yes")
    before = len(payroll.sandbox.requests)
    status = payroll.momopay("payouts", "status", *payroll.journal, MOMOPAY_API_KEY="", MOMOPAY_BASE_URL="")
    assert (status.code, status.out, len(payroll.sandbox.requests)) == (0, "Nothing is unresolved.\n", before)


def leave_in_doubt(payroll: PayrollShell, *, paid: bool) -> None:
    """Run a payroll whose first row ends in doubt, and is on the service's list or never will be."""
    payroll.write(2)
    payroll.sandbox.fail_next("POST", PAY, Fault.reset_after_commit if paid else Fault.error_before_commit)
    if paid:  # the list does not show it as the run ends
        payroll.sandbox.fail_next("GET", "/transactions", Fault.list_lag)
    assert payroll.run("--yes").code == 4


def release(payroll: PayrollShell, *options: str, typed: str = "SAL-0\n", reference: str = "SAL-0") -> Done:
    wait_is_over(payroll.database)
    return payroll.momopay.at_a_terminal("payouts", "release", reference, *payroll.journal, *options, typed=typed)


def test_what_is_in_doubt_is_shown_released_by_a_person_and_paid_by_the_next_run(payroll: PayrollShell) -> None:
    leave_in_doubt(payroll, paid=False)
    command = ("payouts", "status", *payroll.journal)
    status = payroll.momopay(*command, "--json")
    assert status.code == 4
    (entry,) = status.json["unresolved"]
    assert (entry["reference"], entry["state"], entry["amount"]) == ("SAL-0", "UNKNOWN", "1000.50")
    assert (entry["phone"], entry.keys() & {"claim", "revision"}) == ("2547*****000", set())
    assert (entry["attempts"], entry["released_by"]) == (1, None)
    assert payroll.momopay(*command).prints(4, "`momopay sweep` searches for them", "release REFERENCE")
    for piped in (None, "SAL-0\n"):
        refused = payroll.momopay("payouts", "release", "SAL-0", *payroll.journal, piped=piped)
        assert (refused.code, "a person at a terminal" in refused.err) == (2, True)
    early = payroll.momopay.at_a_terminal("payouts", "release", "SAL-0", *payroll.journal, typed="SAL-0\n")
    assert (early.code, "release it in" in early.err) == (6, True)
    assert release(payroll, typed="SAL-1\n").code == 1
    assert payroll.state() == "UNKNOWN"
    assert release(payroll).says(0, "pays it twice", "younger than ten minutes")
    assert (payroll.state(), payroll.paid["SAL-0"]) == ("NOT_SENT", 0)
    assert payroll.run("--yes").code == 0
    payroll.assert_paid_once(2)


def test_what_the_service_has_is_found_and_not_released(payroll: PayrollShell) -> None:
    leave_in_doubt(payroll, paid=True)
    assert payroll.momopay("payouts", "status", *payroll.journal).code == 4
    assert release(payroll).says(1, "must not be sent again")
    assert payroll.state() == "ACCEPTED"


def test_what_is_not_in_doubt_is_not_released(payroll: PayrollShell) -> None:
    payroll.write(1)
    payroll.run("--yes")
    assert release(payroll).says(2, "ACCEPTED in the journal")
    assert release(payroll, reference="SAL-9").code == 2


def test_transactions_with_its_reference_are_shown_and_refuse_a_release(payroll: PayrollShell, client: Client) -> None:
    leave_in_doubt(payroll, paid=False)
    near = client.payouts.initiate(amount=500, phone="0700000000", reference="SAL-0")
    client.payouts.initiate(amount=500, phone="0700000000", reference="SAL-00")
    assert release(payroll).says(4, near.transaction_id)
    said = release(payroll, "--json").err
    error = json.loads(said[said.index('{"error"') :])
    assert (error["matches"], error["near_matches"], payroll.state()) == ([], [near.transaction_id], "UNKNOWN")
    again = payroll.run("--yes", "--json")
    assert (again.code, again.lines[0]["unresolved"]["rows"], payroll.paid["SAL-0"]) == (4, 1, 1)
    released = json.loads(release(payroll, "--searched-elsewhere", "--json").out.splitlines()[-1])
    assert {"reference": "SAL-0", "state": "NOT_SENT", "phone": "2547*****000"}.items() <= released.items()
    assert payroll.state() == "NOT_SENT"


def test_who_released_a_payout_is_kept_and_shown(payroll: PayrollShell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGNAME", "njeri")
    for options, name in (([], "njeri"), (["--by", "Otieno"], "Otieno")):
        payroll.sandbox.fail_next("POST", PAY, Fault.error_before_commit, times=2)
        payroll.write(1)
        assert payroll.run("--yes").code == 4
        assert release(payroll, *options).code == 0
        assert payroll.run("--yes").code == 4
        status = payroll.momopay("payouts", "status", *payroll.journal)
        assert f"by {name}" in status.words
        assert "SAL-0: released at 20" in status.words
        assert release(payroll, *options).code == 0
    assert payroll.paid == {}
