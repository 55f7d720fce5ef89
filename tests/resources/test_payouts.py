"""B2C payouts, from the call to the request and back to the record."""

from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest

import momopay
from core.kit import initiate_payout, initiate_stk, top_up
from drivers import Drive, Driver, hasty, session_of
from durable import kit
from in_turn import in_turn
from journal.constants import UNKNOWN
from journal.kit import found, put, put_collection
from models.kit import CHANNEL, ID, PAYOUT, PHONE
from momopay import Journal, RequestValidationError
from momopay._core.config import Hooks
from momopay.sandbox import Fault, Sandbox
from momopay.types import BookedOrder, Lane
from resources.kit import UNRESOLVED, Recorder, exchange, paid, pushed

PATH = "/v1/b2c/payouts"
HOOK = "https://shop.example/momo"


def test_a_payout_is_sent_as_the_service_states(drive: Drive) -> None:
    least = {"amount": 10, "phone": PHONE, "reference": "PAY-7"}
    more = {"description": "Refund", "currency": "KES", "channel_id": CHANNEL, "callback_url": HOOK}
    body = {**least, "description": "Refund", "currency": "KES", "channelId": CHANNEL, "callbackUrl": HOOK}
    body["credential_id"] = ID
    given: dict[str, Any] = {**least, **more, "amount": Decimal(10), "phone": "(0712)-345-678"}
    for profile in (ID, UUID(ID)):
        given["credential_id"] = profile
        exchange(drive, PAYOUT, lambda client: client.payouts.initiate(**given), "POST", PATH, body)
    with pytest.raises(RequestValidationError, match="credential_id"):
        drive()(lambda client: client.payouts.initiate(**{**given, "credential_id": " "}))
    del given["credential_id"], body["credential_id"]
    exchange(drive, PAYOUT, lambda client: client.payouts.initiate(**given), "POST", PATH, body)
    exchange(drive, PAYOUT, lambda client: client.payouts.initiate(**least), "POST", PATH, least | {"currency": "KES"})


@in_turn("payouts", [None, 7, "SAL-0", {"reference": "SAL-0", "amount": 10, "phone": PHONE}])
def test_what_is_no_iterable_of_payouts_is_refused_at_once(drive: Drive, tmp_path: Path, payouts: Any) -> None:
    with Journal(f"sqlite:///{tmp_path / 'j.db'}") as journal:
        with pytest.raises(RequestValidationError, match="payouts: must be an iterable"):
            drive().client.payouts.pay_all(payouts, journal=journal)
        with pytest.raises(RequestValidationError, match="max_each"):
            drive().client.payouts.pay_all([], journal=journal, max_each=0.5)


RULES: list[tuple[Callable[[Any], Any], Lane, int, str | None]] = [
    (initiate_payout, Lane.PAYMENT, 1, "INV-42"),
    (initiate_stk, Lane.PAYMENT, 1, "INV-42"),
    (top_up, Lane.PAYMENT, 2, "INV-42"),
    (lambda client: client.channels.create(name="Shop", type="TILL_NUMBER", shortcode="6"), Lane.READ, 1, "Shop"),
    (lambda client: client.channels.update(CHANNEL, name="New"), Lane.READ, 2, None),
    (lambda client: client.channels.delete(CHANNEL), Lane.READ, 2, None),
    (lambda client: client.channels.get(CHANNEL), Lane.READ, 2, None),
    (lambda client: client.channels.list(), Lane.READ, 2, None),
    (lambda client: client.wallet.balance(), Lane.READ, 2, None),
    (lambda client: client.transactions.get(ID), Lane.READ, 2, None),
    (lambda client: client.transactions.list(), Lane.READ, 2, None),
]


@pytest.mark.usefixtures("no_backoff")
@in_turn(("call", "lane", "attempts", "reference"), RULES)
def test_which_lane_a_call_takes_and_whether_a_lost_answer_repeats_it(
    drive: Drive, call: Any, lane: Lane, attempts: int, reference: str | None
) -> None:
    budget = kit.Lanes()
    service = Recorder(httpx.ReadTimeout("nothing came"))
    sdk = drive(transport=service.transport, budget=budget, max_attempts=2)
    with pytest.raises(momopay.OutcomeUnknownError if reference else momopay.APIConnectionError) as caught:
        sdk(call)
    assert (budget.taken, getattr(caught.value, "reference", None)) == ([lane] * attempts, reference)


# Against the sandbox, whose ledger is the only witness of what was paid.


def test_every_argument_of_a_durable_call_reaches_the_service_or_the_journal(
    sdk: Driver, sandbox: Sandbox, tmp_path: Path
) -> None:
    asked, profile = list[str](), str(uuid4())
    session_of(sdk.client).hooks = Hooks((HOOK + "/{}").format, asked.append, before_release=asked.append)
    channel = sdk(lambda client: client.channels.create(name="Till", type="TILL_NUMBER", shortcode="123456")).id
    common = {"phone": PHONE, "channelId": channel, "description": "Rent", "currency": "KES", "credential_id": profile}
    more: dict[str, Any] = {"channel_id": channel, "description": "Rent", "credential_id": profile}
    with Journal(f"sqlite:///{tmp_path / 'j.db'}") as journal:
        put_collection(journal)
        sdk(kit.pay(journal, "p", metadata={"n": 1}, callback_url=HOOK, **more))
        assert sandbox.requests[-1].json == {**common, "reference": "p", "amount": 10, "callbackUrl": HOOK}
        sdk(kit.refund(journal, amount=20, metadata={"n": 2}, **more))
        body = {**common, "reference": "o-R1", "amount": 20}
        assert sandbox.requests[-1].json == {**body, "callbackUrl": f"{HOOK}/o-R1"}
        items = [momopay.PayoutItem(reference="all", amount=30, phone=PHONE, **more)]
        assert sdk.collect(lambda client: client.payouts.pay_all(items, journal=journal))[0].error is None
        assert sandbox.requests[-1].json == {**common, "reference": "all", "amount": 30, "callbackUrl": f"{HOOK}/all"}
        order = {"account_reference": "M-7", "transaction_desc": "Meter", "credential_id": profile, "phone": PHONE}
        sdk(kit.collect(journal, "c", metadata={"n": 3}, channel_id=channel, **order))
        body = {"accountReference": "M-7", "transactionDesc": "Meter", "credential_id": profile, "phone": PHONE}
        body |= {"channelId": channel, "amount": 10, "callbackUrl": f"{HOOK}/c"}
        assert sandbox.requests[-1].json == body
        assert [found(journal, each).metadata for each in ("p", "o-R1", "c")] == [{"n": 1}, {"n": 2}, {"n": 3}]
        assert sdk(kit.collect(journal, "c", abandon_after=0.001, channel_id=channel, **order)).is_new
        for once, reference in ((initiate_payout, "INV-42"), (initiate_stk, "INV-42"), (kit.pay(journal, "q"), "q")):
            sdk(once)
            assert f"'callbackUrl': '{HOOK}/{reference}'" in str(sandbox.requests[-1].json)
        sandbox.advance(120)
        limits: dict[str, Any] = {"budget": momopay.RateBudget(1, 0.5), "deadline": 0.8}
        with pytest.raises(momopay.MomoPayError):  # it reads two prompts, and has one deadline for all its requests
            sdk(lambda client: kit.refund(journal, "c")(client.with_options(**limits)))
        assert pushed(sandbox, "/b2c/payouts") == 5
        days: dict[str, Any] = {"day": date(2026, 1, 1), "last_day": date(2026, 1, 2), "utc": True}
        orders, alike = [BookedOrder("lost", Decimal(5), "WAITING")], [{"reference": "P", "amount": 10, "phone": PHONE}]
        report = sdk(lambda client: client.transactions.reconcile(**days, orders=orders, journal=journal))
        assert (report.since, report.until) == tuple(datetime(2026, 1, day, tzinfo=UTC) for day in (1, 3))
        assert [each.remedy for each in report.differences] == ["never paid: close"]
        (outcome,) = sdk.collect(lambda client: client.payouts.pay_all(alike, journal=journal))
        assert outcome.stops, "it looks like p"
        with pytest.raises(RequestValidationError, match="reference"):
            sdk(kit.refund(journal, reference=""))
        put(journal, "u", UNKNOWN)
        kit.long_ago(journal)
        before = len(sandbox.requests)
        assert sdk(kit.release(journal, "u", searched_elsewhere=True)).released_by == "Njeri"
        with pytest.raises(RequestValidationError, match="accepted"):
            sdk(kit.release(journal, "p"))
        assert len(sandbox.requests) == before
    assert asked[:5] + asked[-2:] == ["p", "o-R1", "all", "c", "c", "u", "p"]


@pytest.mark.parametrize(
    ("call", "path", "kind", "fault", "payments"),
    [(initiate_payout, "/b2c/payouts", "payout", *each) for each in (*UNRESOLVED, (Fault.slow_drip, 1))]
    + [(initiate_stk, "/payments/stk", "fee", Fault.reset_after_commit, 1)],
)
def test_a_payment_with_an_unknown_outcome_is_sent_once_and_can_be_found(
    sdk: Driver, sandbox: Sandbox, call: Any, path: str, kind: str, fault: Fault, payments: int
) -> None:
    begun = datetime.now(UTC)
    sandbox.fail_next("POST", path, fault)
    with pytest.raises(momopay.OutcomeUnknownError) as caught:
        sdk(hasty(call))
    error = caught.value
    assert error.may_have_executed
    assert paid(sandbox, kind) == payments
    assert pushed(sandbox, path) <= 1
    assert (error.phone, error.amount) == ("254712345678", Decimal(100))
    assert begun <= error.sent_at <= datetime.now(UTC)
    found = sdk(
        lambda client: client.transactions.find(
            reference=error.reference, amount=error.amount, phone=error.phone, since=error.sent_at
        )
    )
    assert len(found) == payments
