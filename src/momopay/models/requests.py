"""Requests to the service: a class for each body or query, paths with an id, and the comparison with records."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from enum import Enum, auto
from typing import Annotated, Any, ClassVar, Final, Self
from urllib.parse import quote, urlencode

from pydantic import AliasGenerator, ConfigDict, Field, StrictBool, ValidationError, ValidationInfo, field_validator
from pydantic.alias_generators import to_camel
from typing_extensions import Sentinel

from momopay.errors import RequestValidationError
from momopay.models import arguments
from momopay.models.callbacks import CallbackTransaction
from momopay.models.enums import ChannelType, TransactionStatus, TransactionType, is_known_type
from momopay.models.records import MaskedModel, is_missing, is_placeholder, parse_incomplete
from momopay.models.transactions import (
    ChannelAnswer,
    PaymentRecord,
    Transaction,
    TransactionPage,
    TransactionSummary,
    UnreadTransaction,
    parse_page,
)
from momopay.money import format_amount, json_number
from momopay.phones import is_same_phone_if_known, same_phone


@dataclass(frozen=True)
class RequestedPayment:
    """What identifies a payment. Fields that are None are not compared."""

    reference: str
    amount: Decimal | None
    phone: str | None
    type: str | None

    def differences(self, reference: str | None, record: PaymentRecord | CallbackTransaction) -> list[str]:
        """Return the names of the fields in which the service's record differs. A field that it lacks does not differ.

        The reference is passed separately, because records have it under several names.
        """
        pairs = {
            # References are sent in the form NFC. A trimmed one is a different one.
            "reference": not reference or unicodedata.normalize("NFC", reference) == self.reference,
            "amount": None in {self.amount, record.amount} or self.amount == record.amount,
            "phone": self.phone is None or is_same_phone_if_known(self.phone, record.phone),
            "type": self.type is None
            or record.type is None
            or is_placeholder(record.type)
            or TransactionType(self.type).casefold() == record.type.casefold(),
        }
        return [name for name, agrees in pairs.items() if not agrees]


class OtherPaymentError(ValueError):
    """The response to a payment is about another one."""


def read_partly(model: Any, data: Mapping[str, Any], known: Mapping[str, Any]) -> Any:
    """Return what can be read of data that are not valid as a whole. Raise ValueError if that is not enough.

    A page needs its cursor, a read the id, status and amount, an accepted payment or a new channel its id, and the
    change of a channel nothing. What the response to a payment lacks is in `known`, from the request. Raise
    OtherPaymentError if the response contradicts the request.
    """
    if issubclass(model, TransactionPage):
        return parse_page(data)
    if issubclass(model, ChannelAnswer):
        return parse_incomplete(model, data, {}, ["id"])
    if issubclass(model, TransactionSummary):
        return parse_incomplete(model, data, {}, ["transaction_id", "status", "amount"])
    if not issubclass(model, PaymentRecord):
        raise ValueError("another kind of record")  # noqa: TRY004  as for data that cannot be read
    status, reference = TransactionStatus.PENDING, known.get("reference")
    known = {"status": status, "account_reference": reference, **known}
    record = parse_incomplete(model, data, known, ["transaction_id", "type", "amount", "phone"])
    stated = getattr(record, "reference", None) or getattr(record, "account_reference", None)
    kind = TransactionType(model.model_fields["type"].default)
    # The service gives two types to top-ups.
    wanted = None if kind is TransactionType.WALLET_TOPUP else kind
    asked = RequestedPayment(reference or stated or "", known.get("amount"), known.get("phone"), wanted)
    if differing := asked.differences(stated, record):
        raise OtherPaymentError(f"it names another {', '.join(differing)}")
    return record


def comparable(reference: str | None) -> str:
    """Return a reference in a form in which two that look the same are equal."""
    return "" if reference is None else unicodedata.normalize("NFC", reference).strip()


UNSET = Sentinel("UNSET")
"""The default of an argument for which None means null on the wire."""


class Request(MaskedModel):
    """Checked arguments. Only those that were given are sent."""

    model_config: ClassVar[ConfigDict] = ConfigDict(
        alias_generator=AliasGenerator(serialization_alias=to_camel),
        extra="forbid",
        hide_input_in_errors=True,  # a RequestValidationError is chained to pydantic's error
    )

    absent: ClassVar[object] = None
    """The value of an argument that was not given."""

    @classmethod
    def checked(cls, *, on_loopback: bool = False, **arguments: Any) -> Self:
        """Return the request. Raise RequestValidationError with all arguments at fault, and without their values."""
        given = {name: value for name, value in arguments.items() if value is not cls.absent}
        try:
            return cls.model_validate(given, context={"on_loopback": on_loopback})
        except ValidationError as error:
            problems = {str(each["loc"][0]): _message(each) for each in error.errors(include_url=False)}
            raise RequestValidationError(problems) from error

    def given(self) -> dict[str, Any]:
        """Return what is sent, by its name on the wire."""
        # Not `model_dump`, which would replace an exception from a signal handler by its own.
        fields = type(self).model_fields
        return {
            field.serialization_alias or name: getattr(self, name)
            for name, field in fields.items()
            if name in self.model_fields_set and not field.exclude
        }

    def to_json(self) -> bytes:
        """Return the body."""
        return json.dumps(self.given(), default=json_number, separators=(",", ":")).encode()

    def to_query(self) -> str:
        """Return the query with its question mark, or an empty string."""
        pairs = {name: query_text(value) for name, value in self.given().items()}
        return f"?{urlencode(pairs, quote_via=quote)}" if pairs else ""


_MESSAGES: Final = {
    "missing": "is missing",
    "string_type": "must be a string",
    "string_unicode": "must be text that can be encoded as UTF-8",
}


def _message(problem: Any) -> str:
    """Return the message of our own validator, or pydantic's in the same style."""
    found = _MESSAGES.get(problem["type"], str(problem["msg"]).removeprefix("Value error, "))
    return re.sub("^(Input|String) should", "must", found)


def query_text(value: object) -> str:
    """Return a value as a query has it."""
    if isinstance(value, Decimal):
        return format_amount(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


ACCOUNT_REFERENCE_LENGTH: Final = 12  # characters
# The largest difference between the service's clock and this machine's that a search allows for.
CLOCK_TOLERANCE: Final = timedelta(minutes=5)
# How much further back a search goes if the sender's clock was never compared with the service's.
_UNMEASURED: Final = timedelta(days=1)


class StkRequest(Request):
    """The body of POST /payments/stk."""

    amount: Annotated[Decimal, arguments.kes(minimum=1)]
    phone: arguments.Phone
    account_reference: Annotated[str, arguments.text(ACCOUNT_REFERENCE_LENGTH), arguments.REFERENCE] | None = None
    transaction_desc: Annotated[str, arguments.text(13)] | None = None
    callback_url: arguments.CallbackUrl | None = None
    channel_id: arguments.ChannelId | None = None
    # The one field of the service that is snake_case in a body, of a payout too.
    credential_id: arguments.CredentialId | None = Field(None, serialization_alias="credential_id")


class OrderRequest(Request):
    """What ``stk.collect_once`` takes beside the body of its prompt. It is never sent."""

    reference: arguments.Reference
    abandon_after: arguments.Seconds | None = None

    @property
    def wire_reference(self) -> str:
        """The order's reference within the service's limit, always the same for the same order."""
        if len(self.reference) <= ACCOUNT_REFERENCE_LENGTH:
            return self.reference
        # 60 bits, so that two orders do not get the same one by chance, in characters that nobody misreads.
        digest = hashlib.sha256(self.reference.encode()).digest()
        return base64.b32encode(digest)[:ACCOUNT_REFERENCE_LENGTH].decode()


class PayoutRequest(Request):
    """The body of POST /b2c/payouts."""

    amount: Annotated[Decimal, arguments.kes(minimum=10)]
    phone: arguments.Phone
    reference: arguments.PayoutReference
    currency: arguments.Currency = "KES"  # as every default, sent only if a caller passes it
    description: Annotated[str, arguments.text(255)] | None = None
    channel_id: arguments.ChannelId | None = None
    callback_url: arguments.CallbackUrl | None = None
    credential_id: arguments.CredentialId | None = Field(None, serialization_alias="credential_id")


class TopUpRequest(Request):
    """The body of POST /wallets/service/topups, and the key of its header."""

    amount: Annotated[Decimal, arguments.kes(minimum=1)]
    phone: arguments.Phone
    account_reference: Annotated[str, arguments.text(120), arguments.REFERENCE] | None = None
    transaction_desc: Annotated[str, arguments.text(255)] | None = None
    idempotency_key: arguments.IdempotencyKey = Field(exclude=True)


class ChannelRequest(Request):
    """The body of POST /payment-wallet/channels."""

    name: Annotated[str, arguments.text(120), arguments.NOT_BLANK]
    type: arguments.Name  # not the enum, because the service may accept types that this version does not know
    shortcode: Annotated[str, arguments.text(50), arguments.NOT_BLANK]
    # The default is validated, so that a missing one is checked, too.
    account_number: Annotated[str, arguments.text(50)] | None = Field(None, validate_default=True)
    is_default: StrictBool | None = None

    @field_validator("account_number")
    @classmethod
    def _check_account_of_paybill(cls, value: str | None, info: ValidationInfo) -> str | None:
        if info.data.get("type") == ChannelType.PAYBILL and not (value or "").strip():
            raise ValueError("is required for a PAYBILL channel")
        return value


class ChannelChanges(Request):
    """The body of PATCH /payment-wallet/channels/{id}; None is sent as null."""

    absent: ClassVar[object] = UNSET

    channel_id: arguments.ChannelId = Field(exclude=True)
    name: Annotated[str, arguments.text(120), arguments.NOT_BLANK] | None = None
    account_number: Annotated[str, arguments.text(50)] | None = None
    is_default: StrictBool | None = None


class TransactionQuery(Request):
    """The query of GET /transactions."""

    status: arguments.Text | None = None
    type: arguments.Text | None = None
    from_: arguments.Moment | None = Field(None, serialization_alias="from")
    to: arguments.Moment | None = None
    channel_id: arguments.ChannelId | None = None
    amount_min: Annotated[Decimal, arguments.kes(minimum=0)] | None = None
    amount_max: Annotated[Decimal, arguments.kes(minimum=0)] | None = None
    q: arguments.Text | None = None
    # One parameter on the wire, but two fields, so that an error names the caller's own argument.
    limit: arguments.PageSize | None = None
    page_size: arguments.PageSize | None = Field(None, serialization_alias="limit")
    cursor: arguments.Text | None = None

    def after(self, cursor: str | None) -> Self:
        """Return the same query for the page at that cursor."""
        return self if cursor is None else self.model_copy(update={"cursor": cursor})


class Fit(Enum):
    """How a transaction compares with a payment that is searched for."""

    EXACT = auto()
    """It agrees with all that is known of the payment."""
    NEAR = auto()
    """It has the payment's reference and another amount, phone, type or time; or it has no reference, and may be it."""
    NONE = auto()
    """It has another reference."""
    KNOWN = auto()
    """The journal knows which payment it belongs to."""


class Search(Request):
    """What is known of a payment that is searched for. It is never sent."""

    reference: arguments.Name
    since: arguments.Since
    amount: Annotated[Decimal, arguments.kes(minimum=0)] | None = None  # no endpoint's minimum applies to a search
    phone: arguments.Phone | None = None
    type: arguments.Text | None = None
    is_measured: bool = True  # whether the clock of `since` was compared with the service's; if not, a day earlier
    known: frozenset[str] = frozenset()

    @property
    def earliest(self) -> datetime:
        """How far back the search goes, without any tolerance."""
        return self.since if self.is_measured else earlier(self.since, _UNMEASURED)

    def shifted(self, seconds: float) -> Self:
        """Return the same search, begun so many seconds earlier."""
        return self.model_copy(update={"since": earlier(self.since, timedelta(seconds=seconds))})

    def fit(self, item: TransactionSummary | Transaction) -> Fit:
        """Return how a transaction compares with the payment. One without a reference may be it, so it is near."""
        is_unnamed = is_placeholder(item.account_reference or "")
        if not is_unnamed and comparable(item.account_reference) != comparable(self.reference):
            return Fit.NONE
        if item.transaction_id in self.known:
            return Fit.KNOWN
        wanted = RequestedPayment(self.reference, self.amount, self.phone, self.type)
        reference = None if is_unnamed else item.account_reference
        differing, created_at = wanted.differences(reference, item), item.created_at
        if is_unnamed:
            is_other = bool(set(differing) - (set() if is_known_type(item.type) else {"type"}))
            is_older = created_at is not None and not is_missing(created_at) and self._is_past(created_at)
            return Fit.NONE if is_other or is_older else Fit.NEAR
        is_older = created_at is not None and self.since - created_at > CLOCK_TOLERANCE
        # A read has fewer fields than a list, and is asked for by an id that is known.
        shown: str | None = item.phone
        is_phone_shown = self.phone is None or (
            isinstance(item, Transaction) if shown is None else same_phone(self.phone, shown)
        )
        is_type_shown = self.type is None or item.type is None or is_known_type(item.type)
        return Fit.EXACT if is_phone_shown and is_type_shown and not (is_older or differing) else Fit.NEAR

    def may_be(self, item: UnreadTransaction) -> bool:
        """Return whether an item that could not be read may be the payment: it never proves absence."""
        is_another = item.reference is not None and comparable(item.reference) != comparable(self.reference)
        return not is_another and item.id not in self.known

    def is_past(self, page: TransactionPage) -> bool:
        """Return whether a page ends with a transaction that is older than the payment can be."""
        oldest = oldest_time(page)
        return oldest is not None and self._is_past(oldest)

    def _is_past(self, time: datetime) -> bool:
        return self.earliest - time > CLOCK_TOLERANCE


def earlier(time: datetime, by: timedelta) -> datetime:
    """Return an earlier time, but none before the beginning of the calendar."""
    return time - min(by, time - datetime.min.replace(tzinfo=time.tzinfo))


def oldest_time(page: TransactionPage) -> datetime | None:
    """Return the time of the last transaction of a page, or None. A missing time must not end a search."""
    times = (each.created_at for each in reversed(page.items))
    return next((time for time in times if not is_missing(time)), None)


def transaction_id_of(transaction: object) -> str:
    """Return a transaction's id, given the id or a record that carries it. Raise RequestValidationError otherwise."""
    try:
        return arguments.check_transaction_id(transaction)
    except ValueError as error:
        raise RequestValidationError({"transaction_id": str(error)}) from error


def transaction_path(transaction: object) -> str:
    """Return the path of one transaction. Raises as `transaction_id_of` does."""
    return _path("/transactions/", transaction_id_of(transaction))


def channel_path(channel: object) -> str:
    """Return the path of a channel, given its id or the channel. Raise RequestValidationError otherwise."""
    return _path("/payment-wallet/channels/", ChannelChanges.checked(channel_id=channel).channel_id)


def _path(folder: str, record_id: str) -> str:
    # Not even a slash is safe: an id is one segment, so that no id leads to another endpoint.
    return folder + quote(record_id, safe="")
