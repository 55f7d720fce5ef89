"""The errors: one tree, which pickles, says whether money may have moved, and shows neither keys nor phones."""

import copy
import inspect
import pickle
import re
import traceback
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

import momopay
from drivers import KEY
from in_turn import in_turn
from models.kit import ID, ITEM, PHONE, READ, parse
from momopay import errors

TREE: dict[str, type[momopay.MomoPayError]] = {
    name: kind
    for name, kind in vars(errors).items()
    if inspect.isclass(kind) and issubclass(kind, momopay.MomoPayError) and name != "_kind"
}
each_error = in_turn("name", TREE)


def drawn() -> dict[str, str]:
    """Return each class of the tree at the top of the module, and the class that it is drawn below."""
    found, above = dict[str, str](), dict[int, str]()
    for line in str(errors.__doc__).split("\n\n")[1].splitlines():
        depth = len(line) - len(line.lstrip(" |`-"))
        for name in re.findall(r"\w+Error", re.split(" {2,}", line[depth:])[0]):
            found[name] = above.get(depth - 3, "Exception")
            above[depth] = name
    return found


def test_the_tree_is_drawn_at_the_top_of_the_module() -> None:
    assert drawn() == {name: kind.__bases__[0].__name__ for name, kind in TREE.items()}
    second = {name: kind.__bases__[1] for name, kind in TREE.items() if len(kind.__bases__) > 1}
    assert second == {
        "RequestValidationError": ValueError,
        "InvalidCallbackError": ValueError,
        "WaitTimeoutError": TimeoutError,
    }
    assert {kind.__module__ for kind in TREE.values()} == {"momopay"}
    assert set(TREE) == {name for name in momopay.__all__ if name.endswith("Error")}


def test_each_code_of_the_service_has_its_class() -> None:
    of_codes = {kind for kind in TREE.values() if issubclass(kind, momopay.APIError)}
    above = {momopay.APIError, momopay.ThrottledError, momopay.ServerError}
    assert {*errors.ERRORS_BY_CODE.values()} == of_codes - above
    for code, kind in errors.ERRORS_BY_CODE.items():
        assert kind.__name__ == code.title().replace("_", "") + "Error"


LAST, MATCH = parse(READ.kind, READ.camel), parse(ITEM.kind, ITEM.camel)
PAYMENT: dict[str, Any] = {"reference": "INV-42", "amount": Decimal("99.99"), "phone": PHONE, "transaction_id": ID}
UNKNOWN: dict[str, Any] = PAYMENT | {"idempotency_key": "k-1", "sent_at": datetime(2025, 3, 1, 10, 15, 30, tzinfo=UTC)}
RESPONSE: dict[str, Any] = {"code": "X", "status_code": 400, "details": {"phone": PHONE, "n": [1]}, "request_id": "r-1"}
PLAIN = f"about {PHONE} and {KEY}"
GIVEN: dict[str, dict[str, Any]] = {
    "CallbackMismatchError": {"transaction_id": ID, "fields": ("amount", "phone")},
    "APIConnectionError": {"may_have_executed": True},
    "BudgetExhaustedError": {"retry_after": 12.5},
    "OutcomeUnknownError": {**UNKNOWN, "matches": (MATCH,), "near_matches": (MATCH,)},
    "ProtocolError": {"status_code": 502, "may_have_executed": True},
    "WaitTimeoutError": {"last": LAST, "pending": (ID, "b")},
    "DuplicateCollectionError": {"reference": PHONE},
    "DuplicatePayoutError": {"reference": PHONE},
    "RateLimitExceededError": {"retry_after": 5.0, **RESPONSE},
}
FIELDS = {"phone": f"not {PHONE}", "amount": "is low"}


def made(name: str) -> Any:
    kind = getattr(momopay, name)
    if kind is momopay.RequestValidationError:
        return kind(FIELDS)
    return kind(PLAIN, **GIVEN.get(name, RESPONSE if issubclass(kind, momopay.APIError) else {}))


def attributes(error: Any) -> dict[str, Any]:
    names = [name for name in dir(error) if not name.startswith("_") and name not in {"add_note", "with_traceback"}]
    return {name: getattr(error, name, None) for name in names}


@each_error
def test_an_error_survives_copying_with_all_that_it_carries(name: str) -> None:
    error = made(name)
    error.add_note("while paying")
    pickled = [pickle.loads(pickle.dumps(error, protocol)) for protocol in (2, pickle.HIGHEST_PROTOCOL)]
    for twin in (*pickled, copy.copy(error), copy.deepcopy(error)):
        assert type(twin) is type(error)
        assert attributes(twin) == attributes(error)
        assert (str(twin), repr(twin), twin.args) == (str(error), repr(error), error.args)
        assert twin.__notes__ == ["while paying"]


@each_error
def test_an_error_shows_neither_a_whole_phone_nor_a_key(name: str) -> None:
    error = made(name)
    for text in (str(error), repr(error), error.message, "".join(traceback.format_exception_only(error))):
        assert "712345678" not in text
        assert KEY not in text


MAY_HAVE_EXECUTED = {"JournalError", "OutcomeUnknownError", "WaitTimeoutError"}
"""Of those that say the same always; the others are told when they are made."""


@each_error
def test_an_error_says_whether_money_may_have_moved(name: str) -> None:
    kind = getattr(momopay, name)
    assert "remedy" in vars(kind)
    assert kind.may_have_executed is (name in MAY_HAVE_EXECUTED)
    if "may_have_executed" in inspect.signature(kind.__init__).parameters or issubclass(kind, momopay.APIError):
        needed: dict[str, Any] = RESPONSE if issubclass(kind, momopay.APIError) else {}
        assert kind("x", **needed).may_have_executed is False
        assert kind("x", **needed, may_have_executed=True).may_have_executed is True


@in_turn(
    ("name", "words"),
    [
        *(("OutcomeUnknownError", "do not send it again"), ("WaitTimeoutError", "do not pay it again")),
        *(
            ("DuplicatePayoutError", "use a new reference"),
            ("DuplicateCollectionError", "wait while its prompt is open on another phone"),
        ),
        *(("RequestValidationError", "nothing was sent"), ("CallbackMismatchError", "do not act on it")),
        *(("InsufficientFundsError", "fund the B2C wallet"), ("JournalError", "then run the same command again")),
    ],
)
def test_a_remedy_fits_its_error(name: str, words: str) -> None:
    assert words in getattr(momopay, name).remedy


def test_errors_carry_what_they_were_made_with() -> None:
    for name, stated in GIVEN.items():
        assert {each: getattr(made(name), each) for each in stated} == stated
    assert made("RequestValidationError").fields == FIELDS


def test_a_refusal_shows_its_code_message_status_and_request() -> None:
    error = momopay.APIError("Not today.", **RESPONSE)
    assert str(error) == "X: Not today. (HTTP 400, request r-1)"
    assert str(momopay.ServerError("failed", code=None, status_code=500)) == "no code: failed (HTTP 500)"
    assert error.details == {"phone": PHONE, "n": [1]}  # what the service said, for the program


def test_a_secret_in_any_part_of_a_refusal_is_masked() -> None:
    for secret in (PHONE, KEY, f"x{PHONE}"):
        error = momopay.APIError("no", code=secret, status_code=400, request_id=secret)
        assert secret not in f"{error} {error!r}"


def test_what_the_service_says_cannot_forge_a_line_of_the_log_or_move_a_cursor() -> None:
    error = momopay.APIError("no\nERROR lost\x1b[2J\u202e\u2028", code="A\rB", status_code=400, request_id="r\x9b")
    assert not {"\n", "\r", "\x1b", "\x9b", "\u202e", "\u2028"} & {*str(error), *error.message}


def blocked_until(value: object) -> datetime | None:
    details = {"blockedUntil": value}
    error = momopay.TransactionHealthBlockedError("wait", code="X", status_code=429, details=details)
    return error.blocked_until


@in_turn("value", [None, 5, "", "soon", "9999-99-99T99:99:99Z", "\ud800", ["2025-03-01"]])
def test_a_detail_that_is_no_time_is_none(value: Any) -> None:
    assert blocked_until(value) is None


@given(st.datetimes(), st.sampled_from(["", "Z", "+14:00", "-14:00"]))
def test_any_time_is_aware(when: datetime, zone: str) -> None:
    until = blocked_until(when.isoformat() + zone)
    assert until is not None
    assert until.utcoffset() is not None
    assert until.replace(tzinfo=None) == when
