"""The journal looked into, and the human's word: only a person at a terminal releases, and never what was paid."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from cli.kit import Done, Shell, write_salaries
from momopay import Journal, JournalState
from momopay.sandbox import Fault, Sandbox

PAY = "/b2c/payouts"


@pytest.fixture
def at(tmp_path: Path) -> Path:
    return tmp_path / "payouts.db"


@pytest.fixture
def run(momopay: Shell, at: Path) -> Callable[[], Done]:
    def start() -> Done:
        file = write_salaries(at.with_name("salaries.csv"), 2)
        return momopay("payouts", "run", str(file), "--journal", str(at), "--yes")

    return start


def state(at: Path, reference: str = "SAL-0") -> JournalState | None:
    with Journal(f"sqlite:///{at}") as journal:
        entry = journal.get(reference)
    return None if entry is None else entry.state


def payouts(sandbox: Sandbox) -> int:
    return [str(movement.kind) for movement in sandbox.ledger].count("payout")


def test_a_released_reference_is_paid_by_the_next_run(
    momopay: Shell, run: Callable[[], Done], sandbox: Sandbox, at: Path
) -> None:
    sandbox.fail_next("POST", PAY, Fault.error_before_commit)
    assert run().code == 4
    command = ("payouts", "release", "SAL-0", "--journal", str(at))
    for piped in (None, "SAL-0\n"):
        refused = momopay(*command, piped=piped)
        assert refused.code == 2
        assert "a person at a terminal" in refused.err
    assert momopay.at_a_terminal(command, [("Type the reference", "SAL-1")]).code == 1
    assert (state(at), payouts(sandbox)) == ("UNKNOWN", 1)
    released = momopay.at_a_terminal(command, [("Type the reference", "SAL-0")])
    assert released.code == 0
    assert "pays it twice" in released.out
    assert "younger than ten minutes" in released.out
    assert (state(at), payouts(sandbox)) == ("NOT_SENT", 1)
    assert run().code == 0
    assert payouts(sandbox) == 2


def test_what_was_released_is_told_to_a_machine(
    momopay: Shell, run: Callable[[], Done], sandbox: Sandbox, at: Path
) -> None:
    sandbox.fail_next("POST", PAY, Fault.error_before_commit)
    run()
    command = ("payouts", "release", "SAL-0", "--journal", str(at), "--json")
    released = momopay.at_a_terminal(command, [("Type the reference", "SAL-0")])
    assert released.code == 0
    entry = json.loads(released.out.splitlines()[-1])
    assert (entry["reference"], entry["state"], entry["amount"]) == ("SAL-0", "NOT_SENT", "1000.50")
    assert entry["phone"] == "2547*****000"
    again = momopay(*command)
    assert (again.code, again.out) == (2, "")
    assert json.loads(again.err)["exit_code"] == 2


def test_what_the_service_has_is_settled_and_not_released(
    momopay: Shell, run: Callable[[], Done], sandbox: Sandbox, at: Path
) -> None:
    sandbox.fail_next("POST", PAY, Fault.reset_after_commit)
    sandbox.fail_next("GET", "/transactions", Fault.list_lag, times=2)  # as the run begins and as it ends
    assert run().code == 4
    refused = momopay("payouts", "release", "SAL-0", "--journal", str(at))
    assert refused.code == 1
    assert "must not be sent again" in refused.err
    assert state(at) == "ACCEPTED"


def test_what_is_not_in_doubt_is_not_released(momopay: Shell, run: Callable[[], Done], at: Path) -> None:
    run()
    accepted = momopay("payouts", "release", "SAL-0", "--journal", str(at))
    assert accepted.code == 2
    assert "ACCEPTED in the journal" in accepted.err
    assert momopay("payouts", "release", "SAL-9", "--journal", str(at)).code == 2


def test_the_status_needs_no_key_and_makes_no_journal(
    momopay: Shell, run: Callable[[], Done], sandbox: Sandbox, at: Path
) -> None:
    missing = momopay("payouts", "status", "--journal", str(at))
    assert missing.code == 3
    assert not at.exists()
    run()
    before = len(sandbox.requests)
    status = momopay("payouts", "status", "--journal", str(at), MOMOPAY_API_KEY="", MOMOPAY_BASE_URL="")
    assert (status.code, status.out) == (0, "Nothing is in doubt.\n")
    assert len(sandbox.requests) == before


def test_the_status_looks_again_when_told(momopay: Shell, run: Callable[[], Done], sandbox: Sandbox, at: Path) -> None:
    sandbox.fail_next("POST", PAY, Fault.reset_after_commit)
    sandbox.fail_next("GET", "/transactions", Fault.list_lag, times=2)  # as the run begins and as it ends
    run()
    doubtful = momopay("payouts", "status", "--journal", str(at))
    assert doubtful.code == 4
    assert "SAL-0" in doubtful.out
    assert "2547*****000" in doubtful.out
    assert momopay("payouts", "status", "--journal", str(at), "--look").code == 0
    assert state(at) == "ACCEPTED"
