"""Many payouts in one run: who is paid, what it costs in requests, when it waits, and when it stops."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from decimal import Decimal
from types import MappingProxyType
from typing import Any
from uuid import uuid4

import httpx
import pytest

import momopay
from bodies import envelope, page, refusal, wallet
from drivers import LOOPBACK, Drive, session_of
from durable.kit import KEY_CHECK, PAYOUTS, Lanes, Serve, Shop, over_both_clients, payout_record, requests
from events_kit import Watcher
from journal.constants import ACCEPTED, NOT_SENT, PHONE, REFUSED, UNKNOWN
from journal.database_kit import execute, just_before
from journal.kit import put, put_collection
from momopay import Journal, JournalState, PayoutItem, RateBudget
from momopay._core.config import Hooks
from momopay.durable.similar import find_similar
from momopay.events import CallStarted
from momopay.models.requests import PayoutRequest
from momopay.sandbox import Fault, Sandbox
from momopay.types import Lane, PayoutOutcome
from virtual import virtual_client

PAY = "/b2c/payouts"


def items(number: int, *, amount: int = 10) -> list[PayoutItem]:
    return [PayoutItem(reference=f"SAL-{each}", amount=amount, phone=f"07{each:08}") for each in range(number)]


def pay(shop: Shop, payouts: Any, **limits: Any) -> list[PayoutOutcome]:
    return shop.sdk.collect(lambda client: client.payouts.pay_all(payouts, journal=shop.journal, **limits))


def paid(sandbox: Sandbox) -> dict[str | None, int]:
    return Counter(movement.reference for movement in sandbox.ledger if movement.kind == "payout")


def states(outcomes: list[PayoutOutcome]) -> list[JournalState]:
    return [outcome.state for outcome in outcomes]


def test_mappings_carry_all_arguments_of_pay_once(shop: Shop) -> None:
    session_of(shop.sdk.client).hooks = Hooks("https://shop.example/{}".format)
    given = {"reference": "R", "amount": Decimal("10.50"), "phone": PHONE, "description": "d"}
    (outcome,) = pay(shop, (each for each in [MappingProxyType(given | {"metadata": {"file": "a"}})]))
    assert outcome.payment is not None
    assert isinstance(outcome.payment.transaction, momopay.Payout)
    sent: Any = shop.sandbox.requests[-1].json
    assert (outcome.payment.amount, sent["description"]) == (Decimal("10.50"), "d")
    assert (shop.entry("R").metadata, paid(shop.sandbox)) == ({"file": "a"}, {"R": 1})
    assert sent["callbackUrl"] == "https://shop.example/R", "made by an integration"
    own = "http://127.0.0.1:9/own"
    assert states(pay(shop, [given | {"reference": "OWN", "callback_url": own}])) == [ACCEPTED]
    sent = shop.sandbox.requests[-1].json
    assert sent["callbackUrl"] == own


def test_a_run_again_costs_no_request_for_what_was_accepted(shop: Shop) -> None:
    first = pay(shop, items(8))
    assert [(each.reference, each.state, each.stops) for each in first] == [
        (f"SAL-{number}", ACCEPTED, False) for number in range(8)
    ]
    assert requests(shop.sandbox) == [f"POST {PAY}"] * 8
    shop.sandbox.reset()
    again = pay(shop, items(8))
    assert shop.sandbox.requests == []
    assert states(again) == [ACCEPTED] * 8
    for old, new in zip(first, again, strict=True):
        assert old.payment is not None
        assert old.payment.transaction_id == shop.entry(old.reference).transaction_id
        assert (old.payment.is_new, old.payment.transaction is None) == (True, False)
        assert new.payment == old.payment.model_copy(update={"is_new": False, "transaction": None})


def test_a_payout_that_is_refused_is_an_outcome_and_the_next_is_paid(shop: Shop) -> None:
    """Refused here, because the journal knows its reference, or by the service."""
    pay(shop, items(1))
    bad = {"reference": "BAD", "amount": 10, "phone": PHONE}
    here: list[Any] = [
        bad | {"amount": 9},
        bad | {"amount": 10.0},
        bad | {"phone": "12345"},
        {"reference": "BAD", "amount": 10},
        bad | {"metadata": {"a": {1}}},
        bad | {"amont": 3},
        PayoutItem(reference="BAD", amount=True, phone=PHONE),
    ]
    known = [bad | {"reference": "SAL-0"}, {"reference": "SAL-0", "amount": 11, "phone": "0700000000"}]
    refused: list[tuple[Any, JournalState, type[momopay.MomoPayError]]] = [
        *((each, NOT_SENT, momopay.RequestValidationError) for each in here),
        *((each, REFUSED, momopay.DuplicatePayoutError) for each in known),
        (bad | {"reference": "MUCH", "amount": 1_000_000_000}, REFUSED, momopay.APIError),
    ]
    for number, (each, state, error) in enumerate(refused, start=1):
        limit = 20 if state is NOT_SENT else None
        outcome, made = pay(shop, [each, items(1 + number)[-1]], max_total=limit)
        assert (outcome.state, outcome.stops, outcome.payment) == (state, False, None), each
        assert isinstance(outcome.error, error)
        assert (made.reference, made.state, made.stops) == (f"SAL-{number}", ACCEPTED, False)
    assert shop.journal.get("BAD") is None
    assert paid(shop.sandbox) == {f"SAL-{number}": 1 for number in range(1 + len(refused))}


@pytest.mark.parametrize(
    ("change", "tried"),
    [({"b2c_balance": Decimal(25)}, 3), ({"kyc_approved": False}, 1), ({"service_balance": Decimal(2)}, 3)],
)
def test_what_every_payout_would_meet_stops_the_run(shop: Shop, change: dict[str, object], tried: int) -> None:
    for name, value in change.items():
        setattr(shop.account, name, value)
    taken: list[str] = []

    def source() -> Iterator[PayoutItem]:
        for each in items(10):
            taken.append(each.reference)
            yield each

    outcomes = pay(shop, source())
    assert states(outcomes) == [*[ACCEPTED] * (tried - 1), REFUSED]
    assert [each.stops for each in outcomes] == [*[False] * (tried - 1), True]
    assert PAYOUTS.sent(shop.sandbox) == len(taken) == tried


@pytest.mark.parametrize(
    ("status", "code"),
    [
        *((404, "CHANNEL_NOT_FOUND"), (401, "INVALID_API_KEY"), (401, "TENANT_INACTIVE"), (403, "INSUFFICIENT_SCOPE")),
        *((429, "RATE_LIMIT_EXCEEDED"), (429, "HTTP_429")),
        *((400, "INSUFFICIENT_BALANCE"), (404, "WALLET_NOT_FOUND"), (409, "WALLET_INACTIVE")),
    ],
)
def test_a_refusal_of_the_key_its_channel_its_wallet_or_its_rate_stops_the_run(
    serve: Serve, status: int, code: str
) -> None:
    shop = serve(on_post=lambda: httpx.Response(status, json=refusal(code)), options={"max_attempts": 1})
    (outcome,) = shop.sdk.collect(lambda client: client.payouts.pay_all(items(3), journal=shop.journal))
    assert (outcome.state, outcome.stops, shop.service.sent) == (REFUSED, True, 1)


def test_a_callback_url_that_cannot_be_made_stops_the_run(shop: Shop) -> None:
    """The settings of an integration are wrong, for every payout."""

    def refuse(_reference: str) -> str:
        raise momopay.ConfigurationError("no secret")

    session_of(shop.sdk.client).hooks = Hooks(refuse)
    (outcome,) = pay(shop, items(3))
    assert (outcome.reference, outcome.state, str(outcome.error)) == ("SAL-0", NOT_SENT, "no secret")
    assert (outcome.stops, shop.sandbox.requests) == (True, [])


@pytest.mark.parametrize("is_known", [False, True])
def test_a_service_that_is_not_reached_stops_the_run(shop: Shop, drive: Drive, is_known: bool) -> None:
    if is_known:
        shop.reconcile_all()
    else:  # the journal may be that of another account
        put(shop.journal, "SAL-0")
    away = drive(api_key=shop.key, base_url=LOOPBACK, deadline=0.5, max_attempts=1)
    (outcome,) = away.collect(lambda client: client.payouts.pay_all(items(3), journal=shop.journal))
    assert (outcome.state, outcome.payment, outcome.stops) == (NOT_SENT if is_known else UNKNOWN, None, True)
    assert isinstance(outcome.error, momopay.APIConnectionError)
    assert outcome.error.may_have_executed is not is_known


def test_a_journal_that_cannot_be_read_stops_the_run(shop: Shop) -> None:
    shop.reconcile_all()
    execute(shop.journal, "ALTER TABLE momopay_payments RENAME TO hidden")
    (outcome,) = pay(shop, items(3))
    assert (outcome.state, outcome.stops) == (UNKNOWN, True)  # an earlier run may have paid it
    assert requests(shop.sandbox) == []


@pytest.mark.parametrize(
    ("refused", "unknown", "tried", "others"),
    [
        (0, {0, 1, 2}, 3, ACCEPTED),
        (0, {0, 1}, 8, ACCEPTED),
        (0, {1, 2, 4, 5}, 8, ACCEPTED),
        (0, {1, 2, 4, 5}, 8, REFUSED),
        (3, {0, 1, 2}, 3, ACCEPTED),
    ],
    ids=["three", "two", "not in a row", "refusals between", "three that were refused before"],
)
def test_three_unknown_outcomes_in_a_row_stop_the_run(
    shop: Shop, refused: int, unknown: set[int], tried: int, others: JournalState
) -> None:
    shop.account.kyc_approved = False
    assert [states(pay(shop, [each])) for each in items(refused)] == [[REFUSED]] * refused
    shop.account.kyc_approved = True

    def source() -> Iterator[PayoutItem]:
        for number, each in enumerate(items(8)):
            if number in unknown:
                shop.sandbox.fail_next("POST", PAY, Fault.error_before_commit)
            yield each if number in unknown or others is ACCEPTED else replace(each, amount=1_000_000_000)

    outcomes = pay(shop, source())
    assert states(outcomes) == [UNKNOWN if number in unknown else others for number in range(tried)]
    assert [each.stops for each in outcomes] == [False] * (tried - 1) + [tried == 3]


def test_what_was_unknown_before_is_searched_for_and_does_not_stop_the_run(shop: Shop) -> None:
    shop.sandbox.fail_next("POST", PAY, Fault.error_before_commit, times=3)
    assert pay(shop, items(6))[-1].stops
    shop.sandbox.fail_next("POST", PAY, Fault.reset_after_commit)
    assert states(pay(shop, items(6))) == [UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, ACCEPTED, ACCEPTED]
    assert states(pay(shop, items(6))) == [UNKNOWN, UNKNOWN, UNKNOWN, ACCEPTED, ACCEPTED, ACCEPTED]
    assert paid(shop.sandbox) == {"SAL-3": 1, "SAL-4": 1, "SAL-5": 1}


@over_both_clients
def test_outcomes_come_as_they_happen_and_a_run_may_be_left(shop: Shop) -> None:
    run = shop.sdk.client.payouts.pay_all(items(5), journal=shop.journal)

    async def some() -> list[str]:
        seen: list[str] = []
        async for outcome in run:
            seen.append(outcome.reference)
            if len(seen) == 2:
                break
        return seen

    if shop.sdk.client_kind == "async":
        assert shop(lambda _: some()) == ["SAL-0", "SAL-1"]
    else:
        for outcome in run:
            if outcome.reference == "SAL-1":
                break
    assert paid(shop.sandbox) == {"SAL-0": 1, "SAL-1": 1}
    assert [each.reference for each in shop.sdk.collect(lambda _: run)] == ["SAL-2", "SAL-3", "SAL-4"]  # it goes on
    assert shop.sdk.collect(lambda _: run) == []


@over_both_clients
def test_a_limit_refuses_everything_before_the_first_is_sent(shop: Shop) -> None:
    named = ", ".join(f"'SAL-{number}' (KES 10)" for number in range(5))
    total = {"max_total": "5 payouts come to KES 50, more than KES 49"}
    for number, limits, problems in (
        (5, {"max_total": 49}, total),
        (5, {"max_each": 9}, {"max_each": f"more than KES 9: {named}"}),
        (7, {"max_each": 9}, {"max_each": f"more than KES 9: {named}, 2 others"}),
        (5, {"max_total": 49, "max_each": 10}, total),
    ):
        with pytest.raises(momopay.RequestValidationError) as refused:
            pay(shop, (each for each in items(number)), **limits)
        assert refused.value.fields == problems
    assert shop.sandbox.requests == []
    assert shop.journal.get("SAL-0") is None
    assert states(pay(shop, iter(items(5)), max_total=50, max_each=10)) == [ACCEPTED] * 5
    with pytest.raises(momopay.RequestValidationError):  # what was paid before counts too
        pay(shop, items(6), max_total=50)
    assert paid(shop.sandbox) == {f"SAL-{number}": 1 for number in range(5)}


def test_a_source_that_fails_while_it_is_counted_pays_nobody(shop: Shop) -> None:
    """Though it could go on: what it gave before the failure was not counted."""
    troubles = [OSError("the file is away")]

    def read(each: PayoutItem) -> PayoutItem:
        if each.reference == "SAL-1" and troubles:
            raise troubles.pop()
        return each

    run = shop.sdk.client.payouts.pay_all(map(read, items(3)), journal=shop.journal, max_total=10)
    with pytest.raises(OSError, match="away"):
        shop.sdk.collect(lambda _: run)
    assert (shop.sdk.collect(lambda _: run), shop.sandbox.requests) == ([], [])


def test_a_mapping_that_changes_after_it_was_counted_is_paid_as_it_was(shop: Shop) -> None:
    first: dict[str, Any] = {"reference": "A", "amount": 10, "phone": PHONE}
    incomplete: dict[str, Any] = {"reference": "C", "phone": PHONE}

    def source() -> Iterator[Any]:
        yield first
        yield {"reference": "B", "amount": 10, "phone": PHONE}
        yield incomplete
        first["amount"] = incomplete["amount"] = 1000

    pay(shop, source(), max_total=20)
    assert {movement.amount for movement in shop.sandbox.ledger if movement.kind == "payout"} == {Decimal(10)}


class Rows:
    """An asynchronous iterable that is no iterator itself."""

    async def __aiter__(self) -> AsyncIterator[PayoutItem]:
        for each in items(4):
            await asyncio.sleep(0)
            yield each


@over_both_clients
@pytest.mark.parametrize("limits", [{}, {"max_total": 40}])
def test_an_asynchronous_source_needs_an_async_client(shop: Shop, limits: dict[str, int]) -> None:
    if shop.sdk.client_kind == "blocking":
        with pytest.raises(momopay.RequestValidationError, match="AsyncClient"):
            pay(shop, Rows(), **limits)
    else:
        assert states(pay(shop, Rows(), **limits)) == [ACCEPTED] * 4
        assert paid(shop.sandbox) == {f"SAL-{number}": 1 for number in range(4)}


class Resuming:
    """An iterator that gives another payout after its end, as one over a growing file may."""

    def __init__(self) -> None:
        self.given = items(2)

    def __iter__(self) -> "Resuming":
        return self

    def __next__(self) -> PayoutItem:
        if len(self.given) == 1:
            self.given *= 2
            raise StopIteration
        return self.given.pop(0)


def test_a_source_is_not_read_after_its_end(shop: Shop) -> None:
    run = shop.sdk.client.payouts.pay_all(Resuming(), journal=shop.journal)
    assert [states(shop.sdk.collect(lambda _: run)) for _ in range(2)] == [[ACCEPTED], []]


LOOKS_LIKE_0 = {"reference": "sal 0", "amount": 10, "phone": "0700000000"}


def test_a_reference_that_looks_like_another_stops_the_run(shop: Shop) -> None:
    """With the same phone and amount: one of the two is probably the other, written twice."""
    payroll = [*items(2), LOOKS_LIKE_0, *items(3)]
    outcomes = pay(shop, payroll)
    assert [(each.reference, each.state, each.stops) for each in outcomes[2:]] == [("sal 0", NOT_SENT, True)]
    pairs = "'sal 0' looks like 'SAL-0'; 'S-AL0' looks like 'SAL-0'"
    with pytest.raises(momopay.RequestValidationError, match=f"reference: {pairs}"):
        pay(shop, [*payroll, LOOKS_LIKE_0 | {"reference": "S-AL0"}], max_each=10)
    assert paid(shop.sandbox) == {"SAL-0": 1, "SAL-1": 1}
    alike = [PayoutRequest.checked(reference=f"sal{each}", amount=10, phone=f"07{each:08}") for each in range(2)]
    assert find_similar(shop.journal, alike) == {"sal0": "SAL-0", "sal1": "SAL-1"}
    assert states(pay(shop, payroll, similar=True)) == [ACCEPTED] * 6
    assert paid(shop.sandbox)["sal 0"] == 1
    both = [PayoutRequest.checked(reference=each, amount=10, phone="0700000000") for each in ("SAL-0", "sal 0")]
    assert find_similar(shop.journal, both) == {}
    assert states(pay(shop, [LOOKS_LIKE_0 | {"reference": "another"}])) == [ACCEPTED], "two old ones stop no new one"


@pytest.mark.parametrize("other", [{"amount": 11}, {"phone": PHONE}, {"reference": "SAL-10"}])
def test_a_reference_that_differs_in_more_is_paid(shop: Shop, other: dict[str, Any]) -> None:
    assert states(pay(shop, [*items(1), LOOKS_LIKE_0 | other])) == [ACCEPTED] * 2


def test_a_reference_may_look_like_that_of_a_refund(shop: Shop) -> None:
    put(shop.journal, "SAL-0", refund_of=put_collection(shop.journal).reference)
    execute(shop.journal, "UPDATE momopay_payments SET phone = '254700000000' WHERE reference = 'SAL-0'")
    assert states(pay(shop, [LOOKS_LIKE_0, *items(1)])) == [ACCEPTED, REFUSED]


# The budget, in virtual time.

SAME = [{"reference": f"SAL-{number}", "amount": 10, "phone": PHONE} for number in range(10)]


def accepting() -> Callable[[str, str], tuple[int, Any]]:
    """A service that accepts every payout of 10 KES to one phone."""

    def answer(method: str, path: str) -> tuple[int, Any]:
        if method == "GET":
            return 200, envelope(wallet() if KEY_CHECK.endswith(path) else page([]))
        return 201, envelope(payout_record(transactionId=str(uuid4())))

    return answer


def test_it_waits_for_the_budget_however_long(journal: Journal) -> None:
    """8 requests a minute, and a deadline far shorter than the run: it applies to each payout alone."""
    options: dict[str, Any] = {"deadline": 10.0, "max_wait": 1.0, "on_event": (seen := Watcher())}
    client, port = virtual_client(accepting(), budget=RateBudget(requests=8, window=61.0), **options)
    outcomes = list(client.payouts.pay_all(SAME, journal=journal))
    assert states(outcomes) == [ACCEPTED] * 10
    assert seen.changes() == ["-> SENDING", "SENDING -> ACCEPTED PENDING"] * 10
    calls = [(each.operation, each.reference) for each in seen.of(CallStarted)]
    assert calls == [("payouts.pay_all", each["reference"]) for each in SAME]
    times = [when for when, _, _ in port.requests]
    assert [times.count(moment) for moment in sorted(set(times))] == [8, 3]  # one asks whose key it is
    assert times[-1] == pytest.approx(61.0)


def test_a_payout_that_another_process_attempts_meanwhile(journal: Journal) -> None:
    """Between the look into the journal and the call. Each request takes a slot, and what was accepted is shown."""
    put(journal, "SAL-0")
    lanes = Lanes()
    client, _ = virtual_client(accepting(), budget=lanes)
    run = iter(client.payouts.pay_all(SAME[:3], journal=journal))
    assert next(run).state is ACCEPTED
    lanes.taken.clear()
    with just_before("SELECT momopay_journal", journal, lambda: put(journal, "SAL-1", REFUSED)):
        assert next(run).state is ACCEPTED
    assert lanes.taken == [Lane.PAYMENT, Lane.READ, Lane.PAYMENT]
    with just_before("SELECT momopay_journal", journal, lambda: put(journal, "SAL-2")):
        outcome = next(run)
    assert isinstance(outcome.error, momopay.ProtocolError), "the service's record cannot be read"
    assert (outcome.state, getattr(outcome.payment, "transaction_id", None)) == (ACCEPTED, "t-SAL-2")


def test_a_search_that_the_budget_does_not_allow_ends_the_run(journal: Journal) -> None:
    put(journal, "SAL-0", JournalState.REFUSED, code="INSUFFICIENT_FUNDS")
    client, port = virtual_client(accepting(), budget=RateBudget(requests=1, window=100.0), deadline=20.0)
    (outcome,) = client.payouts.pay_all(SAME[:4], journal=journal)
    assert (outcome.state, outcome.stops, len(port.requests)) == (REFUSED, True, 1), "which asks whose key it is"
    assert isinstance(outcome.error, momopay.BudgetExhaustedError)


def test_an_interrupt_while_it_waits_leaves_nothing_unresolved(journal: Journal) -> None:
    client, port = virtual_client(accepting(), budget=RateBudget(requests=3, window=60.0))  # within a deadline
    run = client.payouts.pay_all(SAME[:9], journal=journal)
    waits: list[bool] = []

    def interrupt() -> None:
        waits.append(run.waiting)
        raise KeyboardInterrupt

    port.at(30.0, interrupt)
    with pytest.raises(KeyboardInterrupt):
        list(run)
    assert waits == [True]
    assert run.waiting is False
    assert len(port.requests) == 3
    assert (journal.get("SAL-3"), journal.unresolved()) == (None, [])


def test_from_the_moment_it_is_asked_for_a_payout_waits_until_it_is_sent(journal: Journal) -> None:
    """So that a signal in this time, which may be before the wait for the budget, can end it."""
    seen: list[tuple[str, bool]] = []

    def items() -> Iterator[dict[str, Any]]:
        for each in SAME[:2]:
            seen.append(("asked for", run.waiting))
            yield each

    def answer(method: str, path: str) -> tuple[int, Any]:
        seen.append((method, run.waiting))
        return accepting()(method, path)

    client, _ = virtual_client(answer, budget=None)
    run = client.payouts.pay_all(items(), journal=journal)
    assert run.waiting is False
    for _ in run:
        assert run.waiting is False
    assert seen == [("asked for", True), ("GET", True), ("POST", False), ("asked for", True), ("POST", False)]
    assert states(list(client.payouts.pay_all(SAME[:9], journal=journal))) == [ACCEPTED] * 9
