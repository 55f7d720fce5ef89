"""Requests: all errors at once, by name and without values; amounts and texts go out exactly."""

import json
import pickle
import traceback
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, ClassVar

import pytest
from pydantic import Field, ValidationError

from momopay import RequestValidationError
from momopay._redaction import clear_frames
from momopay.models.arguments import CallbackUrl, Name, Phone, Text, kes
from momopay.models.requests import Request
from momopay.types import UNSET


class Order(Request):
    amount: Annotated[Decimal, kes(minimum=1)]
    phone: Phone
    shop_name: Name | None = None
    note: Text | None = None
    callback_url: CallbackUrl | None = None
    secret: Text = Field("", exclude=True)


class Changes(Request):
    absent: ClassVar[object] = UNSET

    note: Text | None = None


VALID: dict[str, Any] = {"amount": 1, "phone": "0712345678"}


def test_only_what_was_given_is_sent_under_its_name_on_the_wire() -> None:
    least = Order.checked(amount=Decimal("1E+2"), phone="0712345678")
    assert least.to_json() == b'{"amount":100,"phone":"254712345678"}'
    order = Order.checked(**VALID, shop_name="A", note=None, secret="s")
    assert json.loads(order.to_json()) == {"amount": 1, "phone": "254712345678", "shopName": "A"}


def test_none_is_null_where_another_value_means_absent() -> None:
    assert json.loads(Changes.checked(note=None).to_json()) == {"note": None}
    assert json.loads(Changes.checked(note=UNSET).to_json()) == {}


def test_all_problems_are_reported_at_once_by_their_python_names() -> None:
    with pytest.raises(RequestValidationError) as caught:
        Order.checked(amount=0.5, phone="254712345678x", shop_name=" ", note=5, unknown="254712345678")
    error = caught.value
    assert set(error.fields) == {"amount", "phone", "shop_name", "note", "unknown"}
    assert error.fields["amount"].startswith("must be an int or a Decimal, in KES")
    assert error.may_have_executed is False
    assert isinstance(error, ValueError)


def test_the_error_is_chained_and_no_link_shows_a_value() -> None:
    with pytest.raises(RequestValidationError) as caught:
        Order.checked(amount=1, phone="254712345678x", note=["canary"])
    error = caught.value
    assert isinstance(error.__cause__, ValidationError)
    clear_frames(error)
    report = traceback.TracebackException.from_exception(error, capture_locals=True)
    ours = [
        frame for part in (report, report.__cause__) if part for frame in part.stack if "/tests/" not in frame.filename
    ]
    shown = f"{error} {error!r} {error.__cause__} {error.__cause__!r} {[frame.locals for frame in ours]}"
    for value in ("712345678", "canary"):
        assert value not in shown
        assert value.encode() not in pickle.dumps(error)


def test_a_query_is_percent_encoded_and_empty_without_arguments() -> None:
    query = Order.checked(amount=Decimal("99.90"), phone="0712345678", note="a&b=c é +/#").to_query()
    assert query == "?amount=99.90&phone=254712345678&note=a%26b%3Dc%20%C3%A9%20%2B%2F%23"
    assert Changes.checked().to_query() == ""


def test_a_member_of_an_enum_goes_out_as_its_text() -> None:
    class Ours(str, Enum):  # noqa: UP042  an enum whose str() is the name of the member
        PAID = "SUCCESS"

    order = Order.checked(**VALID, note=Ours.PAID)
    assert order.to_query().endswith("&note=SUCCESS")
    assert json.loads(order.to_json())["note"] == "SUCCESS"
