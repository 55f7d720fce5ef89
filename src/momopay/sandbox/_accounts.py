"""An account (on the wire: a tenant), which tests may change: balances, fee, limits, channels and switches."""

import re
import tomllib
from base64 import b64decode
from collections.abc import Iterable
from datetime import UTC, datetime
from decimal import Decimal
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal
from uuid import UUID, uuid4, uuid5

from pydantic import BaseModel, Field, ValidationError, WithJsonSchema

from momopay.sandbox._refusals import Refusal, reason_of

Money = Annotated[Decimal, Field(decimal_places=2), WithJsonSchema({"type": "number"})]
WalletState = Literal["active", "inactive", "missing"]
Share = Annotated[float, Field(ge=0, le=1)]
KEY_PREFIX = "pk_test_"
# Never `sk_`, which begins the secrets of other services.
KEY = re.compile(r"((?!sk_)[A-Za-z]{2,}_(?:test|live)_)(.*)", re.DOTALL)


class Switches(BaseModel, validate_assignment=True, extra="forbid"):
    """One account's switches. Any attribute may be assigned. Durations are virtual seconds."""

    naming: Literal["camelCase", "snake_case"] = "camelCase"
    cancel_ends_as: Literal["CANCELLED", "FAILED"] = "CANCELLED"
    expired_reads_as: Literal["EXPIRED", "FAILED"] = "EXPIRED"
    fee_refunded_on_failure: bool = False
    callback_posts: Literal[5, 6] = 6
    callback_on_reversed: bool = False
    late_pin: bool = False
    strict_callback_urls: bool = False
    strict_fields: bool = False
    rate_window: Literal["fixed", "sliding"] = "fixed"
    created_status: Literal[200, 201, 202] = 200
    delete_answer: Literal["envelope", "empty"] = "envelope"
    immutable_channel_fields: Literal["refuse", "ignore"] = "refuse"
    patch_unknown_channel: Literal["CHANNEL_NOT_FOUND", "TRANSACTION_NOT_FOUND"] = "CHANNEL_NOT_FOUND"
    transaction_not_found_status: Literal[400, 404] = 404
    list_phone: Literal["whole", "masked"] = "whole"
    list_amount: Literal["amount", "with_fee"] = "amount"
    list_type: Literal["upper", "lower"] = "upper"
    list_times: Literal["utc", "local"] = "utc"
    health_rule: bool = True
    # Off: no threshold is specified, and an unexpected one would break tests that fail payments on purpose.
    ban_pushes: Annotated[int, Field(ge=1)] | None = None
    ban_window: Annotated[float, Field(gt=0, le=86_400)] = 300.0
    ban_success_rate: Share = 0.2
    # From here on, the defaults are the service's specification, and the other values what else is known of it.
    key_prefixes: Literal["pk", "any"] = "pk"
    raw_keys: bool = False
    cursor_field: Literal["nextCursor", "next_cursor"] = "nextCursor"
    item_naming: Literal["camelCase", "snake_case"] = "camelCase"
    overview: bool = True
    receipt_field: Annotated[str, Field(pattern=r"^[A-Za-z_]{0,32}([Rr]eceipt|RECEIPT)$")] = "momo_receipt"
    receipt_in_reads: bool = False
    customer_in_reads: bool = False
    topup_type: Literal["WALLET_TOPUP", "WALLET_TOPUP_SERVICE_TOKENS"] = "WALLET_TOPUP"
    topup_answer: Literal["prompt", "own"] = "prompt"
    topup_keys: Literal["any_body", "same_body"] = "any_body"
    minimal_answers: bool = False
    error_messages: Literal["text", "array"] = "text"
    invalid_uuid: bool = False
    more_codes: bool = False
    rate_limit_headers: bool = False
    rate_limit_code: Literal["RATE_LIMIT_EXCEEDED", "RATE_LIMITED", "RATE_LIMIT", "HTTP_429"] = "RATE_LIMIT_EXCEEDED"
    callback_on_processing: bool = False
    long_texts: Literal["refuse", "fail"] = "refuse"
    prompt_kyc: bool = False
    payout_keys: Literal["ignored", "honoured", "forgotten"] = "ignored"
    payout_callback_field: Literal["callbackUrl", "callback_url", "either"] = "callbackUrl"
    payout_credentials: bool = False
    field_limits: Literal["specified", "contract"] = "specified"
    channel_types: Literal["TILL_NUMBER", "TILL", "SHORTCODE", "any"] = "TILL_NUMBER"
    channel_reads: bool = True
    time_filters: bool = True
    more_filters: bool = False
    more_endpoints: bool = False

    @property
    def known_channel_types(self) -> tuple[str, ...]:
        """The types that a channel may have."""
        tills = ("TILL_NUMBER", "TILL", "SHORTCODE") if self.channel_types == "any" else (self.channel_types,)
        return "PAYBILL", *tills, "SEND_MONEY"

    def accept_key(self, key: str, *, is_raw: bool = False) -> bool:
        """Return whether a key is one of this service, and was sent in a form that it takes."""
        found = KEY.fullmatch(key)
        is_known = found is not None and (self.key_prefixes == "any" or found[1] == KEY_PREFIX) and bool(found[2])
        return is_known and (self.raw_keys or not is_raw)


# What programs of merchants rely on today.
MET = Switches(
    delete_answer="empty",
    key_prefixes="any",
    raw_keys=True,
    receipt_field="mpesa_receipt",
    topup_type="WALLET_TOPUP_SERVICE_TOKENS",
    topup_answer="own",
    topup_keys="same_body",
    error_messages="array",
    invalid_uuid=True,
    more_codes=True,
    rate_limit_headers=True,
    long_texts="fail",
    prompt_kyc=True,
    payout_credentials=True,
    more_endpoints=True,
)
# What the operator's contract says.
CONTRACT = Switches(
    naming="snake_case",
    delete_answer="empty",
    key_prefixes="any",
    raw_keys=True,
    cursor_field="next_cursor",
    item_naming="snake_case",
    overview=False,
    receipt_field="mpesa_receipt",
    receipt_in_reads=True,
    customer_in_reads=True,
    topup_type="WALLET_TOPUP_SERVICE_TOKENS",
    topup_answer="own",
    topup_keys="same_body",
    error_messages="array",
    invalid_uuid=True,
    more_codes=True,
    rate_limit_headers=True,
    long_texts="fail",
    payout_keys="honoured",
    payout_callback_field="either",
    payout_credentials=True,
    field_limits="contract",
    channel_types="any",
    more_filters=True,
    more_endpoints=True,
)
PROFILES = {"contract": CONTRACT, "met": MET}


# Must not change: state files have ids that are derived from it.
_NAMESPACE = UUID("6d6f6d6f-7061-5900-8000-000000000001")
_SHOWN = 4  # the last characters of a key that may be shown

ChannelType = Literal["PAYBILL", "TILL_NUMBER", "TILL", "SHORTCODE", "SEND_MONEY"]


class Channel(BaseModel, validate_assignment=True, extra="forbid"):
    """One payment channel. `customers` counts linked customer records; the service specifies nothing else of them."""

    id: str = Field(default_factory=lambda: str(uuid4()))
    category: str = "PAYMENT_WALLET"
    type: ChannelType = "PAYBILL"
    shortcode: str = "600100"
    name: str = "Sandbox Paybill"
    account_number: str | None = None
    is_default: bool = False
    created_at: datetime = datetime(2020, 1, 1, tzinfo=UTC)
    deleted: bool = False
    customers: int = 0


class Credential(BaseModel, validate_assignment=True, extra="forbid"):
    """What matters here of a `MERCHANT_BYOC` profile. An unknown id has these defaults, if it is not refused."""

    shortcode: str = "600999"
    transaction_type: str | None = None
    active: bool = True


class Account(BaseModel, validate_assignment=True, extra="forbid"):
    """One account. Any attribute may be assigned while the sandbox runs. Amounts are in KES."""

    tenant_id: str
    label: str
    tenant_active: bool = True
    account_active: bool = True
    may_write: bool = True  # whether the key has the scopes for what is not a read
    kyc_approved: bool = True
    b2c_wallet: WalletState = "active"
    service_wallet: WalletState = "active"
    b2c_balance: Money = Decimal(1_000_000)
    service_balance: Money = Decimal(10_000)
    service_updated_at: datetime
    fee: Annotated[Money, Field(ge=0)] = Decimal(1)
    rate_limit: Annotated[int, Field(ge=1)] | None = 60
    # Deleted channels stay in the list, because transactions still name them.
    channels: list[Channel]
    credentials: dict[str, Credential] = {}
    switches: Switches = Field(default_factory=Switches)

    def check_access(self, method: str) -> None:
        """Raise if the account, or its key, may not send requests with this method."""
        if not self.tenant_active:
            raise Refusal("TENANT_INACTIVE")
        if not self.account_active:
            raise Refusal("ACCOUNT_INACTIVE")
        if method != "GET" and not self.may_write:
            raise Refusal("INSUFFICIENT_SCOPE")

    def live_channels(self) -> Iterable[Channel]:
        """Return the channels that are not deleted, in order of creation."""
        return (channel for channel in self.channels if not channel.deleted)


@lru_cache(maxsize=1024)
def tenant_id_of(key: str) -> str:
    """Return the account id of a key. It is derived from the key, so that no key is ever stored."""
    return str(uuid5(_NAMESPACE, key))


def mask_key(key: str) -> str:
    """Return a key as it may be shown: masked, and of a live key or another text nothing but its kind."""
    found = KEY.fullmatch(key)
    if found is None:
        return "…"
    prefix, rest = found.groups()
    if prefix.endswith("_live_"):
        return f"{prefix}…"
    return prefix + (rest if len(rest) <= _SHOWN else f"…{rest[-_SHOWN:]}")


def is_key(text: str) -> bool:
    """Return whether a text has the form of a key."""
    return KEY.fullmatch(text) is not None


def key_of(authorization: str | None, switches: Switches) -> tuple[str, bool]:
    """Return the API key of a header, and whether it stands there raw.

    It is the user name of Basic credentials, whose password is ignored; or what follows "Basic" is the key itself.
    """
    scheme, _, encoded = (authorization or "").partition(" ")
    is_basic, encoded = scheme.lower() == "basic", encoded.strip()
    if is_basic and is_key(encoded):  # no Base64, which has no underscore
        return encoded, True
    try:
        decoded = b64decode(encoded, validate=True).decode("utf-8")
    except ValueError:
        decoded = ""
    key, colon, _ = decoded.partition(":")
    if not is_basic or not colon:
        challenge = {"www-authenticate": 'Basic realm="momopay sandbox"'}
        code = "AUTH_HEADER_INVALID" if switches.more_codes else "INVALID_API_KEY"
        raise Refusal(code, "The API key is missing", headers=challenge)
    return key, False


def open_account(tenant_id: str, label: str, now: datetime, switches: Switches) -> Account:
    """Return a fresh account as docs/test/sandbox.md describes it."""
    channel = Channel(account_number="SANDBOX", is_default=True, created_at=now)
    own = switches.model_copy()  # because tests may change the switches of one account
    return Account(tenant_id=tenant_id, label=label, service_updated_at=now, channels=[channel], switches=own)


def restore(account: Account, now: datetime, switches: Switches) -> None:
    """Reset the account in place, because tests keep the object that `Sandbox.account` returned."""
    fresh = open_account(account.tenant_id, account.label, now, switches)
    for name in Account.model_fields:
        setattr(account, name, getattr(fresh, name))


def load_profile(path: str | Path) -> Switches:
    """Return the switches of a built-in profile or of a file. Those that the file does not know have their defaults."""
    if isinstance(path, str) and path in PROFILES:
        return PROFILES[path].model_copy()
    try:
        table: dict[str, Any] = dict(tomllib.loads(Path(path).read_text("utf-8"))["switches"])
    except (OSError, KeyError, TypeError, ValueError) as error:
        known = " and ".join(PROFILES)
        problem = f"{path} is not a profile: one is built in ({known}), or a file of TOML with a table [switches]"
        raise ValueError(f"{problem}: {error}") from None
    known_values = {name: value for name, value in table.items() if value != "unknown"}
    try:
        # An unknown name is refused too, or else the sandbox would silently differ from the file.
        return Switches.model_validate(known_values)
    except ValidationError as error:
        faults = "; ".join(f"{'.'.join(map(str, fault['loc']))}: {reason_of(fault)}" for fault in error.errors())
        raise ValueError(f"{path} does not fit this version of the sandbox: {faults}") from None
