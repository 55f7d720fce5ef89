"""What the account has: balance, channels, transactions; read, listed and waited for."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from decimal import Decimal

import pytest

from cli.kit import PHONE, WHOLE, Shell
from momopay import Client
from momopay.sandbox import Account, Fault, Outcome, Sandbox, phone_for


@pytest.fixture
def client(sandbox: Sandbox, key: str) -> Client:
    return Client(key, base_url=sandbox.base_url, budget=None)


def prompt(client: Client, number: int = 1, phone: str = PHONE) -> str:
    return client.stk.initiate(amount=number, phone=phone, account_reference=f"INV-{number}").transaction_id


def test_the_balance(momopay: Shell, account: Account) -> None:
    account.service_balance = Decimal("1234567.50")
    shown = momopay("balance")
    assert shown.code == 0
    assert "KES 1,234,567.50" in shown.out
    assert momopay("balance", "--json").json["available_balance"] == "1234567.50"


def test_the_channels(momopay: Shell, account: Account) -> None:
    shown = momopay("channels")
    assert (shown.code, shown.err) == (0, "")
    assert "Sandbox Paybill (default)" in shown.out
    assert account.channels[0].id in shown.out
    (channel,) = momopay("channels", "--json").json["items"]
    assert (channel["type"], channel["shortcode"], channel["is_default"]) == ("PAYBILL", "600100", True)
    account.channels = []
    assert "no payment channel" in momopay("channels").out


def test_a_list_shows_whole_ids_on_80_columns_and_leads_on(momopay: Shell, client: Client) -> None:
    made = [prompt(client, number) for number in range(1, 6)]
    page = momopay("transactions", "list", "--limit", "2")
    assert page.code == 0
    assert made[4] in page.out
    assert made[3] in page.out
    assert made[2] not in page.out
    assert "5 in all: 0 completed, 0 failed, 5 pending" in page.out
    assert max(map(len, page.out.splitlines()[:8])) <= 80
    document = momopay("transactions", "list", "--limit", "2", "--json").json
    assert [item["transaction_id"] for item in document["items"]] == [made[4], made[3]]
    after = momopay("transactions", "list", "--limit", "2", "--cursor", document["next_cursor"], "--json").json
    assert [item["transaction_id"] for item in after["items"]] == [made[2], made[1]]


def test_all_pages_come_as_one_transaction_a_line(momopay: Shell, client: Client, sandbox: Sandbox) -> None:
    made = [prompt(client, number) for number in range(1, 121)]
    before = len(sandbox.requests)
    lines = momopay("transactions", "list", "--all", "--json").lines
    assert [line["transaction_id"] for line in lines] == made[::-1]
    assert len(sandbox.requests) - before == 2
    assert "120 in all" in momopay("transactions", "list", "--all").out
    refused = momopay("transactions", "list", "--all", "--cursor", "x")
    assert (refused.code, len(sandbox.requests) - before) == (2, 4)


def test_filters_reach_the_service(momopay: Shell, client: Client, sandbox: Sandbox) -> None:
    made = [prompt(client, number) for number in range(1, 6)]
    of = ("transactions", "list", "--json")
    some = momopay(*of, "--min", "2", "--max", "3.50", "--type", "stk", "--status", "pending").json
    assert [item["transaction_id"] for item in some["items"]] == [made[2], made[1]]
    assert momopay(*of, "--q", "INV-4").json["overview"]["total"] == 1
    assert momopay(*of, "--to", "2001-01-01").json["items"] == []
    assert momopay(*of, "--min", "1,000").code == 2
    before = len(sandbox.requests)
    unknown = momopay(*of, "--status", "fail")
    assert (unknown.code, len(sandbox.requests)) == (2, before)
    assert "CANCELLED, EXPIRED" in unknown.err
    assert "must be one of" in momopay(*of, "--status", "expired").err  # the service's word: SPEC.md has it as a status
    assert len(sandbox.requests) == before + 1


def test_times_bear_their_zone(momopay: Shell, client: Client) -> None:
    made = prompt(client)
    when = datetime.fromisoformat(momopay("transactions", "get", made, "--json").json["created_at"])
    shown = momopay.process("transactions", "get", made, TZ="Africa/Nairobi").out
    (created,) = [line.split(maxsplit=1)[1].strip() for line in shown.splitlines() if line.startswith("Created")]
    assert created.endswith("+03:00")
    assert datetime.fromisoformat(created) == when.replace(microsecond=0)
    listed = momopay.process("transactions", "list", TZ="UTC").out
    assert f"{when.replace(microsecond=0).astimezone(UTC)} STK" in listed


def test_one_transaction(momopay: Shell, client: Client) -> None:
    made = prompt(client)
    shown = momopay("transactions", "get", made)
    assert shown.code == 0
    assert made in shown.out
    assert "INV-1" in shown.out
    record = momopay("transactions", "get", made, "--json", "--show-phones").json
    assert (record["status"], record["amount"], record["phone"]) == ("PENDING", "1", WHOLE)
    unknown = momopay("transactions", "get", "nonsense")
    assert unknown.code == 1
    assert "TRANSACTION_NOT_FOUND" in unknown.err
    assert "What to do: check the id" in unknown.err


@pytest.mark.parametrize(
    ("outcome", "status", "code"),
    [
        (Outcome.success, "SUCCESS", 0),
        (Outcome.insufficient_funds, "FAILED", 1),
        (Outcome.cancelled, "CANCELLED", 1),
        (Outcome.expired, "EXPIRED", 1),
        (Outcome.never_answers, None, 6),
    ],
)
def test_a_wait_ends_with_the_payment(
    momopay: Shell, client: Client, sandbox: Sandbox, outcome: Outcome, status: str | None, code: int
) -> None:
    made = prompt(client, phone=phone_for(outcome))
    sandbox.advance(120)
    waited = momopay("transactions", "wait", made, "--every", "0.1", "--timeout", "1", "--json")
    assert waited.code == code
    if status is None:
        assert waited.out == ""
        assert "momopay transactions wait" in waited.err
    else:
        assert waited.json["status"] == status


def test_a_wait_for_what_has_ended_is_over_at_once(momopay: Shell, client: Client, sandbox: Sandbox) -> None:
    made = prompt(client)
    sandbox.advance(120)
    before, begun = len(sandbox.requests), time.monotonic()
    assert momopay("transactions", "wait", made).code == 0
    assert time.monotonic() - begun < 5  # the pause before a first look would be 15 s
    assert len(sandbox.requests) == before + 1


def test_a_failed_payout_settles_when_it_is_reversed(momopay: Shell, client: Client, sandbox: Sandbox) -> None:
    paid = client.payouts.initiate(amount=50, phone=phone_for(Outcome.insufficient_funds), reference="SAL-1")
    sandbox.advance(36)
    of = ("transactions", "wait", paid.transaction_id, "--every", "0.1", "--timeout", "1", "--json")
    assert momopay(*of).json["status"] == "FAILED"
    assert momopay(*of, "--settled").code == 6
    sandbox.advance(20)
    assert momopay(*of, "--settled").json["status"] == "REVERSED"


def test_what_the_service_says_cannot_drive_the_terminal(momopay: Shell, client: Client) -> None:
    made = client.stk.initiate(amount=1, phone=PHONE, account_reference="\x1b[2J[red]x").transaction_id
    shown = momopay("transactions", "get", made)
    assert "\x1b" not in shown.out
    assert "[red]x" in shown.out


def test_a_service_that_is_away_is_told_as_such(momopay: Shell, sandbox: Sandbox) -> None:
    sandbox.fail_next("GET", "/wallets/service/balance", Fault.error_before_commit, times=10)
    failed = momopay("balance")
    assert (failed.code, failed.out) == (6, "")
    assert "try again later" in failed.err
    assert "Traceback" not in failed.err


def test_a_wrong_key(momopay: Shell) -> None:
    refused = momopay("balance", "--json", MOMOPAY_API_KEY="pk_nonsense_123")
    assert refused.code == 3
    assert refused.out == ""
    assert '"code": "INVALID_API_KEY"' in refused.err
    assert "nonsense" not in refused.err


@pytest.mark.parametrize("columns", ["40", "60", "80", "200"])
def test_a_table_cuts_nothing_off(momopay: Shell, client: Client, sandbox: Sandbox, columns: str) -> None:
    reference = "SALARY-2026-NOVEMBER-WAREHOUSE-0002"
    paid = client.payouts.initiate(amount=Decimal("9123.50"), phone=PHONE, reference=reference)
    sandbox.advance(60)
    shown = momopay("transactions", "list", COLUMNS=columns).out
    assert "9,123.50" in shown
    assert paid.transaction_id in shown
    folded = "".join(line[60:].strip() for line in shown.splitlines() if len(line) > 60)
    assert reference in folded
