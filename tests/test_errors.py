"""Every refusal of the service becomes the error of its code, which pickles, tells all and shows no secret."""

from __future__ import annotations

import copy
import importlib
import inspect
import itertools
import json
import math
import pickle
import traceback
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

import momopay
from drivers import KEY, Driver

PHONE = "254712345678"
ID = "3b241101-e2bb-4255-8caf-4136c566a962"
CHANNEL = "22222222-2222-4222-8222-222222222222"
NOW = "2025-03-01T10:15:30Z"
TRANSACTION: dict[str, Any] = {
    "transactionId": ID,
    "type": "STK",
    "status": "PENDING",
    "amount": 100,
    "currency": "KES",
    "phone": PHONE,
    "createdAt": NOW,
    "updatedAt": NOW,
}

TREE: dict[str, tuple[str, ...]] = {
    "ConfigurationError": ("MomoPayError",),
    "RequestValidationError": ("MomoPayError", "ValueError"),
    "CallbackError": ("MomoPayError",),
    "InvalidCallbackError": ("CallbackError", "ValueError"),
    "ForgedCallbackError": ("CallbackError",),
    "CallbackMismatchError": ("CallbackError",),
    "APIConnectionError": ("MomoPayError",),
    "BudgetExhaustedError": ("MomoPayError",),
    "OutcomeUnknownError": ("MomoPayError",),
    "ProtocolError": ("MomoPayError",),
    "WaitTimeoutError": ("MomoPayError", "TimeoutError"),
    "DuplicatePayoutError": ("MomoPayError",),
    "JournalError": ("MomoPayError",),
    "APIError": ("MomoPayError",),
    "InvalidPhoneError": ("APIError",),
    "NoPaymentChannelsError": ("APIError",),
    "NoDefaultChannelError": ("APIError",),
    "ChannelNotFoundError": ("APIError",),
    "InvalidApiKeyError": ("APIError",),
    "InsufficientServiceBalanceError": ("APIError",),
    "KycNotVerifiedError": ("APIError",),
    "InsufficientFundsError": ("APIError",),
    "ChannelInUseError": ("APIError",),
    "TransactionNotFoundError": ("APIError",),
    "ThrottledError": ("APIError",),
    "RateLimitExceededError": ("ThrottledError",),
    "StkTempBannedError": ("ThrottledError",),
    "TransactionHealthBlockedError": ("ThrottledError",),
    "ServerError": ("APIError",),
}


NUMBERS = itertools.count()


@pytest.fixture
def drive(drive: Callable[..., Driver]) -> Callable[..., Driver]:
    # A ban stands for its key in the whole process, so each client has a key of its own.
    def make(**options: Any) -> Driver:
        return drive(**{"api_key": f"{KEY}{next(NUMBERS)}", **options})

    return make


def pay(client: Any) -> Any:
    return client.stk.initiate(amount=100, phone=PHONE, account_reference="INV-42")


def pay_out(client: Any) -> Any:
    return client.payouts.initiate(amount=100, phone=PHONE, reference="PAY-7")


def top_up(client: Any) -> Any:
    return client.wallet.top_up(amount=100, phone=PHONE, idempotency_key="k-1")


def read(client: Any) -> Any:
    return client.transactions.get(ID)


def read_channel(client: Any) -> Any:
    return client.channels.get(CHANNEL)


def create_channel(client: Any) -> Any:
    return client.channels.create(name="Shop", type="TILL_NUMBER", shortcode="600100")


def update_channel(client: Any) -> Any:
    return client.channels.update(CHANNEL, name="New")


def delete_channel(client: Any) -> Any:
    return client.channels.delete(CHANNEL)


def envelope(code: Any, details: Any = None, message: Any = "No.") -> dict[str, Any]:
    error: dict[str, Any] = {"message": message, "code": code, "details": {} if details is None else details}
    return {"success": False, "error": error, "requestId": "r-77"}


def refusing(status: int, content: Any, **headers: str) -> httpx.MockTransport:
    text = content if isinstance(content, str) else json.dumps(content)
    return httpx.MockTransport(lambda request: httpx.Response(status, text=text, headers=headers))


def caught_from(driver: Driver, call: Callable[[Any], Any]) -> Any:
    with pytest.raises(momopay.MomoPayError) as caught:
        driver(call)
    return caught.value


def shown(error: BaseException) -> str:
    return "".join([str(error), repr(error), repr(error.args), *traceback.format_exception(error)])


@pytest.mark.parametrize(("name", "bases"), TREE.items())
def test_tree_has_exactly_these_bases(name: str, bases: tuple[str, ...]) -> None:
    kind = getattr(momopay, name)
    assert tuple(base.__name__ for base in kind.__bases__) == bases


def test_tree_has_no_other_errors() -> None:
    module = importlib.import_module("momopay.errors")
    found = {name for name, kind in vars(module).items() if inspect.isclass(kind) and issubclass(kind, Exception)}
    assert {name for name in found if not name.startswith("_")} == {"MomoPayError", *TREE}
    assert momopay.MomoPayError.__bases__ == (Exception,)


def test_tree_is_drawn_at_the_top_of_the_errors() -> None:
    drawn = str(importlib.import_module("momopay.errors").__doc__)
    assert all(name in drawn for name in ("MomoPayError", *TREE))


def test_surface_is_sorted_complete_and_importable() -> None:
    names = list(momopay.__all__)
    assert names == sorted(names)
    assert len(names) == len(set(names))
    assert set(TREE) <= set(names)
    namespace: dict[str, Any] = {}
    exec("from momopay import *", namespace)
    for name in names:
        assert namespace[name] is getattr(momopay, name)
    assert set(names) <= set(dir(momopay))


def test_surface_holds_every_name_a_user_meets() -> None:
    wanted = {
        "AsyncClient",
        "Callback",
        "CallbackTransaction",
        "ChannelType",
        "CallbackSigner",
        "Client",
        "EventType",
        "Journal",
        "JournalEntry",
        "JournalState",
        "Lane",
        "MomoPayError",
        "PaymentChannel",
        "Payout",
        "PollSchedule",
        "RateBudget",
        "RedisRateBudget",
        "ResponseInfo",
        "ResultCode",
        "StkTransaction",
        "TopUp",
        "Transaction",
        "TransactionPage",
        "TransactionStatus",
        "TransactionSummary",
        "TransactionType",
        "WalletBalance",
        "normalise_phone",
        "parse_callback",
        "settled",
        "terminal",
    }
    assert wanted <= set(momopay.__all__)


def test_unknown_name_is_an_attribute_error() -> None:
    package: Any = momopay
    with pytest.raises(AttributeError, match="NoSuchThing"):
        _ = package.NoSuchThing


def test_errors_read_as_names_of_the_package() -> None:
    kinds = [getattr(momopay, name) for name in ("MomoPayError", *TREE)]
    assert {f"{kind.__module__}.{kind.__qualname__}" for kind in kinds} == {
        f"momopay.{name}" for name in ("MomoPayError", *TREE)
    }


ROWS: list[Any] = [
    (pay, 400, "INVALID_PHONE", "InvalidPhoneError"),
    (pay, 400, "NO_PAYMENT_CHANNELS", "NoPaymentChannelsError"),
    (pay, 400, "NO_DEFAULT_CHANNEL", "NoDefaultChannelError"),
    (pay, 400, "CHANNEL_NOT_FOUND", "ChannelNotFoundError"),
    (read_channel, 404, "CHANNEL_NOT_FOUND", "ChannelNotFoundError"),
    (read, 401, "INVALID_API_KEY", "InvalidApiKeyError"),
    (pay, 402, "INSUFFICIENT_SERVICE_BALANCE", "InsufficientServiceBalanceError"),
    (pay_out, 403, "KYC_NOT_VERIFIED", "KycNotVerifiedError"),
    (pay_out, 409, "INSUFFICIENT_FUNDS", "InsufficientFundsError"),
    (delete_channel, 409, "CHANNEL_IN_USE", "ChannelInUseError"),
    (read, 404, "TRANSACTION_NOT_FOUND", "TransactionNotFoundError"),
    (read, 400, "TRANSACTION_NOT_FOUND", "TransactionNotFoundError"),
    (update_channel, 404, "TRANSACTION_NOT_FOUND", "TransactionNotFoundError"),
    (read, 429, "RATE_LIMIT_EXCEEDED", "RateLimitExceededError"),
    (pay, 429, "STK_TEMP_BANNED", "StkTempBannedError"),
    (pay, 429, "TRANSACTION_HEALTH_BLOCKED", "TransactionHealthBlockedError"),
    (top_up, 400, "INVALID_PHONE", "InvalidPhoneError"),
    (top_up, 429, "RATE_LIMIT_EXCEEDED", "RateLimitExceededError"),
]


@pytest.mark.parametrize(("call", "status", "code", "name"), ROWS)
def test_code_chooses_the_class(drive: Callable[..., Driver], call: Any, status: int, code: str, name: str) -> None:
    sent = envelope(code, {"field": "x"}, "Not today.")
    error = caught_from(drive(transport=refusing(status, sent), max_attempts=1), call)
    assert type(error) is getattr(momopay, name)
    assert error.code == code
    assert error.message == "Not today."
    assert error.details == {"field": "x"}
    assert error.status_code == status
    assert error.request_id == "r-77"
    assert error.may_have_executed is False
    assert code in str(error)
    assert "Not today." in str(error)


@pytest.mark.parametrize("call", [read, pay, pay_out, create_channel, delete_channel])
@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 418, 422])
def test_unknown_code_is_a_plain_api_error(drive: Callable[..., Driver], call: Any, status: int) -> None:
    sent = envelope("BRAND_NEW", {"why": ["because"]})
    error = caught_from(drive(transport=refusing(status, sent), max_attempts=1), call)
    assert type(error) is momopay.APIError
    assert (error.code, error.status_code, error.details) == ("BRAND_NEW", status, {"why": ["because"]})
    assert error.may_have_executed is False


@pytest.mark.parametrize("call", [read, pay, pay_out, top_up, create_channel, read_channel])
@pytest.mark.parametrize(("code", "name"), [("INVALID_PHONE", "InvalidPhoneError"), ("BRAND_NEW", "APIError")])
@pytest.mark.parametrize("status", [200, 201, 202])
def test_refusal_within_a_success_status_is_a_definite_refusal(
    drive: Callable[..., Driver], call: Any, code: str, name: str, status: int
) -> None:
    error = caught_from(drive(transport=refusing(status, envelope(code)), max_attempts=1), call)
    assert type(error) is getattr(momopay, name)
    assert error.status_code == status
    assert error.may_have_executed is False


@pytest.mark.parametrize("status", [500, 502, 503, 504, 599, 408])
@pytest.mark.parametrize("content", ["", "<html>", "{}", json.dumps(envelope("INTERNAL"))])
def test_server_failure_of_a_read_is_a_server_error(drive: Callable[..., Driver], status: int, content: str) -> None:
    error = caught_from(drive(transport=refusing(status, content), max_attempts=1), read)
    assert type(error) is momopay.ServerError
    assert error.status_code == status
    assert error.may_have_executed is False


def test_known_code_goes_before_the_status_of_a_server_failure(drive: Callable[..., Driver]) -> None:
    error = caught_from(drive(transport=refusing(500, envelope("TRANSACTION_NOT_FOUND")), max_attempts=1), read)
    assert type(error) is momopay.TransactionNotFoundError


@pytest.mark.parametrize("call", [pay, pay_out, top_up, create_channel])
@pytest.mark.parametrize("status", [500, 408, 302])
def test_server_failure_of_a_payment_leaves_its_outcome_unknown(
    drive: Callable[..., Driver], call: Any, status: int
) -> None:
    error = caught_from(drive(transport=refusing(status, "<html>oops</html>"), max_attempts=1), call)
    assert type(error) is momopay.OutcomeUnknownError
    assert error.may_have_executed is True
    assert error.sent_at.utcoffset() is not None
    assert KEY not in shown(error)
    assert "712345678" not in shown(error)


@pytest.mark.parametrize(("call", "reference"), [(pay, "INV-42"), (pay_out, "PAY-7")])
def test_unknown_outcome_carries_what_to_reconcile_with(
    drive: Callable[..., Driver], call: Any, reference: str
) -> None:
    error = caught_from(drive(transport=refusing(500, "")), call)
    assert error.reference == reference
    assert error.amount == Decimal(100)
    assert type(error.amount) is Decimal
    assert error.phone == PHONE
    assert error.transaction_id is None
    assert list(error.matches) == []


@pytest.mark.parametrize("call", [update_channel, delete_channel])
def test_server_failure_of_a_channel_change_may_have_executed(drive: Callable[..., Driver], call: Any) -> None:
    error = caught_from(drive(transport=refusing(500, ""), max_attempts=1), call)
    assert type(error) is momopay.ServerError
    assert error.may_have_executed is True


@pytest.mark.parametrize(
    "content",
    [
        "",
        "<html><body>Bad gateway</body></html>",
        "{",
        "[]",
        "null",
        "7",
        '"text"',
        "{}",
        '{"success": true}',
        '{"success": true, "data": null}',
        '{"success": true, "data": []}',
        '{"success": true, "data": {}}',
        '{"success": "true", "data": {}}',
        '{"success": false}',
        '{"success": false, "error": null}',
        '{"success": false, "error": "no"}',
        '{"success": false, "error": []}',
        "\ufeff{}",
    ],
)
@pytest.mark.parametrize("status", [200, 400, 404])
def test_answer_that_is_not_the_specifications_is_a_protocol_error(
    drive: Callable[..., Driver], status: int, content: str
) -> None:
    error = caught_from(drive(transport=refusing(status, content), max_attempts=1), read)
    assert type(error) is momopay.ProtocolError
    assert error.may_have_executed is False


@pytest.mark.parametrize("content", [b"\xff\xfe{", b"\x00" * 9, b"[" * 100_000, b'{"a":' * 100_000, b'"\\ud800"'])
@pytest.mark.parametrize("status", [200, 400])
def test_bytes_that_are_no_json_are_a_protocol_error(drive: Callable[..., Driver], status: int, content: bytes) -> None:
    transport = httpx.MockTransport(lambda request: httpx.Response(status, content=content))
    error = caught_from(drive(transport=transport, max_attempts=1), read)
    assert type(error) is momopay.ProtocolError


def test_rate_limit_tells_its_numbers(drive: Callable[..., Driver]) -> None:
    details = {"limit": 60, "remaining": 0, "resetInSeconds": 42}
    error = caught_from(drive(transport=refusing(429, envelope("RATE_LIMIT_EXCEEDED", details)), max_attempts=1), read)
    assert (error.limit, error.remaining, error.reset_in_seconds) == (60, 0, 42)
    assert error.retry_after == 42
    assert error.details == details


@pytest.mark.parametrize(("header", "seconds"), [("50", 50), ("10", 42), ("junk", 42), ("-5", 42), ("", 42)])
def test_rate_limit_waits_for_the_later_of_two_hints(drive: Callable[..., Driver], header: str, seconds: float) -> None:
    sent = envelope("RATE_LIMIT_EXCEEDED", {"limit": 60, "remaining": 0, "resetInSeconds": 42})
    transport = refusing(429, sent, **{"Retry-After": header})
    error = caught_from(drive(transport=transport, max_attempts=1), read)
    assert error.retry_after == seconds


def test_stk_ban_tells_when_to_try_again(drive: Callable[..., Driver]) -> None:
    sent = envelope("STK_TEMP_BANNED", {"retryAfterSeconds": 3600})
    error = caught_from(drive(transport=refusing(429, sent)), pay)
    assert type(error) is momopay.StkTempBannedError
    assert error.retry_after == 3600


def test_health_block_tells_all_it_knows(drive: Callable[..., Driver]) -> None:
    details = {
        "retryAfterSeconds": 1800,
        "blockedUntil": "2025-03-01T13:45:00+03:00",
        "successRate": 0.25,
        "sampleSize": 100,
        "minSuccessRate": 0.3125,
    }
    error = caught_from(drive(transport=refusing(429, envelope("TRANSACTION_HEALTH_BLOCKED", details))), pay)
    assert type(error) is momopay.TransactionHealthBlockedError
    assert error.retry_after == 1800
    assert error.blocked_until == datetime(2025, 3, 1, 10, 45, tzinfo=UTC)
    assert error.blocked_until is not None
    assert error.blocked_until.utcoffset() is not None
    assert (error.success_rate, error.sample_size, error.min_success_rate) == (0.25, 100, 0.3125)


@pytest.mark.parametrize(
    ("code", "names"),
    [
        ("RATE_LIMIT_EXCEEDED", ("retry_after", "limit", "remaining", "reset_in_seconds")),
        ("STK_TEMP_BANNED", ("retry_after",)),
        (
            "TRANSACTION_HEALTH_BLOCKED",
            ("retry_after", "blocked_until", "success_rate", "sample_size", "min_success_rate"),
        ),
    ],
)
def test_details_that_are_missing_are_none(drive: Callable[..., Driver], code: str, names: tuple[str, ...]) -> None:
    error = caught_from(drive(transport=refusing(429, envelope(code)), max_attempts=1), pay)
    assert error.code == code
    assert [getattr(error, name) for name in names] == [None] * len(names)


HOSTILE = [
    "null",
    "true",
    '"sixty"',
    '""',
    "[]",
    "{}",
    "[1]",
    '{"a": 1}',
    "-5",
    "1e400",
    "-1e400",
    "1e308",
    "0.5",
    "1" + "0" * 400,
    "-1" + "0" * 400,
    "1" * 4000,
    "NaN",
    "Infinity",
    "-Infinity",
    '"NaN"',
    '"9999-99-99T99:99:99Z"',
    '"0001-01-01T00:00:00+14:00"',
    '"9999-12-31T23:59:59-14:00"',
    '"2025-03-01T10:45:00"',
    '"\\ud800"',
    '"1\\u0000"',
]
DETAIL_NAMES = (
    "limit",
    "remaining",
    "resetInSeconds",
    "retryAfterSeconds",
    "blockedUntil",
    "successRate",
    "sampleSize",
    "minSuccessRate",
)


@pytest.mark.parametrize("literal", HOSTILE)
@pytest.mark.parametrize("code", ["RATE_LIMIT_EXCEEDED", "STK_TEMP_BANNED", "TRANSACTION_HEALTH_BLOCKED"])
def test_hostile_details_raise_nothing_untyped(drive: Callable[..., Driver], code: str, literal: str) -> None:
    details = ", ".join(f'"{name}": {literal}' for name in DETAIL_NAMES)
    text = json.dumps(envelope(code, "DETAILS")).replace('"DETAILS"', f"{{{details}}}")
    error = caught_from(drive(transport=refusing(429, text), max_attempts=1), read)
    assert isinstance(error, momopay.ThrottledError | momopay.ProtocolError)
    assert isinstance(shown(error), str)
    assert isinstance(pickle.loads(pickle.dumps(error)), type(error))
    after: Any = getattr(error, "retry_after", None)
    assert after is None or (math.isfinite(after) and after >= 0)
    until: Any = getattr(error, "blocked_until", None)
    assert until is None or until.utcoffset() is not None


@pytest.mark.parametrize("details", [[], "none", 7, True, [{"limit": 1}]], ids=repr)
def test_details_that_are_no_object_do_no_harm(drive: Callable[..., Driver], details: Any) -> None:
    error = caught_from(drive(transport=refusing(409, envelope("INSUFFICIENT_FUNDS", details))), pay_out)
    assert type(error) is momopay.InsufficientFundsError
    assert error.details == {}


@pytest.mark.parametrize("details", ['"details": null', '"more": 1'])
def test_refusal_without_details_has_empty_ones(drive: Callable[..., Driver], details: str) -> None:
    text = f'{{"success": false, "error": {{"message": "No.", "code": "INSUFFICIENT_FUNDS", {details}}}}}'
    error = caught_from(drive(transport=refusing(409, text)), pay_out)
    assert type(error) is momopay.InsufficientFundsError
    assert error.details == {}
    assert error.request_id is None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
CODES = st.sampled_from([row[2] for row in ROWS]) | st.text() | JSON


def test_no_refusal_raises_anything_untyped(drive: Callable[..., Driver]) -> None:
    told: list[Any] = [400, ""]
    driver = drive(transport=httpx.MockTransport(lambda request: httpx.Response(told[0], text=told[1])), max_attempts=1)
    details = JSON | st.dictionaries(st.sampled_from(DETAIL_NAMES), JSON)

    @given(st.sampled_from([200, 400, 404, 408, 409, 429, 500, 503]), CODES, details, JSON)
    def check(status: int, code: Any, more: Any, message: Any) -> None:
        told[:] = [status, json.dumps(envelope(code, more, message))]
        error = caught_from(driver, read)
        assert isinstance(shown(error), str)
        assert isinstance(pickle.loads(pickle.dumps(error)), type(error))

    check()


def test_no_answer_raises_anything_untyped(drive: Callable[..., Driver]) -> None:
    told: list[Any] = [None]
    driver = drive(transport=httpx.MockTransport(lambda request: httpx.Response(200, text=told[0])), max_attempts=1)
    record = st.fixed_dictionaries(dict.fromkeys(TRANSACTION, JSON))
    almost = st.tuples(st.sampled_from(sorted(TRANSACTION)), JSON).map(lambda pair: {**TRANSACTION, pair[0]: pair[1]})

    @given(JSON | record | almost)
    def check(data: Any) -> None:
        told[0] = json.dumps({"success": True, "data": data, "requestId": "r"})
        try:
            result = driver(read)
        except momopay.ProtocolError as error:
            text = shown(error)
        else:
            text = repr(result)
            assert type(result) is momopay.Transaction
        assert "712345678" not in text

    check()


LAST = momopay.Transaction.model_validate(TRANSACTION)
MATCH = momopay.TransactionSummary.model_validate(TRANSACTION)
SENT_AT = datetime(2025, 3, 1, 10, 15, 30, tzinfo=UTC)
ANSWER: dict[str, Any] = {"code": "X", "status_code": 400, "details": {"phone": PHONE, "n": [1]}, "request_id": "r-1"}
PLAIN = f"about {PHONE} and {KEY}"
MADE: dict[str, Any] = {
    "MomoPayError": lambda: momopay.MomoPayError(PLAIN),
    "ConfigurationError": lambda: momopay.ConfigurationError(PLAIN),
    "RequestValidationError": lambda: momopay.RequestValidationError({"phone": "is no phone", "amount": "is low"}),
    "CallbackError": lambda: momopay.CallbackError(PLAIN),
    "InvalidCallbackError": lambda: momopay.InvalidCallbackError(PLAIN),
    "ForgedCallbackError": lambda: momopay.ForgedCallbackError(PLAIN),
    "CallbackMismatchError": lambda: momopay.CallbackMismatchError(
        PLAIN, transaction_id=ID, fields=["amount", "phone"]
    ),
    "APIConnectionError": lambda: momopay.APIConnectionError(PLAIN, may_have_executed=True),
    "BudgetExhaustedError": lambda: momopay.BudgetExhaustedError(PLAIN, retry_after=12.5),
    "OutcomeUnknownError": lambda: momopay.OutcomeUnknownError(
        PLAIN,
        sent_at=SENT_AT,
        reference="INV-42",
        amount=Decimal("99.99"),
        phone=PHONE,
        transaction_id=ID,
        idempotency_key="k-1",
        matches=[MATCH],
    ),
    "ProtocolError": lambda: momopay.ProtocolError(PLAIN, status_code=502, may_have_executed=True),
    "WaitTimeoutError": lambda: momopay.WaitTimeoutError(PLAIN, last=LAST, pending=[ID]),
    "DuplicatePayoutError": lambda: momopay.DuplicatePayoutError(PLAIN, reference=PHONE),
    "JournalError": lambda: momopay.JournalError(PLAIN),
    "RateLimitExceededError": lambda: momopay.RateLimitExceededError(
        PLAIN,
        retry_after=5.0,
        **{**ANSWER, "details": {"limit": 60, "remaining": 0, "resetInSeconds": 5}},
    ),
    "TransactionHealthBlockedError": lambda: momopay.TransactionHealthBlockedError(
        PLAIN, retry_after=5.0, **{**ANSWER, "details": {"blockedUntil": NOW, "sampleSize": 100}}
    ),
}


def made(name: str) -> Any:
    if name in MADE:
        return MADE[name]()
    return getattr(momopay, name)(PLAIN, **ANSWER)


def case(call: Callable[[Any], Any], *values: Any, name: str) -> Any:
    return pytest.param(call, *values, id=name)


def attributes(error: Any) -> dict[str, Any]:
    names = [name for name in dir(error) if not name.startswith("_") and name not in {"add_note", "with_traceback"}]
    return {name: getattr(error, name, None) for name in names}


@pytest.mark.parametrize(
    "duplicate",
    [
        case(lambda error: pickle.loads(pickle.dumps(error)), name="pickle"),
        case(lambda error: pickle.loads(pickle.dumps(error, protocol=2)), name="pickle-2"),
        case(copy.copy, name="copy"),
        case(copy.deepcopy, name="deepcopy"),
    ],
)
@pytest.mark.parametrize("name", ["MomoPayError", *TREE])
def test_every_error_survives_copying_with_all_it_carries(name: str, duplicate: Any) -> None:
    error = made(name)
    error.add_note("while paying")
    twin = duplicate(error)
    assert type(twin) is type(error)
    assert attributes(twin) == attributes(error)
    assert str(twin) == str(error)
    assert repr(twin) == repr(error)
    assert twin.__notes__ == ["while paying"]


@pytest.mark.parametrize("name", ["MomoPayError", *TREE])
def test_no_error_shows_a_whole_phone(name: str) -> None:
    error = made(name)
    for text in (str(error), repr(error), "".join(traceback.format_exception(error))):
        assert "712345678" not in text
    assert isinstance(error.may_have_executed, bool)


@pytest.mark.parametrize("name", ["MomoPayError", *TREE])
def test_no_error_shows_a_key(name: str) -> None:
    error = made(name)
    assert KEY not in str(error)
    assert KEY not in repr(error)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("ConfigurationError", False),
        ("RequestValidationError", False),
        ("InvalidCallbackError", False),
        ("ForgedCallbackError", False),
        ("BudgetExhaustedError", False),
        ("OutcomeUnknownError", True),
        ("WaitTimeoutError", True),
        ("InvalidPhoneError", False),
        ("InsufficientFundsError", False),
        ("RateLimitExceededError", False),
        ("APIConnectionError", True),
        ("ProtocolError", True),
    ],
)
def test_error_tells_whether_money_may_have_moved(name: str, expected: bool) -> None:
    assert made(name).may_have_executed is expected


def test_errors_carry_what_they_were_made_with() -> None:
    unknown = made("OutcomeUnknownError")
    assert (unknown.reference, unknown.amount, unknown.phone) == ("INV-42", Decimal("99.99"), PHONE)
    assert (unknown.transaction_id, unknown.sent_at, list(unknown.matches)) == (ID, SENT_AT, [MATCH])
    assert made("WaitTimeoutError").last == LAST
    assert made("BudgetExhaustedError").retry_after == 12.5
    assert made("RequestValidationError").fields == {"phone": "is no phone", "amount": "is low"}


@pytest.mark.parametrize(
    "leak",
    [
        {"message": f"number {PHONE} is bad"},
        {"message": f"number +{PHONE} is bad"},
        {"message": "number 0712345678 is bad"},
        {"message": f"key {KEY} is bad"},
        {"details": {"phone": PHONE}},
        {"details": {"phones": [{"n": int(PHONE)}]}},
        {"details": {"key": KEY}},
        {"code": f"BAD_{PHONE}"},
        {"code": KEY},
    ],
    ids=repr,
)
def test_refusal_that_repeats_a_secret_does_not_show_it(drive: Callable[..., Driver], leak: dict[str, Any]) -> None:
    sent = envelope(**{"code": "INVALID_PHONE", **leak})
    error = caught_from(drive(transport=refusing(400, sent)), pay)
    assert isinstance(error, momopay.APIError)
    assert "12345678 " not in shown(error).replace(KEY, "")
    assert "712345678" not in shown(error)
    assert KEY not in f"{error} {error!r}"


def test_details_hold_what_the_service_said(drive: Callable[..., Driver]) -> None:
    error = caught_from(drive(transport=refusing(400, envelope("INVALID_PHONE", {"phone": PHONE}))), pay)
    assert error.details == {"phone": PHONE}


@pytest.mark.parametrize(
    ("failure", "executed"),
    [(httpx.ConnectError("refused"), False), (httpx.ConnectTimeout("slow"), False), (httpx.ReadTimeout("slow"), True)],
)
def test_failure_of_the_connection_is_typed(drive: Callable[..., Driver], failure: Exception, executed: bool) -> None:
    def fail(request: httpx.Request) -> httpx.Response:
        raise failure

    error = caught_from(drive(transport=httpx.MockTransport(fail), max_attempts=1), pay)
    assert type(error) is (momopay.OutcomeUnknownError if executed else momopay.APIConnectionError)
    assert error.may_have_executed is executed
    assert "712345678" not in shown(error)
    assert KEY not in shown(error)


@pytest.mark.parametrize(
    "options",
    [
        {"api_key": ""},
        {"base_url": ""},
        {"base_url": "http://api.example/v1"},
        {"base_url": "not a url"},
        {"api_key": "pk_live_0123456789", "base_url": "http://127.0.0.1:1/v1"},
        {"timeout": 0},
        {"timeout": float("nan")},
        {"deadline": -1},
        {"max_attempts": 0},
        {"max_attempts": True},
        {"max_attempts": 1.5},
    ],
    ids=repr,
)
def test_senseless_configuration_is_refused_without_showing_the_key(
    drive: Callable[..., Driver], options: dict[str, Any]
) -> None:
    with pytest.raises(momopay.ConfigurationError) as caught:
        drive(**options)
    assert caught.value.may_have_executed is False
    assert "0123456789" not in f"{caught.value} {caught.value!r}"


@pytest.mark.parametrize("missing", ["api_key", "base_url"])
def test_missing_configuration_is_named(
    drive: Callable[..., Driver], monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    monkeypatch.delenv("MOMOPAY_API_KEY", raising=False)
    monkeypatch.delenv("MOMOPAY_BASE_URL", raising=False)
    with pytest.raises(momopay.ConfigurationError, match=f"MOMOPAY_{missing.upper()}"):
        drive(**{missing: None})


def test_what_the_service_says_cannot_forge_a_line_of_the_log_or_move_a_terminal() -> None:
    error = momopay.APIError("no\nERROR all is lost\x1b[2J\u202e", code="A\rB", status_code=400, request_id="r\x9b")
    assert not {"\n", "\r", "\x1b", "\x9b", "\u202e"} & {*str(error), *error.message}
