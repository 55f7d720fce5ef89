"""Request bodies: JSON text in, a validated record or a refusal out; and the hosts that callbacks may go to."""

import json
import re
from collections.abc import Callable, Collection
from decimal import Decimal
from ipaddress import ip_address
from math import inf
from typing import Annotated, Any, ClassVar, Literal, TypeVar, cast
from urllib.parse import SplitResult, urlsplit

from pydantic import BaseModel, ConfigDict, Field, ValidationError, WithJsonSchema
from pydantic.alias_generators import to_camel

from momopay.sandbox._accounts import Switches
from momopay.sandbox._refusals import Refusal, invalid, invalid_field

MAXIMUM_BYTES = 1 << 20
# The service states no maximum. This one keeps amounts and balances far below 2**53 cents, up to which the shortest
# text of a double is the exact amount.
MAXIMUM_AMOUNT = Decimal("999999999.99")
# `[0-9]`, never `\d`, which also matches digits of other scripts.
_PHONE = re.compile(r"(?:0([17][0-9]{8})|\+?254([0-9]{9}))")


def _amount(minimum: int) -> WithJsonSchema:
    # The schema of a Decimal would also allow a string, which is not an amount here.
    bounds = {"minimum": minimum, "maximum": float(MAXIMUM_AMOUNT), "multipleOf": 0.01}
    return WithJsonSchema({"type": "number", **bounds, "description": "KES, at most two decimals", "examples": [100]})


def text_schema(**schema: Any) -> WithJsonSchema:
    """Return the schema of a text, in place of the one that pydantic would generate."""
    return WithJsonSchema({"type": "string", **schema})


StkAmount = Annotated[Decimal, Field(ge=1, le=MAXIMUM_AMOUNT, decimal_places=2), _amount(1)]
PayoutAmount = Annotated[Decimal, Field(ge=10, le=MAXIMUM_AMOUNT, decimal_places=2), _amount(10)]
# Only described here. `normalise_phone` checks it, because the code is INVALID_PHONE and not VALIDATION_ERROR.
Phone = Annotated[str, text_schema(pattern=r"^(0[17][0-9]{8}|\+?254[0-9]{9})$", examples=["254712345678"])]
CallbackUrl = Annotated[
    str, Field(max_length=2048), text_schema(format="uri", maxLength=2048, examples=["https://shop.example/momo"])
]
UUID_PATTERN = r"^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$"
IS_UUID = re.compile(UUID_PATTERN[:-1]).fullmatch
# Any text is accepted here; an unknown id is CHANNEL_NOT_FOUND.
ChannelId = Annotated[str, text_schema(format="uuid")]
CredentialId = Annotated[str, Field(pattern=UUID_PATTERN), text_schema(format="uuid")]
Text = Annotated[str, Field(min_length=1, max_length=255)]


class Body(BaseModel):
    """A request body: exact types, camelCase on the wire, unknown fields ignored."""

    model_config: ClassVar[ConfigDict] = ConfigDict(strict=True, frozen=True, extra="ignore", alias_generator=to_camel)
    # Fields that the service calls optional. It does not say whether the others are required.
    optional: ClassVar[frozenset[str]] = frozenset()

    def require_all(self) -> None:
        """Raise if a field that the service does not call optional is missing, for the switch `strict_fields`."""
        for name, field in type(self).model_fields.items():
            if name not in self.optional and getattr(self, name) is None:
                raise invalid_field(str(field.alias or name), "is required")


class StkBody(Body):
    """POST /payments/stk."""

    optional: ClassVar[frozenset[str]] = frozenset({"channel_id", "credential_id"})

    amount: StkAmount
    phone: Phone
    # The longest texts of each are in `limits_under`, because a switch decides.
    account_reference: Annotated[str, Field(examples=["INV-42"])] | None = None
    transaction_desc: Annotated[str, Field(examples=["Order 42"])] | None = None
    callback_url: CallbackUrl | None = None
    channel_id: ChannelId | None = None
    credential_id: Annotated[CredentialId | None, Field(alias="credential_id")] = None


class PayoutBody(Body):
    """POST /b2c/payouts."""

    optional: ClassVar[frozenset[str]] = frozenset({"channel_id", "credential_id"})

    amount: PayoutAmount
    phone: Phone
    reference: Annotated[str, Field(examples=["SAL-7"])] | None = None
    currency: Annotated[Literal["KES"], Field(examples=["KES"])] | None = None
    description: Annotated[str, Field(examples=["Salary"])] | None = None
    channel_id: ChannelId | None = None
    callback_url: CallbackUrl | None = None
    credential_id: Annotated[CredentialId | None, Field(alias="credential_id")] = None


class TopUpBody(Body):
    """POST /wallets/service/topups."""

    amount: StkAmount
    phone: Phone
    account_reference: Annotated[str, Field(max_length=120)] | None = None
    transaction_desc: Annotated[str, Field(max_length=255)] | None = None


class B2cTopUpBody(TopUpBody):
    """POST /wallets/b2c/topups."""

    callback_url: CallbackUrl | None = None


class NewChannelBody(Body):
    """POST /payment-wallet/channels; a PAYBILL needs an account number."""

    # A condition instead of alternatives, so that client generators make one class with all fields.
    model_config: ClassVar[ConfigDict] = ConfigDict(
        json_schema_extra={
            "if": {"properties": {"type": {"const": "PAYBILL"}}},
            "then": {
                "properties": {"accountNumber": {"type": "string", "minLength": 1}},
                "required": ["accountNumber"],
            },
        }
    )

    name: Annotated[Text, Field(examples=["Shop"])]
    type: Annotated[str, Field(examples=["PAYBILL"])]  # `read_body` checks it, because a switch decides
    shortcode: Annotated[Text, Field(examples=["512345"])]
    account_number: Annotated[str | None, Field(examples=["A1"])] = None
    is_default: bool | None = None


class ChannelChangesBody(Body):
    """PATCH /payment-wallet/channels/{id}; only the fields that are sent change."""

    # Factories, because their defaults do not show in the schema, and a default of None would allow null.
    name: Annotated[Text, Field(examples=["Till 2"])] = Field(default_factory=str)
    account_number: str | None = None
    is_default: bool = Field(default_factory=bool)


B = TypeVar("B", bound=Body)


def normalise_phone(phone: str) -> str:
    """Return `254XXXXXXXXX`."""
    match = _PHONE.fullmatch(phone)
    if match is None:
        raise Refusal("INVALID_PHONE")
    return f"254{match[1] or match[2]}"


def _split(url: str) -> SplitResult | None:
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises ValueError if it is invalid
    except ValueError:
        return None
    # urlsplit silently drops tabs and newlines; a space would end the request line.
    plain = url.isascii() and url.isprintable() and " " not in url
    return parts if plain and parts.hostname and parts.scheme in {"http", "https"} else None


def is_loopback(host: str) -> bool:
    """Return whether a host name or address is this machine."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def is_public(host: str) -> bool:
    """Return whether a host is a public address, or a name with a dot in it, which may be public."""
    try:
        address = ip_address(host)
    except ValueError:
        # No top-level domain begins with a digit, but resolvers take 10.1 and 0x7f.1 for addresses.
        name, dot, top = host.rstrip(".").rpartition(".")
        return bool(name and dot and top[0].isalpha()) and not host.endswith((".localhost", ".local", ".internal"))
    return address.is_global and not address.is_multicast


def host_names(hosts: Collection[str]) -> frozenset[str]:
    """Return host names in lower case; raise ValueError for what is not a host name or address alone."""
    names = frozenset(host.lower() for host in hosts)
    for name in names:
        parts = _split(f"http://[{name}]" if ":" in name else f"http://{name}")
        if parts is None or parts.hostname != name or "*" in name:
            raise ValueError(f"{name!r} is not a host name or address alone, such as 'app'")
    return names


def check_callback_url(
    url: str | None, *, strict: bool, hosts: Collection[str] = (), field: str = "callbackUrl"
) -> str | None:
    """Return the URL if it is public HTTPS or, unless `strict`, on loopback or one of `hosts`; else raise Refusal."""
    if url is None:
        return None
    parts = _split(url)
    if parts is None or parts.hostname is None:
        raise invalid_field(field, "must be an absolute HTTPS URL")
    known = may_be_sent(url, hosts) and not strict
    if not known and (parts.scheme != "https" or not is_public(parts.hostname)):
        raise invalid_field(field, "must be HTTPS with a public host")
    return url


def may_be_sent(url: str, hosts: Collection[str] = ()) -> bool:
    """Return whether the sandbox really POSTs to a URL, which must be on loopback or one of `hosts`."""
    # Never to any other host: URLs in tests may be real, and their owners expect no made-up payments.
    parts = _split(url)
    if parts is None or parts.hostname is None:
        return False
    return is_loopback(parts.hostname) or parts.hostname in hosts


def callback_url_pattern(hosts: Collection[str], *, strict: bool) -> str:
    """Return a pattern for the URLs that `check_callback_url` accepts."""
    port = "(:([1-9][0-9]{0,3}|[1-5][0-9]{4}))?"
    known = "|".join(map(re.escape, ("localhost", "127.0.0.1", *sorted(hosts))))
    public = r"https://([a-z0-9-]+\.)+[a-z]{2,}"
    host = public if strict else f"({public}|https?://({known}))"
    return f"^{host}{port}(/([A-Za-z0-9._~!$&'()*+,;=:@/?-]|%[0-9A-Fa-f]{{2}})*)?$"


def _no_constant(text: str) -> object:
    raise ValueError(f"{text} is not JSON")


def parse_json(raw: bytes, number: Callable[[str], object] | None = Decimal) -> dict[str, Any]:
    """Return the JSON object of a request body. `number` converts each number; None means int and float."""
    try:
        # Decimal by default: as a float, 0.1 would not be the amount that was sent.
        value: object = json.loads(raw, parse_float=number, parse_int=number, parse_constant=_no_constant)
    except (ValueError, ArithmeticError, RecursionError):
        raise Refusal("VALIDATION_ERROR", "The request body is not valid JSON") from None
    if not isinstance(value, dict):
        raise Refusal("VALIDATION_ERROR", "The request body is not a JSON object")
    return cast("dict[str, Any]", value)


# The longest texts under the switch `field_limits`, where the service's specification has no limit.
_CONTRACT_LIMITS = {
    "reference": 120,
    "description": 255,
    "callback_url": 500,
    "name": 120,
    "shortcode": 50,
    "account_number": 50,
}
# Those of a prompt: what every phone shows, and what is accepted under the switch `long_texts`.
_SHOWN = {"account_reference": 12, "transaction_desc": 13}
_ACCEPTED = {"account_reference": 120, "transaction_desc": 255}
IDEMPOTENCY_KEY_LIMIT = 120
_HOME = "KES"


def limits_under(model: type[Body], switches: Switches) -> dict[str, int]:
    """Return the most characters that fields of a body may have, beside those that its model states."""
    limits = dict(_CONTRACT_LIMITS) if switches.field_limits == "contract" else {}
    if model is StkBody:
        limits |= _ACCEPTED if switches.long_texts == "fail" else _SHOWN
    return {name: limit for name, limit in limits.items() if name in model.model_fields}


def is_too_long(body: StkBody) -> bool:
    """Return whether a prompt has longer texts than phones show, for which the provider fails it."""
    return any(len(getattr(body, name) or "") > limit for name, limit in _SHOWN.items())


def callback_fields(model: type[Body], switches: Switches) -> tuple[str, ...]:
    """Return the names that a body's callback URL may have in JSON; the first one is the usual one."""
    named = switches.payout_callback_field
    if named == "either" and model in {PayoutBody, B2cTopUpBody}:
        return "callbackUrl", "callback_url"
    return (named,) if model is PayoutBody else ("callbackUrl",)


def read_body(model: type[B], raw: bytes, switches: Switches, hosts: Collection[str] = ()) -> B:
    """Return the body of a request to an account with these switches. For `hosts`, see `check_callback_url`."""
    value = parse_json(raw)
    if "callback_url" in model.model_fields:
        # A field with another name is unknown, and ignored as any other.
        urls = {name: value[name] for name in callback_fields(model, switches) if value.get(name) is not None}
        value["callbackUrl"] = next(iter(urls.values()), None)
        for name, url in [*urls.items()][1:]:  # it is not used, and must be as described even so
            if not isinstance(url, str) or len(url) > limits_under(model, switches).get("callback_url", inf):
                raise invalid_field(name, "is not an absolute HTTPS URL")
            check_callback_url(url, strict=switches.strict_callback_urls, hosts=hosts, field=name)
    if model is PayoutBody and not switches.payout_credentials:
        value.pop("credential_id", None)
    try:
        body = model.model_validate(value)
    except ValidationError as error:
        currency = value.get("currency")
        is_other = isinstance(currency, str) and currency != _HOME
        if switches.more_codes and is_other and {each["loc"] for each in error.errors()} == {("currency",)}:
            raise Refusal("UNSUPPORTED_CURRENCY") from None
        raise invalid(error, "The request body is not valid") from None
    if isinstance(body, NewChannelBody) and body.type not in switches.known_channel_types:
        raise invalid_field("type", f"must be one of: {', '.join(switches.known_channel_types)}")
    for name, limit in limits_under(model, switches).items():
        if len(getattr(body, name) or "") > limit:
            shown = callback_fields(model, switches)[0] if name == "callback_url" else to_camel(name)
            raise invalid_field(shown, f"must have at most {limit} characters")
    return body
