"""`spend=`: one prompt, or two, recorded before they are sent, and none sent twice."""

from contextlib import nullcontext
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import httpx
import pytest

from momopay import ConfigurationError, EntryKind, Journal, OutcomeUnknownError, TransactionStatus
from momopay.probe import Spend
from momopay.sandbox import Fault, MovementKind, Outcome, phone_for
from probe.kit import Scene, error_response

pytestmark = pytest.mark.usefixtures("few_requests")

STK = "/payments/stk"


def prompts(scene: Scene) -> int:
    """How many prompts there are, by the service's own fees."""
    return [movement.kind for movement in scene.sandbox.ledger].count(MovementKind.fee)


def spend(journal: Journal, outcome: Outcome, amount: int = 1) -> Spend:
    return Spend(amount, phone_for(outcome), journal)


@pytest.mark.parametrize(
    ("outcome", "switches"),
    [
        (Outcome.insufficient_funds, {"fee_refunded_on_failure": True, "list_amount": "with_fee"}),
        (Outcome.cancelled, {"cancel_ends_as": "FAILED", "created_status": 201, "naming": "snake_case"}),
        (Outcome.expired, {"expired_reads_as": "EXPIRED"}),
        (Outcome.expired, {"expired_reads_as": "FAILED"}),
    ],
)
def test_what_a_prompt_finds(scene: Scene, journal: Journal, outcome: Outcome, switches: dict[str, Any]) -> None:
    for name, value in switches.items():
        setattr(scene.account.switches, name, value)
    found = scene.probe(spend=spend(journal, outcome))
    assert ({name: found.switches[name] for name in switches}, prompts(scene)) == (switches, 1)
    assert (list(journal.open()), list(journal.unresolved())) == ([], [])
    assert {request.method for request in scene.sent} == {"GET", "POST"}


def test_a_prompt_that_failed_after_the_pin_is_not_an_expired_one(scene: Scene, journal: Journal) -> None:
    found = scene.probe(spend=spend(journal, Outcome.timeout))
    assert (found.switches["expired_reads_as"], found.switches["cancel_ends_as"]) == ("unknown", "unknown")


@pytest.mark.parametrize("amount", [1, 2])
def test_a_probe_moves_no_more_than_it_said(scene: Scene, journal: Journal, amount: int) -> None:
    found = scene.probe(spend=spend(journal, Outcome.success, amount))
    assert [movement.amount for movement in scene.sandbox.ledger if movement.kind is MovementKind.stk] == [1]
    assert "one prompt for KES 1 to 2547*****000, reference PROBE" in scene.notes[0]
    duplicate = found.findings["duplicate_reference"]  # the first was paid
    assert (duplicate.value, "Needs --spend 2" in duplicate.sentence) == ("unknown", True)
    assert (found.facts["read_delay"], found.facts["list_delay"]) == ("up to 0 s", "up to 0 s")
    with pytest.raises(ConfigurationError, match="KES 1 or 2, not 3"):
        spend(journal, Outcome.success, 3)


def test_a_second_prompt_with_the_same_reference(scene: Scene, journal: Journal) -> None:
    assert scene.probe(spend=spend(journal, Outcome.cancelled, 2)).facts["duplicate_reference"] == "another transaction"
    first, second = (each.json for each in scene.requests("POST", STK))
    assert first == second
    assert (prompts(scene), list(journal.open())) == (2, [])


@pytest.mark.parametrize("status", [400, 409])
def test_a_second_prompt_that_is_refused(scene: Scene, journal: Journal, status: int) -> None:
    def refuse_the_second(request: httpx.Request) -> httpx.Response | None:
        sent = [each.method for each in scene.sandbox.requests].count("POST")
        return error_response(status, "DUPLICATE") if request.method == "POST" and sent else None

    scene.service.instead = refuse_the_second
    is_unknown = status == 409  # the SDK takes an unknown code with this status for an unknown outcome
    with pytest.raises(OutcomeUnknownError) if is_unknown else nullcontext():
        scene.probe(spend=spend(journal, Outcome.cancelled, 2))
    found = scene.saved[-1]
    assert found.facts["duplicate_reference"] == f"{status} DUPLICATE"
    assert found.switches["cancel_ends_as"] == "CANCELLED"
    unusable = ["the answer to a reference that was used: 409 DUPLICATE"] if is_unknown else []
    assert found.facts["unusable"] == unusable


def test_a_second_prompt_that_gets_the_id_of_the_first(scene: Scene, journal: Journal) -> None:
    first: list[bytes] = []

    def repeat(request: httpx.Request, response: httpx.Response) -> httpx.Response | None:
        if request.method != "POST":
            return None
        first.append(response.content)
        return httpx.Response(200, content=first[0])

    scene.service.edit = repeat
    with pytest.raises(OutcomeUnknownError):
        scene.probe(spend=spend(journal, Outcome.cancelled, 2))
    assert scene.saved[-1].facts["duplicate_reference"] == "the same transaction"
    assert scene.saved[-1].facts["unusable"] == ["the answer to a reference that was used: the same transaction"]


def test_a_prompt_that_is_not_shown_at_once(scene: Scene, journal: Journal) -> None:
    began = scene.sandbox.now

    def hide(request: httpx.Request, response: httpx.Response) -> httpx.Response | None:
        seconds = (scene.sandbox.now - began).total_seconds()
        if request.method == "GET" and "/transactions" in request.url.path and response.is_success and seconds < 12:
            is_list = request.url.path.endswith("/transactions")
            empty: dict[str, Any] = {"success": True, "data": {"items": [], "nextCursor": None, "overview": {}}}
            return httpx.Response(200, json=empty) if is_list else error_response(404, "TRANSACTION_NOT_FOUND")
        return None

    scene.service.edit = hide
    found = scene.probe(spend=spend(journal, Outcome.by_hand))
    assert (found.facts["read_delay"], found.facts["list_delay"]) == ("up to 15 s", "up to 15 s")
    assert found.switches["naming"] == "camelCase"


def test_a_documented_refusal_is_not_tried_again(scene: Scene, journal: Journal) -> None:
    scene.account.channels = []
    found = scene.probe(spend=spend(journal, Outcome.success))
    assert len(scene.requests("POST", STK)) == 1
    assert found.findings["strict_fields"].sentence.endswith("was refused: 400 NO_PAYMENT_CHANNELS.")
    assert scene.notes[-1] == "The service refused the prompt, so the phone shows none."


def test_a_lost_answer_sends_no_second_prompt(scene: Scene, journal: Journal) -> None:
    scene.sandbox.fail_next("POST", STK, Fault.reset_after_commit)
    for error in (OutcomeUnknownError, ConfigurationError):
        with pytest.raises(error, match="PROBE"):
            scene.probe(spend=spend(journal, Outcome.by_hand))
    assert [each.method for each in scene.sandbox.requests].count("POST") == prompts(scene) == 1


def test_a_prompt_that_nobody_can_know_of_throws_nothing_away(scene: Scene, journal: Journal) -> None:
    scene.account.rate_limit = 30
    scene.sandbox.fail_next("POST", STK, Fault.html_502)  # it was not executed
    for error in (OutcomeUnknownError, ConfigurationError):
        with pytest.raises(error):
            scene.probe(write=True, rate=True, spend=spend(journal, Outcome.by_hand))
        found = scene.saved[-1].switches
        assert (found["transaction_not_found_status"], found["rate_window"]) == (404, "fixed")
        assert found["delete_answer"] == "envelope"
    assert [each.path for each in scene.sandbox.requests].count(STK) == 1


def test_a_prompt_that_ended_after_its_probe_stops_no_other(scene: Scene, journal: Journal) -> None:
    scene.probe(spend=spend(journal, Outcome.by_hand))
    (entry,) = journal.open()
    assert entry.transaction_id is not None
    scene.sandbox.cancel(entry.transaction_id)
    scene.sandbox.advance(60)
    assert scene.probe(spend=spend(journal, Outcome.success)).switches["created_status"] == 200
    first, second = journal.entries(kind=EntryKind.COLLECTION)
    assert first.reference != second.reference
    assert {first.status, second.status} == {TransactionStatus.SUCCESS, TransactionStatus.CANCELLED}


@pytest.mark.parametrize(("comes_after", "more", "value"), [(25, 0, True), (2000, 0, False), (25, 5, "unknown")])
def test_a_late_refund_of_a_fee(scene: Scene, journal: Journal, comes_after: int, more: int, value: bool | str) -> None:
    """Where more comes than the fee was, it need not be the fee."""
    ended: list[datetime] = []

    def note_the_end(request: httpx.Request, response: httpx.Response) -> None:
        if "CANCELLED" in response.text and not request.url.path.endswith("/transactions"):
            ended.append(scene.sandbox.now)

    def give_back(_request: httpx.Request) -> None:
        if ended and scene.sandbox.now - ended[0] >= timedelta(seconds=comes_after):
            scene.account.service_balance = before + more

    before = scene.account.service_balance
    scene.service.edit, scene.service.instead = note_the_end, give_back
    found = scene.probe(spend=spend(journal, Outcome.cancelled)).findings["fee_refunded_on_failure"]
    assert (found.value, "not back 300 s after" in found.sentence) == (value, value is False)


@pytest.mark.parametrize("kept", [False, True])
def test_a_fee_of_somebody_else(scene: Scene, journal: Journal, kept: bool) -> None:
    scene.account.switches.fee_refunded_on_failure = not kept
    others: list[object] = []

    def pay(request: httpx.Request, response: httpx.Response) -> None:
        if "CANCELLED" in response.text and not request.url.path.endswith("/transactions") and not others:
            # Somebody else's prompt takes what came back, or is all that moves the wallet.
            others.append(scene.client)
            scene.client.stk.initiate(amount=7, phone=phone_for(Outcome.by_hand), account_reference="INV-1")

    scene.service.edit = pay
    found = scene.probe(spend=spend(journal, Outcome.cancelled)).findings["fee_refunded_on_failure"]
    assert (found.value, "lost among other payments" in found.sentence) == ("unknown", True)


PAYOUTS = "/b2c/payouts"


def paid_out(scene: Scene) -> list[int]:
    return [int(movement.amount) for movement in scene.sandbox.ledger if movement.kind is MovementKind.payout]


@pytest.mark.parametrize(("keys", "sent"), [("honoured", 3), ("forgotten", 3), ("ignored", 2)])
def test_a_payout_is_sent_again_with_its_key(scene: Scene, journal: Journal, keys: Any, sent: int) -> None:
    scene.account.switches.payout_keys = keys
    began = scene.sandbox.now
    found = scene.probe(spend=spend(journal, Outcome.success, 20))
    assert (found.switches["payout_keys"], paid_out(scene)) == (keys, [10] if keys == "honoured" else [10, 10])
    requests = scene.requests("POST", PAYOUTS)
    assert [each.json for each in requests] == [requests[0].json] * sent
    assert len({each.headers["idempotency-key"] for each in requests}) == 1
    assert found.facts["duplicate_reference"] == "unknown"
    assert (scene.requests("POST", STK), scene.sandbox.now - began >= timedelta(minutes=15)) == ([], sent == 3)


def test_a_payout_that_is_refused_is_not_sent_again(scene: Scene, journal: Journal) -> None:
    scene.account.b2c_balance = Decimal(9)
    found = scene.probe(spend=spend(journal, Outcome.success, 20)).findings["payout_keys"]
    assert (found.value, "not accepted: INSUFFICIENT_FUNDS" in found.sentence) == ("unknown", True)
    assert (len(scene.requests("POST", PAYOUTS)), paid_out(scene)) == (1, [])


@pytest.mark.parametrize(("status", "seen"), [(409, "409 DUPLICATE_IDEMPOTENCY_KEY"), (502, None), (429, None)])
def test_a_repeat_that_shows_no_id(scene: Scene, journal: Journal, status: int, seen: str | None) -> None:
    refuse = error_response(status, "DUPLICATE_IDEMPOTENCY_KEY")
    scene.service.instead = lambda request: refuse if request.method == "POST" and paid_out(scene) else None
    found = scene.probe(spend=spend(journal, Outcome.success, 20)).findings["payout_keys"]
    assert (found.value, found.unnamed, paid_out(scene)) == ("unknown", seen, [10])


def test_a_payout_of_unknown_outcome_is_not_repeated(scene: Scene, journal: Journal) -> None:
    scene.sandbox.fail_next("POST", PAYOUTS, Fault.html_502)  # it was not executed
    with pytest.raises(OutcomeUnknownError):
        scene.probe(spend=spend(journal, Outcome.success, 20))
    with pytest.raises(ConfigurationError, match="nothing was sent"):
        scene.probe(spend=spend(journal, Outcome.success, 20))
    assert ([each.path for each in scene.sandbox.requests].count(PAYOUTS), paid_out(scene)) == (1, [])


@pytest.mark.parametrize("field", ["callbackUrl", "callback_url"])
@pytest.mark.parametrize("is_shown", [True, False])
def test_the_callback_url_of_a_payout(scene: Scene, journal: Journal, field: Any, is_shown: bool) -> None:
    scene.account.switches.payout_callback_field, scene.account.switches.customer_in_reads = field, is_shown
    found = scene.probe(spend=spend(journal, Outcome.success, 20))
    assert found.switches["payout_callback_field"] == (field if is_shown else "unknown")
    is_lost = is_shown and field == "callback_url"
    assert (found.facts["unusable"] != []) is is_lost
