"""The end of a payment reaches its handler once, under the payment's own reference, whatever the service leaves out."""

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from decimal import Decimal
from http import HTTPStatus
from itertools import product
from typing import Any

import httpx
import pytest

from campaign.controls import word_believed
from durable.kit import BY_HAND, FAILING, Handler
from in_turn import in_turn
from journal.constants import COLLECTION, PAYOUT
from journal.database_kit import execute, in_threads
from journal.records import callback_body
from momopay import CallbackSigner, EntryKind, JournalEntry, OutcomeUnknownError, RequestValidationError
from momopay.sandbox import Outcome
from safety.kit import HOUR, SEARCH_AGAIN, FragileShop

SIGNER = CallbackSigner("a secret that is long enough to be kept")
REFERENCES = ["ORDER-2026-1", "ORDER-2026-11-028", "ORDER-2026-11-28-of-a-shop-in-Nairobi-042"]
"""Of 12, 17 and 40 characters: the service has the last two of an order under a token."""
GAPS: list[tuple[str, ...]] = [
    *((), ("phone",), ("type",), ("createdAt", "updatedAt"), ("accountReference",), ("phone", "type")),
    ("phone", "type", "createdAt", "updatedAt", "accountReference"),
]
"""What reads of one transaction lack."""
ANSWERS = ["normal", "lost", "slow"]
WAYS = list(product(("callback", "sweep", "both"), (True, False)))
"""Which is first, and whether the URL is signed."""


class Delivery:
    """Delivers callbacks about the newest transaction of a shop, at the URL that was signed for a reference or not."""

    def __init__(self, shop: FragileShop, reference: str, handler: Handler, *, signed: bool = True) -> None:
        self._shop = shop
        self._handler = handler
        self._signer = SIGNER if signed else None
        self._url = SIGNER.url("http://127.0.0.1/momo", reference=reference) if signed else ""

    def __call__(self, **changes: Any) -> HTTPStatus:
        """Deliver what the service would send now, with these changes."""
        shown = self._shop(lambda client: client.transactions.list()).items[0]
        body = callback_body(shown.account_reference, shown.transaction_id, type=shown.type, status=shown.status)
        body["transaction"] |= {"phone_number": shown.phone, "amount": int(shown.amount), **changes}
        sent = json.dumps(body).encode()

        def receive(client: Any) -> Any:
            own = client.with_options(journal=self._shop.journal)
            return own.transactions.receive(self._url, sent, self._handler, signer=self._signer)

        status: HTTPStatus = self._shop(receive)
        return status


def make(shop: FragileShop, kind: EntryKind, reference: str, answer: str, before_answer: Callable[[], object]) -> None:
    """Make a payment, which succeeds: its answer is normal, is lost, or comes after its end."""
    reads = shop.between.edit

    def edit(path: str, data: Any) -> None:
        reads(path, data)
        if path in {"/payments/stk", "/b2c/payouts"}:
            shop.between.edit = reads
            if answer == "slow":
                shop.sandbox.advance(60)
                before_answer()
            elif answer == "lost":
                raise httpx.ReadTimeout("lost")

    shop.between.edit = edit
    shop.sandbox.end_next(Outcome.success)
    with suppress(OutcomeUnknownError):
        (shop.pay if kind is PAYOUT else shop.collect)(reference)
    shop.later(60)


def leave_out(shop: FragileShop, gaps: tuple[str, ...]) -> None:
    """Have reads by id lack these fields. The list has them."""

    def edit(path: str, data: Any) -> None:
        for name in gaps if path.startswith("/transactions/") else ():
            data.pop(name, None)

    shop.between.edit = edit


def ends(handler: Handler) -> list[tuple[str, str, str]]:
    return [(str(each.kind), each.reference, str(each.status)) for each in handler.payments]


def one_end(
    shop: FragileShop, kind: EntryKind, reference: str, gaps: tuple[str, ...], answer: str, first: str, *, signed: bool
) -> list[tuple[str, str, str]]:
    """Bring one payment to its end; return what the handler got."""
    handler = Handler()
    deliver = Delivery(shop, reference, handler, signed=signed)
    leave_out(shop, gaps)
    make(shop, kind, reference, answer, deliver if first == "callback" else lambda: None)
    if first == "both":
        steps: Iterator[Callable[[], object]] = iter([deliver, lambda: shop.sweep(handler)])

        def take() -> None:
            next(steps)()

        in_threads(2, take)
    for step in (
        (deliver, lambda: shop.sweep(handler)) if first == "callback" else (lambda: shop.sweep(handler), deliver)
    ):
        step()
    shop.later(SEARCH_AGAIN)
    shop.sweep(handler)
    deliver()
    assert shop.entry(reference, kind).status == "SUCCESS"
    return ends(handler)


@pytest.mark.parametrize("each_way", [False, pytest.param(True, marks=pytest.mark.whole)])
@pytest.mark.parametrize("answer", ANSWERS)
@pytest.mark.parametrize("kind", [COLLECTION, PAYOUT], ids=["order", "payout"])
def test_each_end_reaches_the_handler_once_under_its_own_reference(
    shop: FragileShop, kind: EntryKind, answer: str, each_way: bool
) -> None:
    """Each pair of a gap and a way, with a reference in turn; by default a few of each kind of answer."""
    shop.account.rate_limit = None
    place = ANSWERS.index(answer)
    cases = [
        (REFERENCES[(first + second + place) % len(REFERENCES)], gaps, way)
        for first, gaps in enumerate(GAPS)
        for second, way in enumerate(WAYS)
    ]
    if not each_way:  # another way for each gap
        cases = cases[place :: len(WAYS) + 1]
    for number, (reference, gaps, (first, signed)) in enumerate(cases):
        own = f"{number:03}{reference[3:]}"
        found = one_end(shop, kind, own, gaps, answer, first, signed=signed)
        assert found == [(str(kind), own, "SUCCESS")], (reference, gaps, first, signed)


@pytest.mark.parametrize("answer", ["lost", "slow"])
@pytest.mark.parametrize("kind", [COLLECTION, PAYOUT], ids=["order", "payout"])
def test_the_list_names_a_payment_that_neither_read_nor_callback_names(
    shop: FragileShop, kind: EntryKind, answer: str
) -> None:
    """Unsigned, and without reference and type. While the list does not name it either, nobody is told."""
    handler = Handler()
    plain = Delivery(shop, "r", handler, signed=False)
    statuses = list[HTTPStatus]()

    def deliver() -> None:
        statuses.append(plain(external_reference=None, type=None))

    leave_out(shop, ("accountReference", "type"))
    make(shop, kind, "r", answer, deliver)
    deliver()
    shop.sweep(handler)
    assert ends(handler) == [(str(kind), "r", "SUCCESS")]
    assert set(statuses) == {200}
    assert shop.entry("r", kind).status == "SUCCESS"


def test_what_may_be_a_payment_in_the_journal_is_not_told_as_a_strangers(shop: FragileShop) -> None:
    """A lost payment whose reference nobody shows, and a top-up under the reference of an order."""
    handler = Handler()
    make(shop, PAYOUT, "r", "lost", lambda: None)
    plain = Delivery(shop, "r", handler, signed=False)

    def edit(path: str, data: Any) -> None:
        for each in [data, *data.get("items", ())]:
            each.pop("accountReference", None)

    shop.between.edit = edit
    assert plain(external_reference=None) == 503
    assert plain(external_reference="ZZZ") == 503
    shop.between.edit = lambda _path, _data: None
    shop.sweep(handler)
    assert ends(handler) == [("PAYOUT", "r", "SUCCESS")]
    shop.collect("o")
    top_up = shop(lambda client: client.wallet.top_up(amount=10, phone=BY_HAND, account_reference="o"))
    shop.settle(top_up)
    assert Delivery(shop, "o", handler, signed=False)() == 503
    assert len(handler.payments) == 1


def test_the_url_of_an_order_does_not_take_what_another_order_waits_for(shop: FragileShop) -> None:
    """They share an account reference, amount and phone."""
    handler = Handler()
    shared = {"account_reference": "METER"}
    shop.sandbox.cancel(shop.collect("a", **shared))
    shop.sweep(handler)
    shop.send_unresolved(shop.collect, "b", **shared)
    shop.between.deliver()
    shop.settle(shop(lambda client: client.transactions.list()).items[0])
    assert Delivery(shop, "a", handler)() == 403
    assert Delivery(shop, "b", handler)() == 200
    assert ends(handler)[-1] == ("COLLECTION", "b", "SUCCESS")
    assert [each[1] for each in ends(handler)].count("a") == 1


def test_the_control_loses_the_order_whose_token_nobody_asks(
    shop: FragileShop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a matcher that needs the phone in the read, the handler is not called with the order's reference."""

    def only_whole(entry: JournalEntry, read: Any, *_: Any, **__: Any) -> bool:
        return read.transaction_id in entry.transaction_ids or read.phone is not None

    monkeypatch.setattr("momopay.journal.delivery.is_shown", only_whole)
    handler = Handler()
    leave_out(shop, ("phone",))
    make(shop, COLLECTION, REFERENCES[2], "lost", lambda: None)
    assert Delivery(shop, REFERENCES[2], handler)() == 503
    assert ends(handler) == []


@pytest.mark.parametrize("first", ["callback", "sweep"])
def test_both_ends_of_a_failed_payout_are_told_by_whatever_learns_of_them(shop: FragileShop, first: str) -> None:
    handler = Handler()
    deliver = Delivery(shop, "r", handler)
    shop.pay(phone=FAILING)
    shop.later(40)  # it fails after 35 seconds, and is reversed 10 seconds later
    steps: list[Callable[[], object]] = [deliver, lambda: shop.sweep(handler)]
    for step in steps if first == "callback" else steps[::-1]:
        step()
    assert ends(handler) == [("PAYOUT", "r", "FAILED")]
    shop.later(HOUR)
    for step in steps[::-1]:
        step()
    deliver(status="FAILED")
    assert ends(handler) == [("PAYOUT", "r", "FAILED"), ("PAYOUT", "r", "REVERSED")]
    assert [each.is_settled for each in handler.payments] == [False, True]


def test_a_failure_is_no_reason_to_refund_again_before_the_money_is_back(shop: FragileShop) -> None:
    shop.settle(shop.collect())
    handler = Handler()
    shop.sweep(handler)
    shop.sandbox.end_next(Outcome.insufficient_funds, kind="payout")
    shop.refund()
    shop.later(40)
    shop.sweep(handler)
    with pytest.raises(RequestValidationError):
        shop.refund(reference="o-R2", amount=10)
    shop.later(HOUR)
    shop.sweep(handler)
    assert ends(handler)[1:] == [("PAYOUT", "o-R1", "FAILED"), ("PAYOUT", "o-R1", "REVERSED")]
    shop.refund(reference="o-R2", amount=10)


# A word without a read changes nothing.

FORGED: list[dict[str, Any]] = [
    *({"status": status, "result_code": "17", "transaction_fee": 555} for status in ("CANCELLED", "EXPIRED", "FAILED")),
    *({"status": status, "result_code": "0", "momo_receipt": "FORGED"} for status in ("SUCCESS", "REVERSED")),
    *({"updated_at": "2020-01-01T00:00:00Z"}, {"updated_at": "2020-01-01T00:00:00Z", "status": "CANCELLED"}),
    *(
        {"status": "PENDING"},
        {"status": None},
        {"status": "PAID"},
        {"momo_receipt": "FORGED"},
        {"transaction_fee": 555},
    ),
    {"amount": 1, "status": "FAILED"},
]


def snapshot(shop: FragileShop, kind: EntryKind) -> Any:
    """Return all that the journal knows, but for what was delivered."""
    entry = shop.entry("o", kind)
    rows = execute(shop.journal, "SELECT * FROM momopay_transactions ORDER BY transaction_id")
    return entry, rows, [each for each in shop.journal.history("o") if not each.what.startswith("deliver")]


def forge(shop: FragileShop, kind: EntryKind, *, signed: bool) -> None:
    """Deliver every forged word about an end that was delivered, and assert that none of it was believed."""
    deliver, before = Delivery(shop, "o", Handler(), signed=signed), snapshot(shop, kind)
    for word in FORGED:
        deliver(**word)
        assert snapshot(shop, kind) == before, word


@pytest.mark.parametrize("is_signed", [True, False], ids=["signed", "unsigned"])
@pytest.mark.parametrize("kind", [COLLECTION, PAYOUT], ids=["order", "payout"])
def test_a_word_about_a_delivered_end_changes_nothing(shop: FragileShop, kind: EntryKind, is_signed: bool) -> None:
    shop.sandbox.end_next(Outcome.insufficient_funds, kind="payout" if kind is PAYOUT else "prompt")
    (shop.pay if kind is PAYOUT else shop.collect)("o")
    shop.later(38)
    shop.sweep(Handler())
    assert shop.entry("o", kind).status == "FAILED"
    forge(shop, kind, signed=is_signed)
    if kind is PAYOUT:
        shop.later(HOUR)
        handler = Handler()
        shop.sweep(handler)
        assert ends(handler) == [("PAYOUT", "o", "REVERSED")], "it is told although CANCELLED was claimed"


def test_the_control_believes_a_word(shop: FragileShop) -> None:
    (believed,) = word_believed()
    shop.sandbox.end_next(Outcome.insufficient_funds)
    shop.collect()
    shop.later(38)
    shop.sweep(Handler())
    with believed, pytest.raises(AssertionError, match="CANCELLED"):
        forge(shop, COLLECTION, signed=True)


def test_a_late_pin_is_looked_for_whatever_an_old_callback_says(shop: FragileShop) -> None:
    """A callback with an `updated_at` of 2020 does not make the end of a prompt ten minutes old."""
    prompt, handler = shop.collect(), Handler()
    shop.sandbox.cancel(prompt)
    shop.sweep(handler)
    Delivery(shop, "o", handler)(updated_at="2020-01-01T00:00:00Z")
    shop.sweep(handler)
    checked = "SELECT checked_at IS NOT NULL FROM momopay_transactions"
    assert execute(shop.journal, checked) == [(0,)]
    shop.later(SEARCH_AGAIN)
    shop.sweep(handler)
    assert execute(shop.journal, checked) == [(1,)]


def test_a_receipt_is_all_that_a_word_adds_to_a_paid_end(shop: FragileShop) -> None:
    shop.settle(shop.collect())
    shop.sweep(Handler())
    before = shop.order()
    deliver = Delivery(shop, "o", Handler())
    for receipt in ("SJK1", "SJK2"):
        word = {
            "momo_receipt": receipt,
            "transaction_fee": 555,
            "result_code": "9",
            "updated_at": "2020-01-01T00:00:00Z",
        }
        assert deliver(**word) == 200
    after = shop.order()
    assert after.receipt == "SJK1"
    known = ("fee", "result_code", "ended_at", "status", "state", "attempts")
    assert [getattr(after, name) for name in known] == [getattr(before, name) for name in known]
    assert [each.to for each in shop.journal.history("o") if each.what == "receipt"] == ["SJK1"]


@pytest.mark.parametrize("is_signed", [True, False], ids=["signed", "unsigned"])
def test_a_known_fee_and_code_are_not_replaced_by_a_callbacks(shop: FragileShop, is_signed: bool) -> None:
    """The answer had the fee, no read has it, and the callback that is confirmed claims another one."""
    shop.account.fee, shop.account.service_balance = Decimal(2), Decimal(100)
    leave_out(shop, ("transactionFee",))
    handler = Handler()
    prompt = shop.collect()
    shop.settle(prompt)
    deliver = Delivery(shop, "o", handler, signed=is_signed)
    assert deliver(transaction_fee=555, result_code="0") == 200
    assert (shop.order().fee, handler.payments[0].fee) == (Decimal(2), Decimal(2))


def test_a_forged_receipt_of_a_failure_stays_out(shop: FragileShop) -> None:
    prompt, handler = shop.collect(), Handler()
    shop.sandbox.cancel(prompt)
    for signed in (True, False):
        assert Delivery(shop, "o", handler, signed=signed)(momo_receipt="FAKE1") == 200
    assert shop.order().receipt is None
    assert shop.journal.by_receipt("FAKE1") is None


@pytest.mark.parametrize("kind", [COLLECTION, PAYOUT], ids=["order", "payout"])
def test_a_read_without_a_time_does_not_move_the_time_of_an_end(shop: FragileShop, kind: EntryKind) -> None:
    shop.sandbox.end_next(Outcome.success)
    (shop.pay if kind is PAYOUT else shop.collect)("o")
    shop.later(60)
    handler = Handler()
    shop.sweep(handler)
    before = shop.entry("o", kind).ended_at
    leave_out(shop, ("updatedAt",))
    words: list[Any] = [None, "PAID", {}]
    for status in words:
        assert Delivery(shop, "o", handler)(status=status) == 200
    assert shop.entry("o", kind).ended_at == before


# A payment that no entry has.


NO_TYPE: Any = {}


@in_turn(
    ("kind", "stated", "listed", "told"),
    [
        *(("B2C", stated, "B2C", "PAYOUT") for stated in ("B2C", None, NO_TYPE)),
        *(("B2C", "B2C", None, "PAYOUT"), ("STK", "STK", None, "COLLECTION"), ("STK", None, "STK", "COLLECTION")),
        *(("B2C", None, None, None), ("STK", None, None, None)),
    ],
)
def test_a_strangers_payout_is_never_told_as_a_collection(
    shop: FragileShop, kind: str, stated: Any, listed: str | None, told: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    """The read has no type. The callback, or the list, may say it. If neither does, no handler gets the end."""
    caplog.clear()
    shop.sandbox.end_next(Outcome.success)
    fields: dict[str, Any] = {"amount": 10, "phone": "254712345678"}
    if kind == "STK":
        made = shop(lambda client: client.stk.initiate(**fields, account_reference="stranger"))
    else:
        made = shop(lambda client: client.payouts.initiate(**fields, reference="stranger"))
    shop.later(60)

    def edit(path: str, data: Any) -> None:
        data.pop("type", None)
        for each in data.get("items", ()):
            each["type"] = listed

    shop.between.edit = edit
    handler = Handler()
    body = json.dumps(callback_body("stranger", made.transaction_id, type=stated)).encode()

    def receive(client: Any) -> Any:
        return client.with_options(journal=shop.journal).transactions.receive("", body, handler)

    assert shop(receive) == 200
    assert [str(each.kind) for each in handler.payments] == ([] if told is None else [told])
    assert ("nothing says whether it is a payout" in caplog.text) is (told is None)
