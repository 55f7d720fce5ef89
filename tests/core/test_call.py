"""One call in memory and in virtual time: the retry table, pauses, deadlines, and what its errors carry.

Both clients run this code, so the blocking one stands for both. tests/transport/test_over_sockets.py holds the same
table at real sockets, over both.
"""

import random
import re
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from math import inf
from pathlib import Path
from typing import Any

import pytest

import momopay
from bodies import encoded, envelope, transaction
from core import kit
from core.kit import (
    GET,
    PAYOUT,
    PHONE,
    STK,
    SUCCESS,
    Answer,
    Column,
    error_answer,
    limited,
    lost,
    raw,
    reach,
    read_balance,
)
from drivers import session_of
from durable.kit import Lanes
from events_kit import Watcher
from in_turn import in_turn
from momopay import BudgetExhaustedError, Client, FileRateBudget, Journal, RateBudget
from momopay._core.call import Call
from momopay._core.config import Hooks
from momopay._core.endpoint import Endpoint
from momopay._core.operation import run_sync
from momopay._core.reads import read_tenant, read_transaction
from momopay._core.retry import AT_MOST_ONCE, SAFE, FailureKind, RetryPolicy
from momopay._transport.attempt import NotSentError
from momopay.errors import ERRORS_BY_CODE
from momopay.events import AttemptEnded
from momopay.resources.stk import INITIATE
from wire import TRANSACTION_ID

pytestmark = pytest.mark.usefixtures("no_backoff")


def columns(*some: Column) -> Callable[[Callable[..., None]], Callable[..., None]]:
    return in_turn("column", some or kit.COLUMNS)


def answers(**named: Answer) -> Callable[[Callable[..., None]], Callable[..., None]]:
    return in_turn("answer", named.values())


def failure(client: Client, call: Callable[[Any], Any]) -> Any:
    with pytest.raises(momopay.MomoPayError) as raised:
        call(client)
    return raised.value


# The retry table, row by row.


@columns()
def test_what_was_not_sent_is_retried_and_did_not_execute(column: Column) -> None:
    client, service = reach(kit.NOT_SENT)
    error = failure(client, column.call)
    assert (type(error), type(error.__cause__)) == (momopay.APIConnectionError, NotSentError)
    assert (error.may_have_executed, service.sent) == (False, [])
    client, service = reach(kit.NOT_SENT, kit.NOT_SENT, kit.NOT_SENT, SUCCESS)
    column.call(client)
    assert len(service.sent) == 1


@columns()
@answers(
    lost=lost(),
    cut=lost(status=500),
    timeout=raw(408),
    error=error_answer(500, "PLATFORM_CREDENTIALS_NOT_CONFIGURED"),
    success=raw(503, encoded(envelope({"transactionId": "t"}))),
)
def test_an_ambiguous_failure_is_retried_only_where_that_is_safe(column: Column, answer: Answer) -> None:
    for script in ([answer, SUCCESS], [answer]):
        client, service = reach(*script)
        if column.retries and len(script) > 1:
            column.call(client)
            assert len(service.sent) == 2
        else:
            error = failure(client, column.call)
            assert type(error) is (column.server_error if answer.error is None else column.no_reply)
            assert error.may_have_executed is column.may_have_executed
            assert len(service.sent) == column.requests(4)
        assert service.payments <= 1


@columns(kit.TOP_UP, kit.CREATE, GET, kit.UPDATE, PAYOUT)
@answers(page=raw(404, b"<html>"), success_that_is_html=raw(200, b"<html>"), empty_success=raw(204))
def test_a_response_that_is_not_specified_ends_the_call(column: Column, answer: Answer) -> None:
    client, service = reach(answer)
    error = failure(client, column.call)
    assert type(error) is column.invalid
    assert error.may_have_executed is column.may_have_executed
    assert len(service.sent) == 1


@columns()
@in_turn(
    ("status", "code"),
    [(402, "INSUFFICIENT_SERVICE_BALANCE"), (422, "NEW")]
    + [(409, each) for each in ("WALLET_INACTIVE", "CREDENTIAL_INACTIVE", "DUPLICATE_SHORTCODE")],
)
def test_a_refusal_is_definite(column: Column, status: int, code: str) -> None:
    client, service = reach(error_answer(status, code))
    error = failure(client, column.call)
    assert type(error) is ERRORS_BY_CODE.get(code, momopay.APIError)
    assert (error.code, error.status_code, error.request_id) == (code, status, "9f1c")
    assert not error.may_have_executed
    assert (len(service.sent), service.payments) == (1, 0)


@columns(STK, PAYOUT, kit.TOP_UP, kit.CREATE)
@in_turn("status", [400, 409])
def test_a_key_that_was_sent_before_leaves_the_outcome_unknown_and_nothing_is_repeated(
    column: Column, status: int
) -> None:
    client, service = reach(error_answer(status, "DUPLICATE_IDEMPOTENCY_KEY"))
    error = failure(client, column.call)
    assert (type(error), type(error.__cause__)) == (momopay.OutcomeUnknownError, momopay.APIError)
    assert (error.__cause__.code, len(service.sent)) == ("DUPLICATE_IDEMPOTENCY_KEY", 1)


@columns()
@in_turn("status", [200, 409])
def test_a_new_code_on_another_status_is_ambiguous(column: Column, status: int) -> None:
    client, service = reach(replace(error_answer(status, "SOMETHING_NEW"), commits=True), SUCCESS)
    error = failure(client, column.call)
    reconciled = column in {STK, PAYOUT, kit.CREATE}
    assert type(error) is (momopay.OutcomeUnknownError if reconciled else momopay.APIError)
    assert error.may_have_executed is column.may_have_executed
    assert f"SOMETHING_NEW: this is SOMETHING_NEW (HTTP {status}, request 9f1c)" in str(error)
    refused = error.__cause__ if reconciled else error
    assert isinstance(refused, momopay.APIError)
    assert (refused.code, refused.status_code) == ("SOMETHING_NEW", status)
    assert len(service.sent) == 1
    assert service.payments == (1 if column.pays and column is not GET else 0)


def test_an_error_and_an_event_name_the_address_without_its_query() -> None:
    client, _ = reach(raw(404, b"<html>"), on_event=(seen := Watcher()))
    calls: list[tuple[kit.Call, str]] = [
        (lambda each: each.transactions.list(q="Jane"), "/transactions"),
        (read_balance, "/wallets/service/balance"),
        (kit.delete_channel, "/payment-wallet/channels/2d9a4a0e"),
    ]
    for call, path in calls:
        assert f"https://api.example/v1{path} answered HTTP 404" in str(failure(client, call))
    assert seen.of(AttemptEnded)[0].route == "/transactions"


# DELETE: any 2xx but a refusal is success, and so is 404 after an ambiguous attempt.


@answers(
    no_content=raw(204),
    text=raw(202, b"later"),
    null=raw(200, encoded(envelope(None))),
    refusal_without_error=raw(200, b'{"success": false}'),
    body_that_never_came=lost(status=200),
)
def test_any_success_status_deletes(answer: Answer) -> None:
    client, service = reach(answer)
    kit.delete_channel(client)
    assert len(service.sent) == 1


@answers(lost=lost(), error=raw(500), timeout=raw(408))
@pytest.mark.parametrize("code", ["CHANNEL_NOT_FOUND", "TRANSACTION_NOT_FOUND", "SOMETHING_NEW"])
def test_not_found_after_an_ambiguous_delete_is_success(answer: Answer, code: str) -> None:
    client, service = reach(answer, error_answer(404, code))
    kit.delete_channel(client)
    assert len(service.sent) == 2


@in_turn("first", [[], [limited(reset=0)], [kit.NOT_SENT], [lost()]])
def test_not_found_without_an_ambiguous_delete_is_an_error(first: list[Answer]) -> None:
    client, _ = reach(*first, error_answer(404, "CHANNEL_NOT_FOUND"))
    may_have_executed = bool(first) and first[0].commits
    error = failure(client, kit.update_channel if may_have_executed else kit.delete_channel)
    assert type(error) is momopay.ChannelNotFoundError
    assert error.may_have_executed is may_have_executed


# 429 RATE_LIMIT_EXCEEDED.


@columns()
def test_a_rate_limit_is_retried_when_it_is_over(column: Column) -> None:
    client, service = reach(limited(reset=7), SUCCESS)
    before = service.now()
    column.call(client)
    assert (len(service.sent), service.now() - before) == (2, 7)


def test_a_server_error_is_retried_when_the_service_asks_for_it(backoff: Callable[[float], None]) -> None:
    backoff(3.0)
    client, service = reach(raw(503, Retry_After="7"), SUCCESS)
    response = read_balance(client).response
    assert (service.slept, response.attempts, response.elapsed) == ([7.0], 2, 7.0)


@columns(GET, PAYOUT)
def test_a_rate_limit_past_the_deadline_is_raised_at_once(column: Column) -> None:
    client, service = reach(limited(reset=30), deadline=5.0)
    error = failure(client, column.call)
    assert type(error) is momopay.RateLimitExceededError
    assert (error.details["limit"], error.retry_after) == (60, 30)
    assert not error.may_have_executed
    assert (len(service.sent), service.slept) == (1, [])


def test_a_rate_limit_stops_the_whole_budget() -> None:
    budget = RateBudget()
    client, service = reach(limited(reset=30), SUCCESS, budget=budget, deadline=5.0)
    failure(client, read_balance)
    for column in kit.COLUMNS:
        error = failure(client, column.call)
        assert type(error) is momopay.BudgetExhaustedError
        assert error.retry_after == 30
        assert not error.may_have_executed
    assert len(service.sent) == 1


def left(remaining: int, seconds: int = 30) -> Answer:
    """A success that shows how many requests the service still takes in its window."""
    date = {"Date": "Sat, 28 Nov 2026 10:00:00 GMT", "X-RateLimit-Limit": "60"}
    reset = str(int(datetime(2026, 11, 28, 10, 0, seconds, tzinfo=UTC).timestamp()))
    return replace(SUCCESS, headers={**date, "X-RateLimit-Remaining": str(remaining), "X-RateLimit-Reset": reset})


@columns(GET, PAYOUT)
def test_what_another_program_sent_with_the_key_lowers_the_budget_until_the_window_ends(
    column: Column, tmp_path: Path
) -> None:
    for budget in (RateBudget(), FileRateBudget(tmp_path / column.name)):
        client, service = reach(left(2), left(1), left(0), SUCCESS, budget=budget)
        began = service.now()
        for _ in range(3):
            column.call(client)
        assert service.now() == began
        column.call(client)
        assert service.now() - began == pytest.approx(30)


def test_what_an_answer_shows_never_raises_the_budget(tmp_path: Path) -> None:
    for number, budget in enumerate((RateBudget(2), FileRateBudget(tmp_path / "budget", requests=2))):
        client, service = reach(left(1000), left(59), left(59), left(1 - number), budget=budget)
        began = service.now()
        for seconds in (0, 0, 61, 61):
            read_balance(client)
            assert service.now() - began == pytest.approx(seconds)


@answers(
    unavailable=raw(503, Retry_After="30"),
    refusal=error_answer(409, "INSUFFICIENT_FUNDS", Retry_After="30"),
    ban=error_answer(429, "STK_TEMP_BANNED", {"retryAfterSeconds": 30}),
    limit_without_a_time=error_answer(429, "RATE_LIMIT_EXCEEDED"),
    lost=lost(),
)
def test_no_other_failure_stops_the_budget(answer: Answer) -> None:
    client, service = reach(answer, SUCCESS, budget=RateBudget(), max_attempts=1)
    failure(client, read_balance)
    before = service.now()
    read_balance(client)
    assert service.now() == before


# 429 STK_TEMP_BANNED and TRANSACTION_HEALTH_BLOCKED.


@in_turn("code", ["STK_TEMP_BANNED", "TRANSACTION_HEALTH_BLOCKED"])
def test_a_ban_refuses_further_prompts_locally_until_it_ends(code: str) -> None:
    client, service = reach(error_answer(429, code, {"retryAfterSeconds": 60}), SUCCESS, budget=RateBudget())
    failure(client, kit.initiate_stk)
    service.clock += 20
    for each in (client, client.with_options(timeout=1.0)):
        error = failure(each, kit.initiate_stk)
        assert type(error).__name__ == ERRORS_BY_CODE[code].__name__
        assert (error.code, error.retry_after, error.may_have_executed) == (code, 40, False)
    assert len(service.sent) == len(session_of(client).budget._log.slots) == 1  # what is refused takes no slot
    for call in (kit.initiate_payout, read_balance):
        call(client)
    assert len(service.sent) == 3
    service.clock += 40
    kit.initiate_stk(client)
    assert len(service.sent) == 4


@answers(error=error_answer(503, "STK_TEMP_BANNED"), timeout=error_answer(408, "TRANSACTION_HEALTH_BLOCKED"))
def test_on_5xx_and_408_the_status_decides_and_no_pause_begins(answer: Answer) -> None:
    client, service = reach(answer, SUCCESS)
    assert type(failure(client, kit.initiate_stk)) is momopay.OutcomeUnknownError
    kit.initiate_stk(client)
    assert len(service.sent) == 2


def test_a_block_carries_its_figures_also_when_it_is_refused_locally() -> None:
    details = {"retryAfterSeconds": 1800, "blockedUntil": "2026-11-24T00:00:00Z", "successRate": 0.21}
    blocked, budget = error_answer(429, "TRANSACTION_HEALTH_BLOCKED", details), RateBudget(requests=1, window=30.0)
    client, service = reach(SUCCESS, blocked, budget=budget)
    read_balance(client)  # so that the prompt waits, and its block begins later
    for error in (failure(client, kit.initiate_stk), failure(client, kit.initiate_stk)):
        assert (error.details, error.retry_after) == (details, 1800)
    assert len(service.sent) == 2


@answers(slot=SUCCESS, retry=limited(reset=20))
def test_a_ban_that_began_while_a_prompt_waited_is_respected(answer: Answer) -> None:
    client, service = reach(answer, SUCCESS, budget=RateBudget(requests=1, window=20.0))
    if answer is SUCCESS:
        read_balance(client)
    ban = momopay.StkTempBannedError("banned", retry_after=60.0, code="STK_TEMP_BANNED", status_code=429)
    pause = session_of(client).stk_pause
    service.at(service.now() - 1000.0 + 5.0, lambda: pause.begin(service.now(), ban))
    assert type(failure(client, kit.initiate_stk)) is momopay.StkTempBannedError
    with pytest.raises(momopay.StkTempBannedError):
        run_sync(Call(session_of(client), INITIATE, "/payments/stk", has_slot=True).run())
    assert len(service.sent) == 1


@in_turn("policy", [SAFE, replace(AT_MOST_ONCE, retries_on=frozenset({FailureKind.SERVER_ERROR}))])
def test_no_endpoint_can_repeat_a_post_that_may_have_executed_without_its_key(policy: RetryPolicy) -> None:
    assert Endpoint("it", "POST", AT_MOST_ONCE, momopay.types.Lane.PAYMENT, None).method == "POST"
    with pytest.raises(ValueError, match="Idempotency-Key"):
        Endpoint("it", "POST", policy, momopay.types.Lane.PAYMENT, None)


# What an unknown outcome carries.


@columns(kit.TOP_UP, STK, PAYOUT)
@answers(lost=lost(), error=raw(500), html=raw(200, b"<html>"))
def test_an_unknown_outcome_carries_what_to_reconcile_with(column: Column, answer: Answer) -> None:
    client, service = reach(answer)
    before = datetime.now(UTC)
    error = failure(client, column.call)
    assert (error.reference, error.amount, error.phone) == ("INV-42", 100, PHONE)
    assert before <= error.sent_at <= datetime.now(UTC)
    assert error.transaction_id is None
    assert error.idempotency_key == service.sent[0][2].get("idempotency-key")
    assert (error.idempotency_key is not None) == (column is kit.TOP_UP)
    assert str(error).endswith(". Reconcile it before anything is sent again (reference 'INV-42')")
    assert PHONE not in f"{error} {error!r}"
    assert ".." not in str(error)


@columns(kit.TOP_UP, STK, PAYOUT)
@answers(
    cut_short=lost(status=200, partial=encoded(envelope({"transactionId": TRANSACTION_ID, "status": "PENDING"}))[:-20]),
    whole_with_500=raw(500, encoded(envelope({"transactionId": TRANSACTION_ID}))),
    of_another_payment=raw(200, encoded(envelope({"transactionId": TRANSACTION_ID, "amount": 101}))),
)
def test_a_transaction_id_in_a_broken_response_is_kept(column: Column, answer: Answer) -> None:
    client, _ = reach(answer, max_attempts=1)
    assert failure(client, column.call).transaction_id == TRANSACTION_ID


NULLS = dict.fromkeys(("type", "status", "amount", "currency", "phone", "createdAt", "updatedAt"))
LEAST = {"transactionId": TRANSACTION_ID}
DATE = "Fri, 20 Nov 2026 10:00:00 GMT"


@columns(kit.TOP_UP, STK, PAYOUT)
@in_turn(
    "data",
    [
        *(LEAST, {"transaction_id": TRANSACTION_ID, "status": "PENDING"}, {**LEAST, **NULLS}),
        *({**LEAST, "amount": "100.00", "phone_number": phone} for phone in ("+254712345678", "2547*****678")),
        {**LEAST, "createdAt": "now", "updatedAt": 10**30, "status": 5, "transactionFee": "none", "currency": 404},
    ],
)
def test_an_answer_with_an_id_and_no_contradiction_is_an_acceptance(column: Column, data: dict[str, Any]) -> None:
    client, service = reach(raw(201, encoded(envelope(data)), date=DATE))
    made: Any = column.call(client)
    assert (made.transaction_id, made.amount, made.status, made.currency) == (TRANSACTION_ID, 100, "PENDING", "KES")
    assert (made.account_reference if hasattr(made, "account_reference") else made.reference) == "INV-42"
    assert made.phone in {PHONE, data.get("phone_number")}
    assert made.created_at == made.updated_at == datetime(2026, 11, 20, 10, tzinfo=UTC)
    assert made.response.status_code == 201
    assert len(service.sent) == 1


@columns(STK, PAYOUT)
@in_turn(
    "data",
    [
        *({}, {"transactionId": None}, {"transactionId": " "}, {"status": "PENDING", "amount": 100}),
        *({**LEAST, name: value} for name, value in (("amount", 101), ("amount", "?"), ("phone", "254712345679"))),
        *({**LEAST, name: value} for name, value in (("reference", "INV-43"), ("type", "WALLET_TOPUP"), ("type", 5))),
    ],
)
def test_an_answer_without_an_id_or_with_a_contradiction_is_unknown(column: Column, data: dict[str, Any]) -> None:
    client, service = reach(raw(201, encoded(envelope(data))))
    assert isinstance(failure(client, column.call), momopay.OutcomeUnknownError)
    assert len(service.sent) == 1


@answers(lost=lost(), error=raw(500), limited=limited(reset=3600))
def test_a_transaction_id_from_an_earlier_attempt_is_kept(answer: Answer) -> None:
    client, service = reach(lost(partial=encoded(envelope({"transactionId": TRANSACTION_ID}))), answer)
    assert failure(client, kit.top_up).transaction_id == TRANSACTION_ID
    assert len(service.sent) > 1


# The idempotency key of a top-up.


def test_each_top_up_has_one_key_its_own_or_a_given_one() -> None:
    client, service = reach(lost(), raw(503), SUCCESS, default_headers={"User-Agent": "shop"})
    client.wallet.top_up(amount=5, phone=PHONE, idempotency_key="mine-1")
    names = ("idempotency-key", "cache-control", "accept", "accept-encoding", "user-agent")
    sent = [[headers[name] for name in names] for _, _, headers, _ in service.sent]
    assert sent == [["mine-1", "no-cache, no-store", "application/json", "identity", "shop"]] * 3
    assert len({body for *_, body in service.sent}) == service.payments == 1
    for _ in range(2):
        kit.top_up(client)
    assert len({headers["idempotency-key"] for _, _, headers, _ in service.sent}) == service.payments == 3
    read_balance(client)
    assert "idempotency-key" not in service.sent[-1][2]


# An ambiguous failure is not forgotten when a later attempt fails clearly.


@columns(kit.TOP_UP, kit.UPDATE)
@answers(
    not_sent=kit.NOT_SENT,
    revoked=error_answer(401, "INVALID_API_KEY"),
    limited=limited(reset=3600),
    refused=error_answer(400, "INVALID_PHONE"),
    unclear=error_answer(409, "SOMETHING_NEW"),
    closed_meanwhile=Answer(error=momopay.ConfigurationError("this client is closed")),
)
def test_what_follows_an_ambiguous_failure_does_not_clear_it(column: Column, answer: Answer) -> None:
    client, _ = reach(lost(), answer)
    assert failure(client, column.call).may_have_executed


@columns(kit.TOP_UP, kit.UPDATE, kit.DELETE)
def test_an_exhausted_budget_does_not_clear_an_ambiguous_failure(column: Column) -> None:
    client, service = reach(lost(), budget=RateBudget(requests=1, window=61.0), deadline=2.0)
    error = failure(client, column.call)
    assert error.may_have_executed
    assert type(error) is column.no_reply
    assert len(service.sent) == 1


@columns(STK, PAYOUT, kit.CREATE)
def test_a_lost_reply_after_a_definite_refusal_is_ambiguous(column: Column) -> None:
    client, service = reach(limited(reset=0), lost(), SUCCESS)
    assert type(failure(client, column.call)) is momopay.OutcomeUnknownError
    assert len(service.sent) == 2


class Failing(RateBudget):
    """A budget whose store fails after the first slot."""

    def reserve(self, now: float, lane: momopay.types.Lane, within: float = 0.0) -> float:
        if self._log.slots:
            raise ConnectionError("the store is gone")
        return super().reserve(now, lane, within)


def test_what_prevents_a_retry_does_not_hide_the_attempt_before_it() -> None:
    client, service = reach(raw(503), budget=Failing())
    error = failure(client, lambda each: each.wallet.top_up(amount=1, phone=PHONE, idempotency_key="k-1"))
    assert (type(error), error.idempotency_key) == (momopay.OutcomeUnknownError, "k-1")
    assert len(service.sent) == 1


# Time.


@columns(kit.TOP_UP, STK, PAYOUT, kit.CREATE)
def test_the_answer_to_a_payment_measures_the_clock_of_the_service(column: Column) -> None:
    client, _ = reach(Answer(headers={"date": "Fri, 20 Nov 2026 10:00:00 GMT"}))
    column.call(client)
    assert session_of(client).clock.offset is not None


@pytest.mark.parametrize(("deadline", "until"), [(5.0, inf), (90.0, 1005.0)])
def test_no_retry_is_made_past_the_deadline(backoff: Callable[[float], None], deadline: float, until: float) -> None:
    backoff(3.0)
    client, service = reach(raw(500), deadline=deadline, max_attempts=10)
    error = failure(client, lambda each: run_sync(read_transaction(session_of(each), "7d9a4a0e", until=until)))
    assert type(error) is momopay.ServerError
    assert (len(service.sent), service.slept) == (2, [3.0])


def test_an_attempt_gets_what_is_left_of_the_deadline(backoff: Callable[[float], None]) -> None:
    backoff(3.0)
    client, service = reach(raw(500), raw(500), SUCCESS, timeout=10.0, deadline=12.0)
    read_balance(client)
    for until in (4.0, 99.0):
        run_sync(read_tenant(session_of(client.with_options(timeout=50.0)), until=service.now() + until))
    assert service.timeouts == [10.0, 9.0, 6.0, 4.0, 12.0]


def test_backoff_has_full_jitter_from_half_a_second_to_eight(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[float, float]] = []

    def no_wait(low: float, high: float) -> float:
        asked.append((low, high))
        return 0.0

    monkeypatch.setattr(random, "uniform", no_wait)
    client, service = reach(raw(500), max_attempts=8)
    failure(client, read_balance)
    assert len(service.sent) == 8
    assert asked[:7] == [(0, 0.5), (0, 1), (0, 2), (0, 4), (0, 8), (0, 8), (0, 8)]


def test_a_payment_is_not_started_with_too_little_time_left(backoff: Callable[[float], None]) -> None:
    budget = RateBudget(requests=1, window=85.0)
    client, service = reach(SUCCESS, budget=budget)
    kit.initiate_stk(client)
    error = failure(client, kit.initiate_stk)
    assert (type(error), error.retry_after) == (momopay.BudgetExhaustedError, 85.0)
    assert len(service.sent) == 1
    for call in (read_balance, kit.update_channel):  # which may start so late
        call(client)
    backoff(9.5)
    client, service = reach(kit.NOT_SENT, SUCCESS, deadline=10.0)
    assert not failure(client, kit.initiate_stk).may_have_executed
    assert (service.slept, service.sent) == ([9.5], [])


def test_every_call_takes_a_slot_in_its_lane(tmp_path: Path) -> None:
    budget = Lanes()
    client, service = reach(SUCCESS, budget=budget)
    for call in (kit.initiate_stk, kit.initiate_payout, kit.top_up, read_balance, kit.delete_channel):
        call(client)
    assert budget.taken == [momopay.types.Lane.PAYMENT] * 3 + [momopay.types.Lane.READ] * 2
    with Journal(f"sqlite:///{tmp_path / 'a.db'}") as journal:
        client.payouts.pay_once(journal=journal, reference="INV-42", amount=100, phone=PHONE)
    assert service.asked_before == 1
    assert budget.taken[5:] == [momopay.types.Lane.PAYMENT] * 2, "of which the first asks whose key it is"
    assert len(service.sent) == 7


def test_a_call_that_has_a_slot_takes_no_other() -> None:
    client, service = reach(SUCCESS, budget=RateBudget(requests=1, window=20.0))
    first, second = (Call(session_of(client), INITIATE, "/payments/stk") for _ in range(2))
    for each in (first, first, second):
        run_sync(each.acquire_slot())
    assert service.slept == [20.0]


def test_a_wait_beyond_max_wait_is_refused_at_once() -> None:
    client, service = reach(SUCCESS, budget=RateBudget(requests=1, window=50.0), max_wait=49.0)
    read_balance(client)
    for column in kit.COLUMNS:
        error = failure(client, column.call)
        assert (type(error), error.retry_after) == (momopay.BudgetExhaustedError, 50.0)
        assert not error.may_have_executed
    for other in (client.with_options(max_wait=60.0, deadline=49.0), client.with_options(max_wait=0)):
        assert type(failure(other, read_balance)) is BudgetExhaustedError
    assert (len(service.sent), service.slept) == (1, [])
    read_balance(client.with_options(max_wait=50.0))
    assert service.slept == [50.0]
    session = session_of(client)
    assert (session.without_max_wait().limits.max_wait, session.limits.max_wait) == (None, 49.0)


def test_a_poll_may_wait_beyond_max_wait() -> None:
    budget = RateBudget(requests=1, window=50.0)
    ended = encoded(envelope(transaction("7d9a4a0e", "SUCCESS")))
    client, service = reach(SUCCESS, raw(200, ended), budget=budget, max_wait=0)
    read_balance(client)
    assert client.transactions.wait("7d9a4a0e").transaction_id
    assert (len(service.sent), service.now()) == (2, 1050.0)
    client, service = reach(limited(reset=5), raw(200, ended), max_wait=0)
    assert client.transactions.wait("7d9a4a0e").transaction_id
    assert service.now() == 1020.0


def test_a_pause_that_a_429_asks_for_is_bounded_by_max_wait() -> None:
    client, service = reach(limited(reset=5), max_wait=4.0)
    error = failure(client, read_balance)
    assert (type(error), error.retry_after, service.slept) == (momopay.RateLimitExceededError, 5.0, [])
    for answer, max_wait in ((limited(reset=5), 5.0), (raw(503, Retry_After="5"), 4.0)):  # of a 503, it is no wait
        client, service = reach(answer, SUCCESS, max_wait=max_wait)
        read_balance(client)
        assert service.slept == [5.0]


def test_each_attempt_and_each_retry_is_a_line_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG", "momopay")
    read_balance(reach(raw(503), raw(500), SUCCESS)[0])
    call, failed = "wallet.balance (GET /wallets/service/balance)", "no code: the service failed (HTTP 503)"
    again = failed.replace("503", "500")
    assert [(record.levelname, re.sub(r"\d\.\d+ s", "_", record.message)) for record in caplog.records] == [
        ("DEBUG", f"{call}: attempt 1, lane read, _: {failed}"),
        ("WARNING", f"{call}: retrying in _ after attempt 1: {failed}"),
        ("DEBUG", f"{call}: attempt 2, lane read, _: {again}"),
        ("WARNING", f"{call}: retrying in _ after attempt 2: {again}"),
        ("DEBUG", f"{call}: attempt 3, lane read, _: 200, request 9f1c"),
    ]


def test_the_text_of_an_error_that_is_not_ours_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG", "momopay")
    client, _ = reach(Answer(error=ValueError(PHONE[3:6])))
    calls: list[kit.Call] = [lambda each: each.transactions.get(PHONE), lambda each: each.transactions.list(q="Jane")]
    for call in (*calls, kit.top_up):
        with pytest.raises(ValueError, match=PHONE[3:6]):
            call(client)
    logged = [record.message.rpartition(": ")[2] for record in caplog.records]
    assert logged == ["ValueError"] * 3 + ["its outcome is unknown, reference 'INV-42'"]
    assert "(GET /transactions/2547*****678): attempt 1" in caplog.text
    assert "Jane" not in caplog.text


def test_a_given_callback_url_goes_before_one_that_an_integration_makes() -> None:
    session = session_of(reach(SUCCESS)[0])
    assert session.callback_url(None, "A") is None
    session.hooks = Hooks("made for {}".format)
    given = [("given", "A"), ("given", None), (None, "A"), (None, None)]
    assert [session.callback_url(*each) for each in given] == ["given", "given", "made for A", None]
