"""`momopay sweep` in a terminal: one pass, or one after another until a signal. The rules are the library's."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from cli.kit import PHONE, Shell, signalling
from momopay import Client, Journal
from momopay.sandbox import Fault, Sandbox


@pytest.fixture
def database(tmp_path: Path, client: Client) -> Path:
    """A journal with a payout that was accepted."""
    with Journal(f"sqlite:///{tmp_path / 'payouts.db'}") as journal:
        client.payouts.pay_once(journal=journal, reference="SAL-1", amount=10, phone=PHONE)
    return tmp_path / "payouts.db"


def test_one_pass_records_what_ended(momopay: Shell, sandbox: Sandbox, database: Path) -> None:
    done = momopay("sweep", "--journal", str(database), "--json")
    assert (done.code, done.json) == (0, {"settled": 0, "open": 1, "unknown": 0, "handled": 0, "failed": 0})
    sandbox.advance(3600)
    done = momopay("sweep", "--journal", str(database))
    assert (done.code, done.words.split()[-3:]) == (0, ["1", "0", "0"])
    with Journal(f"sqlite:///{database}") as journal:
        assert journal.open() == []


def test_what_stays_in_doubt_has_a_hint(momopay: Shell, client: Client, sandbox: Sandbox, database: Path) -> None:
    sandbox.fail_next("POST", "/b2c/payouts", Fault.error_before_commit)
    with Journal(f"sqlite:///{database}") as journal, pytest.raises(Exception, match="may have"):
        client.payouts.pay_once(journal=journal, reference="SAL-2", amount=10, phone=PHONE)
    done = momopay("sweep", "--journal", str(database))
    assert (done.code, "momopay payouts status" in done.words) == (0, True)


@pytest.mark.usefixtures("no_backoff")
def test_it_goes_on_until_a_signal_and_survives_a_failure(momopay: Shell, sandbox: Sandbox, database: Path) -> None:
    sandbox.fail_next("GET", "/transactions/{id}", Fault.error_before_commit, times=4)

    def has_read_again() -> bool:
        return sum(request.path.startswith("/transactions/") for request in sandbox.requests) > 5

    with signalling([signal.SIGINT], has_read_again):
        done = momopay("sweep", "--journal", str(database), "--every", "1", "--json")
    assert done.code == 130
    assert "The next sweep goes on" in done.err
    assert done.lines[0]["open"] == 1


def test_it_creates_no_journal(momopay: Shell, sandbox: Sandbox, tmp_path: Path) -> None:
    done = momopay("sweep", "--journal", str(tmp_path / "none.db"))
    assert done.code == 3
    assert list(tmp_path.iterdir()) == []
    assert sandbox.requests == []
