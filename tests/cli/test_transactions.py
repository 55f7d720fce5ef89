"""Transactions listed, read and waited for."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest

from cli.kit import NORMALISED, PHONE, Shell
from momopay import Client, Journal, parse_callback
from momopay.sandbox import Outcome, Sandbox, phone_for
from sandbox.kit import Receiver

LIST = ("transactions", "list", "--json")


def prompt(client: Client, number: int = 1, phone: str = PHONE) -> str:
    return client.stk.initiate(amount=number, phone=phone, account_reference=f"INV-{number}").transaction_id


def ids(items: list[dict[str, str]]) -> list[str]:
    return [item["transaction_id"] for item in items]


def test_a_page_shows_whole_ids_on_80_columns_and_leads_on(momopay: Shell, client: Client) -> None:
    made = [prompt(client, number) for number in range(1, 6)]
    page = momopay("transactions", "list", "--limit", "2")
    assert page.code == 0
    assert made[4] in page.out
    assert made[3] in page.out
    assert made[2] not in page.out
    assert "5 in all: 0 completed, 0 failed, 5 pending" in page.out
    assert max(map(len, page.out.splitlines()[:8])) <= 80
    document = momopay(*LIST, "--limit", "2").json
    assert ids(document["items"]) == [made[4], made[3]]
    after = momopay(*LIST, "--limit", "2", "--cursor", document["next_cursor"]).json
    assert ids(after["items"]) == [made[2], made[1]]


def test_all_transactions_come_one_a_line(momopay: Shell, client: Client, sandbox: Sandbox) -> None:
    made = [prompt(client, number) for number in range(1, 6)]
    before = len(sandbox.requests)
    assert ids(momopay(*LIST, "--all").lines) == made[::-1]
    assert len(sandbox.requests) - before == 1
    assert "5 in all" in momopay("transactions", "list", "--all").out
    refused = momopay("transactions", "list", "--all", "--cursor", "x")
    assert (refused.code, len(sandbox.requests) - before) == (2, 2)


def test_filters_reach_the_service(momopay: Shell, client: Client) -> None:
    made = [prompt(client, number) for number in range(1, 6)]
    some = momopay(*LIST, "--min", "2", "--max", "3.50", "--type", "stk", "--status", "pending").json
    assert ids(some["items"]) == [made[2], made[1]]
    assert momopay(*LIST, "--q", "INV-4").json["overview"]["total"] == 1
    assert momopay(*LIST, "--to", "2001-01-01").json["items"] == []
    assert momopay(*LIST, "--from", "2001-01-01").json["overview"]["total"] == 5
    assert momopay(*LIST, "--channel", "0a1b2c3d-0712-4345-8678-0a1b2c3d4e5f").json["items"] == []


def test_a_mistyped_filter_sends_nothing(momopay: Shell, sandbox: Sandbox) -> None:
    assert momopay(*LIST, "--min", "1,000").code == 2
    unknown = momopay(*LIST, "--status", "fail")
    assert (unknown.code, sandbox.requests) == (2, [])
    assert "CANCELLED, EXPIRED" in unknown.err


def test_whether_the_list_has_a_status_is_for_the_service_to_say(momopay: Shell, sandbox: Sandbox) -> None:
    assert "must be one of" in momopay(*LIST, "--status", "expired").err
    assert len(sandbox.requests) == 1


def test_one_transaction(momopay: Shell, client: Client) -> None:
    made = prompt(client)
    shown = momopay("transactions", "get", made)
    assert shown.code == 0
    labels = [line.split("  ")[0] for line in shown.out.splitlines()]
    assert {"Transaction", "Type", "Status", "Amount", "Phone", "Account reference", "Created", "Updated"} <= {*labels}
    assert "Result code" not in labels
    record = momopay("transactions", "get", made, "--json", "--show-phones").json
    assert (record["status"], record["amount"], record["phone"]) == ("PENDING", "1", NORMALISED)
    (created,) = [line.split(maxsplit=1)[1].strip() for line in shown.out.splitlines() if line.startswith("Created")]
    assert datetime.fromisoformat(created) == datetime.fromisoformat(record["created_at"]).replace(microsecond=0)
    unknown = momopay("transactions", "get", "nonsense")
    assert unknown.code == 1
    assert "What to do: check the id" in unknown.err


@pytest.mark.parametrize(
    ("outcome", "status", "code"),
    [(Outcome.success, "SUCCESS", 0), (Outcome.insufficient_funds, "FAILED", 1), (Outcome.expired, "EXPIRED", 1)],
)
def test_a_wait_for_what_has_ended_is_over_with_one_request(
    momopay: Shell, client: Client, sandbox: Sandbox, outcome: Outcome, status: str, code: int
) -> None:
    """A pause before the first poll would be longer than the timeout."""
    made = prompt(client, phone=phone_for(outcome))
    sandbox.advance(120)
    before = len(sandbox.requests)
    waited = momopay("transactions", "wait", made, "--every", "500", "--timeout", "1", "--json")
    assert (waited.code, waited.json["status"]) == (code, status)
    assert len(sandbox.requests) == before + 1


def test_a_failed_payout_settles_when_it_is_reversed(momopay: Shell, client: Client, sandbox: Sandbox) -> None:
    paid = client.payouts.initiate(amount=50, phone=phone_for(Outcome.insufficient_funds), reference="SAL-1")
    sandbox.advance(36)
    wait = ("transactions", "wait", paid.transaction_id, "--every", "0.1", "--timeout", "1", "--json")
    assert momopay(*wait).json["status"] == "FAILED"
    waited = momopay(*wait, "--settled")
    assert (waited.code, waited.out) == (6, "")
    assert "momopay transactions wait" in waited.err
    sandbox.advance(20)
    assert momopay(*wait, "--settled").json["status"] == "REVERSED"


def test_transactions_are_found_by_what_is_known(
    momopay: Shell, client: Client, sandbox: Sandbox, receiver: Receiver, tmp_path: Path
) -> None:
    path = tmp_path / "payouts.db"
    with Journal(f"sqlite:///{path}") as journal:
        made = client.payouts.pay_once(
            journal=journal, reference="RENT", amount=900, phone=PHONE, callback_url=receiver.url
        )
        client.stk.initiate(amount=5, phone="0712345679", account_reference="A")
        sandbox.advance(600)
        callback = parse_callback(receiver.bodies[0])
        client.transactions.confirm(callback)
        journal.record(callback)
    receipt = callback.transaction.momo_receipt or ""
    ids = {
        name: [each["transaction_id"] for each in momopay("transactions", "find", "--json", *arguments).lines]
        for name, arguments in {
            "reference": ("--reference", "RENT"),
            "both": ("--reference", "RENT", "--phone", PHONE),
            "phone": ("--phone", PHONE),
            "receipt": ("--receipt", receipt, "--journal", str(path)),
        }.items()
    }
    assert ids == {name: [made.transaction_id] for name in ids}
    for arguments in (("--reference", "B"), ("--phone", "0712345670"), ("--receipt", "X", "--journal", str(path))):
        assert momopay("transactions", "find", *arguments).code == 1
    assert momopay("transactions", "find").code == 2
    for more in ((), ("--phone", PHONE, "--journal", str(path))):
        assert momopay("transactions", "find", "--receipt", receipt, *more).code == 2
    later = f"{sandbox.now:%Y-%m-%dT%H:%M:%SZ}"
    for name, text in (("--phone", PHONE), ("--reference", "RENT")):
        assert momopay("transactions", "find", name, text, "--since", later).code == 1
