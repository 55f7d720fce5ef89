"""A refund from the terminal: asked about, capped, and paid once."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.kit import NORMALISED, PHONE, Shell
from momopay import Client, Journal
from momopay.sandbox import Sandbox


@pytest.fixture
def journal(client: Client, sandbox: Sandbox, tmp_path: Path) -> tuple[str, str]:
    path = tmp_path / "payouts.db"
    with Journal(f"sqlite:///{path}") as journal:
        client.stk.collect_once(journal=journal, reference="o", amount=100, phone=PHONE)
    sandbox.advance(120)
    return "--journal", str(path)


def paid(sandbox: Sandbox) -> list[tuple[str | None, int]]:
    return [(each.reference, abs(int(each.amount))) for each in sandbox.ledger if str(each.kind) == "payout"]


def test_a_refund_is_asked_about_and_paid_once(momopay: Shell, sandbox: Sandbox, journal: tuple[str, str]) -> None:
    """The callback of the order was lost: it is read first."""
    refused = momopay("payouts", "refund", "o", *journal, piped="n\n")
    assert (refused.code, paid(sandbox)) == (1, [])
    assert "Pay KES 100.00 back to 2547*****678, as o-R1?" in refused.err
    for _ in range(2):
        done = momopay("payouts", "refund", "o", *journal, "--yes", "--json", "--show-phones")
        assert (done.code, done.json["amount"], done.json["phone"]) == (0, "100", NORMALISED)
    assert paid(sandbox) == [("o-R1", 100)]
    more = momopay("payouts", "refund", "o", *journal, "--yes", "--amount", "10", "--reference", "o-R2")
    assert (more.code, paid(sandbox)) == (2, [("o-R1", 100)])
    assert "o-R1" in more.err


def test_a_part_with_a_live_key_takes_its_exact_sum(momopay: Shell, sandbox: Sandbox, journal: tuple[str, str]) -> None:
    live = {"MOMOPAY_API_KEY": "pk_live_secret", "MOMOPAY_BASE_URL": "https://service.invalid/v1"}
    part = ("payouts", "refund", "o", *journal, "--amount", "40")
    assert momopay(*part, "--yes", **live).code == 2
    assert momopay(*part, "--confirm-live", "100", **live).code == 2
    assert momopay(*part, "--yes").code == 0
    assert paid(sandbox) == [("o-R1", 40)]


def test_what_is_not_in_a_journal_is_not_refunded(momopay: Shell, sandbox: Sandbox, journal: tuple[str, str]) -> None:
    unknown = momopay("payouts", "refund", "nobody", *journal, "--yes")
    assert unknown.code == 2
    assert "REFERENCE: is no collection in this journal" in unknown.err
    assert momopay("payouts", "refund", "o", "--journal", f"{journal[1]}-not", "--yes").code == 3
    assert not Path(f"{journal[1]}-not").exists()
    assert paid(sandbox) == []
