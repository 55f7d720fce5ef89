"""The rules as a state machine: whatever is asked, money adds up and states follow the arrows."""

from contextlib import suppress
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from hypothesis import given, settings
from hypothesis import strategies as st

from momopay.sandbox import MovementKind, Outcome, Refusal, phone_for
from momopay.sandbox import _callbacks as callbacks
from momopay.sandbox import _lifecycle as lifecycle
from momopay.sandbox._bodies import PayoutBody, StkBody, TopUpBody
from momopay.sandbox._deliveries import PostResult
from momopay.sandbox._payments import initiate_payout, initiate_stk, initiate_top_up
from momopay.sandbox._state import AccountState, ServiceState

START = datetime(2026, 1, 1, tzinfo=UTC)
ARROWS = {
    "PENDING": {"PROCESSING", "CANCELLED", "EXPIRED"},
    "PROCESSING": {"SUCCESS", "FAILED"},
    "FAILED": {"REVERSED"},
}
AMOUNTS = st.decimals(10, 400_000, places=2)
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["stk", "payout", "top_up", "enter_pin", "cancel", "ignore"]),
        st.sampled_from(list(Outcome)),
        AMOUNTS,
        st.integers(0, 90),
    ),
    max_size=25,
)


def _run_until(world: ServiceState, until: datetime) -> None:
    while entry := world.scheduler.pop(until):
        due, _, what, subject = entry
        if what == "transaction":
            lifecycle.take_step(world, subject, due)
        elif delivery := callbacks.take_due(world, subject, due):
            callbacks.report(world, delivery, PostResult(status=500), due, due)


def _act(world: ServiceState, book: AccountState, step: tuple[str, Outcome, Decimal], now: datetime) -> None:
    name, outcome, amount = step
    body = {"amount": amount, "phone": phone_for(outcome), "callbackUrl": "https://shop.example/momo"}
    match name:
        case "stk":
            initiate_stk(world, book, StkBody.model_validate(body), now)
        case "payout":
            initiate_payout(world, book, PayoutBody.model_validate(body), now)
        case "top_up":
            initiate_top_up(world, book, TopUpBody.model_validate(body), now)
        case _:
            newest = book.history[-1].id if book.history else "none"
            getattr(lifecycle, name)(world, newest, now)


@settings(max_examples=60, deadline=None)
@given(STEPS)
def test_money_adds_up_and_states_follow_the_arrows(
    steps: list[tuple[str, Outcome, Decimal, int]],
) -> None:
    world, now = ServiceState(), START
    book = world.account_of("pk_test_any", now)
    seen: dict[str, str] = {}
    for name, outcome, amount, seconds in steps:
        with suppress(Refusal):
            _act(world, book, (name, outcome, amount), now)
        for _ in range(seconds):
            now += timedelta(seconds=1)
            _run_until(world, now)
            for transaction in book.history:
                before = seen.get(transaction.id, "PENDING")
                after = transaction.status.value
                assert after == before or after in ARROWS[before]
                seen[transaction.id] = after
    _run_until(world, now + timedelta(days=1))

    moved = dict.fromkeys(MovementKind, Decimal(0))
    for entry in world.ledger:
        moved[entry.kind] += entry.amount
    account = book.account
    assert account.b2c_balance == 1_000_000 - moved[MovementKind.payout] + moved[MovementKind.reversal]
    assert account.service_balance == 10_000 - moved[MovementKind.fee] + moved[MovementKind.top_up]
    assert account.b2c_balance >= 0
    assert sum(book.counts.values()) == len(book.history)
    for (kind, status), count in book.counts.items():
        assert count == sum(one.kind is kind and one.status is status for one in book.history)
    assert not world.deliveries
