"""Request bodies: JSON text in, a checked record out, or VALIDATION_ERROR (a code of the sandbox's own)."""

import json
from collections.abc import Callable
from decimal import Decimal
from typing import Annotated, ClassVar, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, WithJsonSchema
from pydantic.alias_generators import to_camel

from momopay.sandbox._refusals import Refusal, invalid_field
from momopay.sandbox._values import MAXIMUM_AMOUNT, PHONE_PATTERN

MAXIMUM_BYTES = 1 << 20
UUID_PATTERN = r"^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$"

# The schema of a Decimal would describe a string as well, which is no amount here.
_ANY_AMOUNT = {"maximum": float(MAXIMUM_AMOUNT), "multipleOf": 0.01}
StkAmount = Annotated[
    Decimal,
    Field(ge=1, le=MAXIMUM_AMOUNT, decimal_places=2),
    WithJsonSchema({"type": "number", "minimum": 1, **_ANY_AMOUNT}),
]
PayoutAmount = Annotated[
    Decimal,
    Field(ge=10, le=MAXIMUM_AMOUNT, decimal_places=2),
    WithJsonSchema({"type": "number", "minimum": 10, **_ANY_AMOUNT}),
]
# Described here, checked by `_values`: the code of a wrong phone is INVALID_PHONE, not VALIDATION_ERROR.
Phone = Annotated[str, WithJsonSchema({"type": "string", "pattern": PHONE_PATTERN})]
CallbackUrl = Annotated[str, Field(max_length=2048), WithJsonSchema({"type": "string", "format": "uri"})]
Text = Annotated[str, Field(min_length=1, max_length=255)]


class Body(BaseModel):
    """A request body: exact types, camelCase on the wire, unknown fields ignored."""

    model_config: ClassVar[ConfigDict] = ConfigDict(strict=True, frozen=True, extra="ignore", alias_generator=to_camel)


class StkBody(Body):
    """POST /payments/stk."""

    amount: StkAmount
    phone: Phone
    account_reference: Annotated[str, Field(max_length=12)] | None = None
    transaction_desc: Annotated[str, Field(max_length=13)] | None = None
    callback_url: CallbackUrl | None = None
    channel_id: str | None = None
    credential_id: Annotated[Annotated[str, Field(pattern=UUID_PATTERN)] | None, Field(alias="credential_id")] = None


class PayoutBody(Body):
    """POST /b2c/payouts."""

    amount: PayoutAmount
    phone: Phone
    reference: str | None = None
    currency: Literal["KES"] | None = None
    description: str | None = None
    channel_id: str | None = None
    callback_url: CallbackUrl | None = None


class TopUpBody(Body):
    """POST /wallets/service/topups."""

    amount: StkAmount
    phone: Phone
    account_reference: Annotated[str, Field(max_length=120)] | None = None
    transaction_desc: Annotated[str, Field(max_length=255)] | None = None


class NewChannelBody(Body):
    """POST /payment-wallet/channels; `_channels` requires the account number of a PAYBILL."""

    model_config: ClassVar[ConfigDict] = ConfigDict(
        json_schema_extra={
            "anyOf": [
                {"properties": {"type": {"enum": ["TILL_NUMBER", "SEND_MONEY"]}}},
                {"properties": {"accountNumber": {"type": "string", "minLength": 1}}, "required": ["accountNumber"]},
            ]
        }
    )

    name: Text
    type: Literal["PAYBILL", "TILL_NUMBER", "SEND_MONEY"]
    shortcode: Text
    account_number: str | None = None
    is_default: bool | None = None


class ChannelChangesBody(Body):
    """PATCH /payment-wallet/channels/{id}; only the fields sent change."""

    # The defaults are never used, `model_fields_set` decides. They are no None, so that a null is refused.
    name: Text = "unsent"
    account_number: str | None = None
    is_default: bool = False
    type: str = "unsent"
    shortcode: str = "unsent"


B = TypeVar("B", bound=Body)


def _no_constant(text: str) -> object:
    raise ValueError(f"{text} is not JSON")


def parse_json(raw: bytes, *, integer: Callable[[str], object] = Decimal) -> object:
    """Return the JSON value of a request body, every number a Decimal unless `integer` says otherwise.

    Raises:
        Refusal: VALIDATION_ERROR, when it is not JSON.
    """
    try:
        # Decimals all the way: 0.1 as a float would no longer be the amount that was sent.
        return json.loads(raw, parse_float=Decimal, parse_int=integer, parse_constant=_no_constant)
    except (ValueError, ArithmeticError, RecursionError):
        raise Refusal("VALIDATION_ERROR", "The request body is not valid JSON") from None


def read_body(model: type[B], raw: bytes, *, integer: Callable[[str], object] = Decimal) -> B:
    """Return the body as a record.

    Raises:
        Refusal: VALIDATION_ERROR, with `details.fields` naming each field at fault.
    """
    value = parse_json(raw, integer=integer)
    if not isinstance(value, dict):
        raise Refusal("VALIDATION_ERROR", "The request body is not a JSON object")
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise invalid(error, "The request body is not valid") from None


def invalid(error: ValidationError, message: str) -> Refusal:
    """Return a VALIDATION_ERROR with `details.fields` naming each field at fault."""
    fields = {".".join(map(str, fault["loc"])): fault["msg"] for fault in error.errors()}
    return Refusal("VALIDATION_ERROR", message, details={"fields": fields})


def require_all(body: Body, optional: frozenset[str]) -> None:
    """Raise if a field is missing that the service does not call optional, for the switch `strict_fields`."""
    for name, field in type(body).model_fields.items():
        if name not in optional and getattr(body, name) is None:
            raise invalid_field(str(field.alias or name), "is required")
