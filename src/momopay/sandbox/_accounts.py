"""An account (on the wire: a tenant), which tests may change: balances, fee, limits, channels and switches."""

from base64 import b64decode
from collections.abc import Iterable
from datetime import UTC, datetime
from decimal import Decimal
from functools import lru_cache
from typing import Annotated, Literal
from uuid import UUID, uuid4, uuid5

from pydantic import BaseModel, Field, WithJsonSchema

from momopay.sandbox._refusals import Refusal
from momopay.sandbox._switches import KEY, Switches

Money = Annotated[Decimal, Field(decimal_places=2), WithJsonSchema({"type": "number"})]
WalletState = Literal["active", "inactive", "missing"]

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
