"""`refund` pays back what was paid of a collection, once, and never more."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from drivers import Drive
from durable.kit import (
    Handler,
    Serve,
    Shop,
    listed,
    over_both_clients,
    pay,
    refund,
    requests,
    with_each_client_and_database,
)
from journal.constants import ACCEPTED, COLLECTION, PHONE, REFUSED, UNKNOWN
from journal.database_kit import execute
from journal.kit import put, put_collection
from momopay import (
    DuplicatePayoutError,
    InsufficientFundsError,
    Journal,
    OutcomeUnknownError,
    RequestValidationError,
    ServerError,
)
from momopay.durable.refund import RefundPlan, preview_refund
from momopay.sandbox import Fault, Sandbox


def paid_back(sandbox: Sandbox) -> dict[str | None, Decimal]:
    return {each.reference: abs(each.amount) for each in sandbox.ledger if each.kind == "payout"}


@with_each_client_and_database
def test_what_was_paid_is_paid_back_once(shop: Shop) -> None:
    put_collection(shop.journal, statuses=["PENDING", "SUCCESS"])
    first, again = shop.refund(metadata={"why": "broken"}), shop.refund()
    assert requests(shop.sandbox) == ["POST /b2c/payouts", f"GET /transactions/{first.transaction_id}"]
    assert (first.is_new, again.is_new, again.transaction_id) == (True, False, first.transaction_id)
    assert (first.amount, first.phone, first.reference) == (100, PHONE, "o-R1")
    entry = shop.entry("o-R1")
    assert (entry.refund_of, entry.metadata, entry.state) == ("o", {"why": "broken"}, ACCEPTED)
    with pytest.raises(DuplicatePayoutError):
        shop.refund(amount=50)
    with pytest.raises(RequestValidationError, match=r"'o-R1' KES 100 \(PENDING\)"):
        shop.refund(amount=10, reference="o-R2")
    assert paid_back(shop.sandbox) == {"o-R1": 100}
    if shop.sdk.client_kind == "blocking":
        put_collection(shop.journal, "p")
        plan = preview_refund(shop.sdk.client, shop.journal, of="p", amount=40, reference="gift")
        assert plan == RefundPlan("gift", 40, PHONE)
        assert shop.journal.get("gift") is None
    shop.settle(shop.collect("paid since"))
    assert shop.refund("paid since").is_new, "it is read first, as its callback may have been lost"


@over_both_clients
def test_a_part_that_was_paid_back_is_not_all_that_is_left(shop: Shop) -> None:
    """A call that asks for more names the free reference. One that asks for that part again pays nothing."""
    put_collection(shop.journal)
    shop.refund(amount=20, reference="o-gift")
    first, again = shop.refund(amount=40), shop.refund(amount=Decimal("40.00"))
    assert (again.is_new, again.amount, again.transaction_id) == (False, 40, first.transaction_id)
    for amount in (None, 30):
        with pytest.raises(DuplicatePayoutError, match="KES 40 is left to pay back, with reference='o-R2'") as caught:
            shop.refund(amount=amount)
        assert (caught.value.reference, caught.value.may_have_executed) == ("o-R1", False)
    put(shop.journal, "o", kind=COLLECTION, amount=100, transaction_id="late", status="SUCCESS")
    with pytest.raises(DuplicatePayoutError, match="KES 140 is left to pay back, with reference='o-R2'"):
        shop.refund(amount=40)
    assert paid_back(shop.sandbox) == {"o-gift": 20, "o-R1": 40}
    shop.refund(amount=139, reference="o-R2")
    with pytest.raises(DuplicatePayoutError, match="KES 1 is left"):
        shop.refund()
    execute(shop.journal, "UPDATE momopay_payments SET amount = '140' WHERE reference = 'o-R2'")
    assert shop.refund().transaction_id == first.transaction_id, "nothing is left"


@over_both_clients
@pytest.mark.parametrize("status", ["PENDING", "REVERSED"])
def test_a_refund_of_all_is_returned_again_however_it_ended(shop: Shop, status: str) -> None:
    put_collection(shop.journal, statuses=["SUCCESS", "SUCCESS"])
    execute(shop.journal, "UPDATE momopay_transactions SET phone = '254722000111' WHERE transaction_id = 'o-0'")
    first = shop.refund()
    execute(shop.journal, f"UPDATE momopay_transactions SET status = '{status}' WHERE reference = 'o-R1'")
    assert shop.refund().transaction_id == first.transaction_id, "the other phone's money is left"


@over_both_clients
def test_a_handler_can_tell_a_refund_of_a_part_from_one_of_all(shop: Shop) -> None:
    put_collection(shop.journal, amount=1250)
    shop.refund(amount=40)
    shop.later(600)
    shop.sweep(handler := Handler())
    shop.refund(reference="o-R2")
    shop.later(600)
    shop.sweep(handler)
    seen: list[Any] = [(each.reference, each.refund_of, each.amount, each.refunded) for each in handler.payments]
    assert seen == [("o-R1", "o", 40, 40), ("o-R2", "o", 1210, 1250)]
    assert shop.pay("salary").refunded == 0


@pytest.mark.parametrize(("status", "refunded"), [("SUCCESS", 10), ("PENDING", 0)])
def test_an_order_that_was_paid_says_what_was_paid_back(
    serve: Serve, journal: Journal, status: str, refunded: int
) -> None:
    put(journal, "r", ACCEPTED, COLLECTION, transaction_id="t-1", status="SUCCESS")
    put(journal, "r-R1", refund_of="r")
    execute(journal, f"UPDATE momopay_transactions SET status = '{status}' WHERE transaction_id = 't-1'")
    assert serve(read=listed(type="STK", status=status)).collect(phone=PHONE).refunded == refunded


def test_a_refund_that_is_unresolved_counts_and_one_that_was_refused_does_not(shop: Shop) -> None:
    put_collection(shop.journal)
    shop.account.b2c_balance, before = Decimal(0), shop.account.b2c_balance
    with pytest.raises(InsufficientFundsError):
        shop.refund()
    shop.account.b2c_balance = before
    shop.sandbox.fail_next("POST", "/b2c/payouts", Fault.reset_after_commit)
    with pytest.raises(OutcomeUnknownError):
        shop.refund(reference="o-R2", amount=60)
    # Its amount is that of the first call, which does not fit any more.
    with pytest.raises(RequestValidationError, match=r"'o-R2' KES 60 \(UNKNOWN\)"):
        shop.refund()
    assert shop.state("o-R1") is REFUSED
    shop.refund(reference="o-R3")
    assert paid_back(shop.sandbox) == {"o-R2": 60, "o-R3": 40}


@pytest.mark.parametrize("refused", [False, True])
def test_each_payment_goes_back_to_the_phone_that_made_it(shop: Shop, refused: bool) -> None:
    """The last one first; a refund that was refused before the last one came stays the first one's."""
    put_collection(shop.journal, statuses=["SUCCESS", "SUCCESS"])
    if refused:
        put(shop.journal, "o-R1", REFUSED, amount=100, refund_of="o")
    execute(shop.journal, "UPDATE momopay_transactions SET phone = '254722000111' WHERE transaction_id = 'o-1'")
    with pytest.raises(RequestValidationError, match=r"KES 100 of the KES 200 .* to 2547"):
        shop.refund(reference="both", amount=200)
    phones = [shop.refund(reference=each).phone for each in ("o-R1", "o-R2")]
    assert phones == ([PHONE, "254722000111"] if refused else ["254722000111", PHONE])


def test_an_error_before_a_refund_says_that_an_earlier_call_may_have_paid(shop: Shop, drive: Drive) -> None:
    put_collection(shop.journal)
    put(shop.journal, "o-R1", UNKNOWN, amount=100, refund_of="o")
    put_collection(shop.journal, "open", statuses=["PENDING"])
    shop.sandbox.fail_next("GET", "/wallets/service/balance", Fault.error_before_commit, times=2)
    shop.sandbox.fail_next("GET", "/transactions/{id}", Fault.error_before_commit)
    for of, reference, may_have_executed in (("o", None, True), ("o", "o-R2", False), ("open", None, False)):
        with pytest.raises(ServerError) as caught:
            drive(api_key=shop.key, base_url=shop.sandbox.base_url, max_attempts=1)(
                refund(shop.journal, of, reference=reference)
            )
        assert caught.value.may_have_executed is may_have_executed


def test_a_reference_is_that_of_a_refund_or_of_another_payout(shop: Shop) -> None:
    put_collection(shop.journal)
    put_collection(shop.journal, "p")
    put(shop.journal, "p-R1", REFUSED, amount=100, refund_of="p")
    put_collection(shop.journal, "PAID")
    for reference in ("PAY", "PAID-R1"):
        shop.pay(reference, amount=100)
    shop.refund()
    for call in (
        refund(shop.journal, of="p", reference="PAY"),
        refund(shop.journal, of="p", reference="o-R1"),
        refund(shop.journal, of="PAID"),  # its default reference is that of a payout
        pay(shop.journal, "o-R1", amount=100),
        pay(shop.journal, "p-R1", amount=100),  # it would go out without its limit
    ):
        with pytest.raises(DuplicatePayoutError, match="another refund, or for none"):
            shop(call)
    assert paid_back(shop.sandbox) == {"PAY": 100, "PAID-R1": 100, "o-R1": 100}


def test_what_cannot_be_refunded_sends_nothing(shop: Shop) -> None:
    put_collection(shop.journal)
    put_collection(shop.journal, "cancelled", statuses=["CANCELLED"])
    put_collection(shop.journal, "small", amount=9)
    put(shop.journal, "refused", REFUSED, COLLECTION)
    cases: list[tuple[dict[str, Any], str]] = [
        ({"of": "nobody"}, "of"),
        *(({"of": each}, "of: must be the reference of a collection") for each in ("", 5, "\udcff")),
        ({"of": "cancelled"}, "of: was not paid: its last known status is CANCELLED"),
        ({"of": "refused"}, "of: was not paid: its outcome is not known"),
        ({"of": "small"}, "amount"),
        *(({"amount": each}, "amount") for each in (9, 10.0, Decimal("100.01"))),
        *(({"reference": each}, "reference") for each in ("", " x")),
        ({"metadata": 1}, "metadata"),
    ]
    for fields, problem in cases:
        with pytest.raises(RequestValidationError, match=f"^{problem}"):
            shop.refund(**fields)
    assert requests(shop.sandbox) == []


def test_an_anonymised_collection_is_paid_back_once_to_a_phone_that_the_caller_knows(shop: Shop) -> None:
    for reference in ("o", "p", "q"):
        put_collection(shop.journal, reference)
    put(shop.journal, "o-R1", amount=100, refund_of="o")
    put(shop.journal, "q-R1", UNKNOWN, amount=100, refund_of="q")
    put(shop.journal, "p-R1", REFUSED, amount=100, refund_of="p")
    shop.journal.anonymise(before=datetime.now(UTC) + timedelta(days=1))
    assert shop.entry("p", COLLECTION).is_anonymised
    with pytest.raises(RequestValidationError, match=r"^of: was anonymised: pay back with pay_once"):
        shop.refund("p")
    for fields in ({"reference": "o-R2"}, {"reference": "o-R2", "amount": 10}):
        with pytest.raises(RequestValidationError, match="KES 0 of the KES 100"):
            shop.refund(**fields)
    execute(shop.journal, "UPDATE momopay_payments SET phone = ''")
    with pytest.raises(RequestValidationError, match=r"^of: was paid back as 'o-R1'"):
        shop.refund()
    assert requests(shop.sandbox) == []
    execute(shop.journal, f"UPDATE momopay_payments SET phone = '{PHONE}' WHERE reference = 'q-R1'")
    with pytest.raises(OutcomeUnknownError):  # its own phone is still known
        shop.refund("q")
