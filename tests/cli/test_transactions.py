"""Orders collected once at a time; transactions listed, read and waited for; the wallet and the channels."""

from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from unittest.mock import patch

import pytest

from cli.kit import LIVE, NORMALISED, PHONE, Shell
from momopay import Client, Journal, JournalState, parse_callback
from momopay.cli.output import moment
from momopay.sandbox import Account, Fault, Outcome, Sandbox, phone_for
from patience import beside, until
from sandbox.kit import Receiver, posts

STK = "/payments/stk"
LIST = ("transactions", "list", "--json")
ASKED = (*("collect", "INV-42", "--no-journal", "--amount", "100"), "--description", "Order 42", "--phone", PHONE)


@pytest.fixture
def journal(tmp_path: Path) -> str:
    return str(tmp_path / "journal.db")


def collect(journal: str, *more: str, phone: str = PHONE) -> tuple[str, ...]:
    return ("collect", "INV-42", "--amount", "100", "--phone", phone, "--journal", journal, *more)


def test_an_order_is_prompted_once(momopay: Shell, sandbox: Sandbox, journal: str) -> None:
    first = momopay(*collect(journal))
    assert first.says(0, "Prompt sent: transaction ")
    assert momopay(*collect(journal, "--json")).json["transaction_id"] in first.out
    assert momopay(*collect(journal)).err == "No prompt was sent: this one is open, or was paid\n"
    sandbox.advance(120)
    paid = momopay(*collect(journal, "--wait", "--json"))
    assert (paid.code, paid.json["status"], posts(sandbox, STK)) == (0, "SUCCESS", 1)


def test_a_wait_records_the_end(momopay: Shell, sandbox: Sandbox, journal: str) -> None:
    sandbox.cancel(momopay(*collect(journal, "--json", phone=phone_for(Outcome.by_hand))).json["transaction_id"])
    soon = ("--wait", "--every", "0.5", "--timeout", "1", "--json")
    again = momopay(*collect(journal, *soon, phone=phone_for(Outcome.by_hand)))
    assert (again.code, again.json["status"]) == (6, "PENDING")
    assert f"momopay transactions wait {again.json['transaction_id']}" in again.err
    sandbox.enter_pin(again.json["transaction_id"])
    before = len(sandbox.requests)

    def pay() -> None:
        until(lambda: len(sandbox.requests) > before + 1)
        sandbox.advance(60)

    with beside(pay):
        assert momopay(*collect(journal, "--wait", "--every", "0.1", phone=phone_for(Outcome.by_hand))).code == 0
    assert momopay("journal", "list", "--json", "--journal", journal).json["status"] == "SUCCESS"
    assert posts(sandbox, STK) == 2


def test_an_order_in_doubt_exits_with_4_and_is_listed(momopay: Shell, sandbox: Sandbox, journal: str) -> None:
    sandbox.fail_next("POST", "/payments/stk", Fault.error_before_commit)
    for _ in range(2):
        unknown = momopay(*collect(journal))
        assert (unknown.code, "do not send it again" in unknown.err, posts(sandbox, STK)) == (4, True, 1)
    with Journal(f"sqlite:///{journal}") as opened:
        assert [entry.state for entry in opened.unresolved()] == [JournalState.UNKNOWN]
    assert momopay("payouts", "status", "--journal", journal).prints(4, "INV-42", "COLLECTION")


def test_a_prompt_without_a_journal_is_sent_each_time(momopay: Shell, sandbox: Sandbox, tmp_path: Path) -> None:
    for reference in ("INV-42", ""):
        words = [word for word in ASKED if word != "INV-42" or reference]
        assert momopay(*words, MOMOPAY_JOURNAL=str(tmp_path / "new.db")).code == 0
    assert (posts(sandbox, STK), list(tmp_path.iterdir())) == (2, [])


def test_a_prompt_that_is_pending_shows_no_result(momopay: Shell, sandbox: Sandbox, receiver: Receiver) -> None:
    """The provider's code 0 says that the prompt was accepted: nobody has paid."""
    shown = momopay(*ASKED, "--amount", "99.50", "--callback-url", receiver.url)
    assert (shown.code, "PENDING" in shown.out, "Result code" in shown.out) == (0, True, False)
    made = shown.out.split()[1]
    assert shown.err == f"Prompt sent: transaction {made}\n"
    (request,) = sandbox.requests
    texts = {"accountReference": "INV-42", "transactionDesc": "Order 42", "callbackUrl": receiver.url}
    assert request.json == {"amount": 99.5, "phone": NORMALISED, **texts}
    assert "Result code" not in momopay("transactions", "get", made).out
    assert momopay("transactions", "get", made, "--json").json["result_code"] is None
    sandbox.advance(120)
    assert "Result code" in momopay("transactions", "get", made).out


@pytest.mark.usefixtures("live_keys")
@pytest.mark.usefixtures("no_backoff")
def test_a_live_key_asks_and_the_answer_must_be_exact(momopay: Shell) -> None:
    """What is let go does not reach its host, which does not exist. Without an answer, the question is interrupted."""
    ends = [momopay(*ASKED, piped=piped, **LIVE) for piped in ("", "y\n", "yes\n")]
    ends += [momopay.at_a_terminal(*ASKED, typed=typed, **LIVE) for typed in ("", "y\n", "yes\n")]
    ends += [momopay(*ASKED, "--confirm-live", total, **LIVE) for total in ("100.00", "10")]
    assert [done.code for done in ends] == [2, 1, 6, 130, 1, 6, 6, 2]
    assert "--confirm-live" in ends[0].err
    for done in ends[1:6]:
        assert "real money will move" in done.err
        assert "Type yes to go on" in done.err
    assert "Interrupted." in ends[3].err
    assert "KES 10.00, and KES 100.00 may move" in ends[7].err
    assert "secret" not in "".join(done.err for done in ends)


def prompt(client: Client, number: int = 1, phone: str = PHONE) -> str:
    return client.stk.initiate(amount=number, phone=phone, account_reference=f"INV-{number}").transaction_id


def ids(items: list[dict[str, str]]) -> list[str]:
    return [item["transaction_id"] for item in items]


@pytest.fixture
def made(client: Client) -> list[str]:
    """Five prompts, of KES 1 to 5."""
    return [prompt(client, number) for number in range(1, 6)]


def test_a_page_shows_whole_ids_on_80_columns_and_leads_on(momopay: Shell, made: list[str]) -> None:
    page = momopay("transactions", "list", "--limit", "2")
    assert page.prints(0, made[4], made[3], "5 in all: 0 completed, 0 failed, 5 pending", "More with --all")
    assert made[2] not in page.out
    assert max(map(len, page.out.splitlines()[:8])) <= 80
    assert ids(momopay(*LIST, "--limit", "2").json["items"]) == [made[4], made[3]]


def test_all_transactions_come_one_a_line(momopay: Shell, made: list[str], sandbox: Sandbox) -> None:
    before = len(sandbox.requests)
    assert (ids(momopay(*LIST, "--all").lines), len(sandbox.requests) - before) == (made[::-1], 1)
    assert "5 in all" in momopay("transactions", "list", "--all").out


def test_filters_reach_the_service(momopay: Shell, made: list[str]) -> None:
    some = momopay(*LIST, "--min", "2", "--max", "3.50", "--type", "stk", "--status", "pending").json
    assert ids(some["items"]) == [made[2], made[1]]
    channel = "0a1b2c3d-0712-4345-8678-0a1b2c3d4e5f"
    for option, value, total in (
        *(("--q", "INV-4", 1), ("--to", "2001-01-01", 0), ("--from", "2001-01-01", 5), ("--channel", channel, 0)),
    ):
        assert momopay(*LIST, option, value).json["overview"]["total"] == total
    # Whether the list has a status is for the service to say.
    assert "must be one of" in momopay(*LIST, "--status", "expired").err


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
    assert moment(datetime.fromisoformat(record["created_at"])) == created
    assert momopay("transactions", "get", "nonsense").says(1, "What to do: check the id")


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
    assert (waited.code, waited.json["status"], len(sandbox.requests)) == (code, status, before + 1)


def test_a_failed_payout_settles_when_it_is_reversed(momopay: Shell, client: Client, sandbox: Sandbox) -> None:
    paid = client.payouts.initiate(amount=50, phone=phone_for(Outcome.insufficient_funds), reference="SAL-1")
    sandbox.advance(36)
    wait = ("transactions", "wait", paid.transaction_id, "--every", "0.5", "--timeout", "1", "--json")
    assert momopay(*wait).json["status"] == "FAILED"
    waited = momopay(*wait, "--settled")
    assert (waited.code, waited.out) == (6, "")
    assert "momopay transactions wait" in waited.err
    sandbox.advance(20)
    assert momopay(*wait, "--settled").json["status"] == "REVERSED"


def test_finding_payments(momopay: Shell, client: Client, sandbox: Sandbox, receiver: Receiver, tmp_path: Path) -> None:
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
    for arguments in (
        ("RENT",),
        ("--reference", "RENT"),
        ("RENT", "--reference", "RENT"),
        ("RENT", "--phone", PHONE),
        ("--phone", PHONE),
        ("--receipt", receipt, "--journal", str(path)),
        ("--receipt", f" {receipt[:4].lower()} {receipt[4:].lower()}.", "--journal", str(path)),
        ("--receipt", f"{receipt} Confirmed. Ksh900.00 sent to JANE on 25/11/26", "--journal", str(path)),
    ):
        assert ids(momopay("transactions", "find", "--json", *arguments).lines) == [made.transaction_id], arguments
    for arguments in (("B",), ("--phone", "0712345670")):
        assert momopay("transactions", "find", *arguments).says(1, "Nothing since ", "--since searches further back")
    unknown = momopay("transactions", "find", "--receipt", "6lyz 47cmck", "--journal", str(path))
    assert unknown.says(1, "does not mean that nothing was paid", "callback was lost", "transactions find --phone 07")
    twice = ("RENT", "--reference", "B")
    for senseless in ((), twice, ("--receipt", receipt), ("--receipt", receipt, "RENT", "--journal", str(path))):
        assert momopay("transactions", "find", *senseless).code == 2
    later = f"{sandbox.now - timedelta(seconds=590):%Y-%m-%dT%H:%M:%SZ}"
    for name, text in (("--phone", PHONE), ("--reference", "RENT")):
        assert momopay("transactions", "find", name, text, "--since", later).code == 1


def test_a_search_of_a_long_list_has_an_hour(momopay: Shell, tmp_path: Path) -> None:
    with Journal(f"sqlite:///{tmp_path / 'shop.db'}") as journal:
        journal.get("X")
    with patch("momopay.Client", wraps=Client) as made:
        assert momopay("transactions", "find", "--reference", "X").code == 1
        assert momopay("payouts", "release", "X", "--journal", str(tmp_path / "shop.db")).code == 2
        assert momopay("balance").code == 0
    assert [each.kwargs["deadline"] for each in made.call_args_list] == [3600, 3600, 90]


def test_the_balance(momopay: Shell, account: Account) -> None:
    account.service_balance = Decimal("1234567.50")
    shown = momopay("balance", "--fail-below", "1234567.50")
    assert (shown.prints(0, "KES 1,234,567.50"), shown.err) == (True, "")
    low = momopay("balance", "--fail-below", "1234567.51", "--json")
    assert low.says(1, "less than KES 1,234,567.51: top it up")
    assert low.json["available_balance"] == "1234567.50"


def test_the_channels(momopay: Shell, account: Account) -> None:
    shown = momopay("channels")
    assert (shown.prints(0, "yes", account.channels[0].id), shown.err) == (True, "")
    (channel,) = momopay("channels", "--json").json["items"]
    assert (channel["type"], channel["shortcode"], channel["is_default"]) == ("PAYBILL", "600100", True)
    account.channels = []
    assert "no payment channel" in momopay("channels").out
    assert momopay("channels", "--json").json == {"items": []}
