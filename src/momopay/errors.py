"""Everything that momopay raises.

    MomoPayError
    |- ConfigurationError         key, address, options, CA file, journal or callback secret that cannot work
    |- RequestValidationError     also ValueError; refused here, nothing was sent
    |- CallbackError
    |  |- InvalidCallbackError    also ValueError; the body is not a callback
    |  |- ForgedCallbackError     the token of the callback URL is missing or wrong
    |  `- CallbackMismatchError   the service's own record differs
    |- APIConnectionError         no response; the call is safe to repeat or was not sent
    |- BudgetExhaustedError       no slot in the rate budget in time; not sent
    |- OutcomeUnknownError        a payment, top-up or channel creation may have executed
    |- ProtocolError              a response that is not the service's
    |- WaitTimeoutError           also TimeoutError
    |- DuplicatePayoutError, DuplicateCollectionError
    |                             the same reference was used before with another amount or phone
    |- JournalError               the journal's database failed
    `- APIError                   the service refused; one class for each of its codes
       |- InvalidPhoneError, NoPaymentChannelsError, NoDefaultChannelError,
       |  ChannelNotFoundError, InvalidApiKeyError, InsufficientServiceBalanceError,
       |  KycNotVerifiedError, InsufficientFundsError, ChannelInUseError,
       |  TransactionNotFoundError
       |- ThrottledError          refused for a time
       |  `- RateLimitExceededError, StkTempBannedError, TransactionHealthBlockedError
       `- ServerError             5xx or 408, after all attempts

Every error pickles, shows neither the key nor a whole phone, and says in `may_have_executed` whether the request may
have taken effect (True: money may have moved, or that is not known; False: no money moved). Times are in seconds.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from momopay._redaction import redact
from momopay.money import is_number

if TYPE_CHECKING:  # nearly every module imports this one, so it does not load pydantic
    from momopay.models.transactions import Transaction, TransactionSummary, UnreadTransaction
else:  # for `typing.get_type_hints`
    Transaction = TransactionSummary = UnreadTransaction = Any

# Control characters and direction overrides, which could forge a line of a log or move a terminal's cursor.
_CONTROLS: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


class MomoPayError(Exception):
    """The base class of every error of this package.

    Attributes:
        message: What happened and what to do about it; keys and phones in it are masked.
        may_have_executed: Whether the request may have taken effect, so that money may have moved.
        remedy: What a person at a terminal can do about an error of this class, in one line.
        pending: From a wait: the ids of all transactions whose end it did not return.
    """

    may_have_executed: bool = False
    pending: tuple[str, ...] = ()
    remedy: str = "read the message; `momopay --debug ...` shows more"

    def __init__(self, message: str) -> None:
        self.message: str = _shown(message)
        super().__init__(self.message)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the error by its state, because the constructors take keyword arguments."""
        # `args` is state, too: TimeoutError sets it in its __init__, which unpickling does not call.
        return type(self).__new__, (type(self),), {"args": self.args, **self.__dict__}


def _shown(text: str) -> str:
    # On one line and redacted, because some of the text may be from the service.
    return redact(_CONTROLS.sub(" ", text))


class ConfigurationError(MomoPayError):
    """The client is configured or used in a way that cannot work. Nothing was sent. Fix the configuration."""

    remedy = "fix the set-up that the message names; `momopay doctor` checks key, address and journal"


class RequestValidationError(MomoPayError, ValueError):
    """Arguments that the service would refuse. They were refused here and nothing was sent. Fix the arguments.

    Attributes:
        fields: What is wrong with each argument at fault, by its Python name, without the value.
    """

    remedy = "correct what the message names; nothing was sent"

    def __init__(self, fields: Mapping[str, str]) -> None:
        self.fields: dict[str, str] = dict(fields)
        super().__init__("; ".join(f"{name}: {message}" for name, message in self.fields.items()))


class CallbackError(MomoPayError):
    """A callback that you must not act on."""

    remedy = "do not act on this callback; read the transaction with `momopay transactions get`"


class InvalidCallbackError(CallbackError, ValueError):
    """The body is not a callback (service page, "Callbacks"). Respond with 400 and do nothing."""

    remedy = "do not act on it: answer 400; the service sends JSON with an id, a status and an event type"


class ForgedCallbackError(CallbackError):
    """The callback URL carries no valid token. Respond with 403 and do nothing."""

    remedy = "do not act on it: answer 403; check that both sides have the same callback secret"


class CallbackMismatchError(CallbackError):
    """The callback and the service's own record differ.

    Respond with a status other than 2xx, so that a genuine callback that came too early is delivered again.

    Attributes:
        transaction_id: The transaction that the callback is about.
        fields: The names of the fields that differ.
    """

    remedy = "do not act on it; `momopay transactions get` shows what the service knows"

    def __init__(self, message: str, *, transaction_id: str, fields: Sequence[str]) -> None:
        super().__init__(message)
        self.transaction_id = transaction_id
        self.fields: tuple[str, ...] = tuple(fields)


class APIConnectionError(MomoPayError):
    """The service was not reached, or did not respond to a call that is safe to repeat. Try again later."""

    remedy = "try again later; `momopay doctor` shows how far a request gets"

    def __init__(self, message: str, *, may_have_executed: bool = False) -> None:
        super().__init__(message)
        self.may_have_executed = may_have_executed


class BudgetExhaustedError(MomoPayError):
    """The rate budget has no slot within the deadline, or within the client's `max_wait`. Nothing was sent.

    Call again after `retry_after`.

    Attributes:
        retry_after: Seconds until the next slot.
    """

    remedy = "wait, then run the command again; other programs use up the minute's requests of this key"

    def __init__(self, message: str, *, retry_after: float) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class OutcomeUnknownError(MomoPayError):
    """A payment, top-up or channel creation was sent and its outcome is unknown: money may have moved.

    Do not send it again. Search for it with ``transactions.find(reference=..., since=error.sent_at)``, read it with
    ``transactions.get(error.transaction_id)`` if the id is known, or repeat a top-up with ``error.idempotency_key``.

    Attributes:
        reference: The caller's reference, if there is one.
        amount: The amount, KES.
        phone: The whole number, ``254XXXXXXXXX``. It is masked where the error is shown.
        sent_at: When the request was first passed to the network, UTC.
        transaction_id: The id, if it was in a part of the response.
        idempotency_key: The key of a top-up.
        matches: The transactions that fit, if a search found several.
        near_matches: What has the reference and differs otherwise, or cannot be read. Compare by eye: it may be this.
    """

    remedy = (
        "do not send it again: look for it with `momopay transactions list --q REFERENCE`, and in the account console"
    )

    may_have_executed = True

    def __init__(
        self,
        message: str,
        *,
        sent_at: datetime,
        reference: str | None = None,
        amount: Decimal | None = None,
        phone: str | None = None,
        transaction_id: str | None = None,
        idempotency_key: str | None = None,
        matches: Sequence[TransactionSummary] = (),
        near_matches: Sequence[TransactionSummary | UnreadTransaction] = (),
    ) -> None:
        super().__init__(message)
        self.reference = reference
        self.amount = amount
        self.phone = phone
        self.sent_at = sent_at
        self.transaction_id = transaction_id
        self.idempotency_key = idempotency_key
        self.matches: tuple[TransactionSummary, ...] = tuple(matches)
        self.near_matches: tuple[TransactionSummary | UnreadTransaction, ...] = tuple(near_matches)


class ProtocolError(MomoPayError):
    """The response is not the service's: HTML from a proxy, a redirect, broken JSON, missing data.

    Check base_url and the proxies on the way to it.

    Attributes:
        status_code: The HTTP status, None where no single response is at fault.
    """

    remedy = "check MOMOPAY_BASE_URL and the proxies on the way to it; `momopay doctor` shows what answers"

    def __init__(self, message: str, *, status_code: int | None = None, may_have_executed: bool = False) -> None:
        super().__init__(message)
        self.status_code = status_code
        self.may_have_executed = may_have_executed


class WaitTimeoutError(MomoPayError, TimeoutError):
    """The limit of a wait passed and the transaction has not ended. It may still succeed, so read it again later.

    Attributes:
        last: The last Transaction read, None if no read succeeded.
    """

    remedy = "it may still succeed: `momopay transactions wait` waits on; do not pay it again"
    may_have_executed = True

    def __init__(self, message: str, *, last: Transaction | None, pending: Sequence[str]) -> None:
        super().__init__(message)
        self.last = last
        self.pending: tuple[str, ...] = tuple(pending)


class DuplicatePayoutError(MomoPayError):
    """The reference was used before for another amount or phone. This call sent nothing. Use another reference.

    Attributes:
        reference: The reference of the earlier payout.
    """

    remedy = "use a new reference; `momopay journal show REFERENCE` shows the earlier payout"

    def __init__(self, message: str, *, reference: str) -> None:
        super().__init__(message)
        self.reference = reference


class DuplicateCollectionError(MomoPayError):
    """The reference is another order's, or a prompt is open on another phone: wait for its end. Nothing was sent.

    Attributes:
        reference: The reference of the order.
    """

    remedy = "wait while its prompt is open on another phone; `momopay journal show REFERENCE` shows the earlier order"

    def __init__(self, message: str, *, reference: str) -> None:
        super().__init__(message)
        self.reference = reference


class JournalError(MomoPayError):
    """The journal cannot be read or written. This call sent nothing. Fix the database, then call again.

    `may_have_executed` is False only where the journal had shown that nothing was sent before. If it could not be read,
    an earlier call may have paid.
    """

    remedy = "fix the database, then run the same command again; `momopay journal check` tests it"

    may_have_executed = True


class APIError(MomoPayError):
    """The service responded with its error envelope. No money moved, unless `may_have_executed` is True.

    Attributes:
        code: The machine-readable code (service page, "Errors"), None where a server error has none.
        details: The structured details of the envelope, often empty.
        status_code: The HTTP status.
        request_id: The service's id of the request. Give it to the service's support.
    """

    remedy = "the message says why; give the request id to the service's support"

    def __init__(
        self,
        message: str,
        *,
        code: str | None,
        status_code: int,
        details: Mapping[str, Any] | None = None,
        request_id: str | None = None,
        may_have_executed: bool = False,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.details: dict[str, Any] = dict(details or {})
        self.status_code = status_code
        self.request_id = request_id
        self.may_have_executed = may_have_executed

    def __str__(self) -> str:
        request = f", request {self.request_id}" if self.request_id else ""
        return _shown(f"{self.code or 'no code'}: {self.message} (HTTP {self.status_code}{request})")


class InvalidPhoneError(APIError):
    """INVALID_PHONE: the service does not recognise the phone's format. Ask for the number again."""

    remedy = "check the number with its owner; the service does not recognise it"


class NoPaymentChannelsError(APIError):
    """NO_PAYMENT_CHANNELS: the account has no channel. Create one with ``channels.create``."""

    remedy = "create a payment channel in the account console or with channels.create"


class NoDefaultChannelError(APIError):
    """NO_DEFAULT_CHANNEL: pass ``channel_id``, or make a channel the default."""

    remedy = "give --channel, or make a channel the default; `momopay channels` lists them"


class ChannelNotFoundError(APIError):
    """CHANNEL_NOT_FOUND: the channel is not on the account, or was deleted. List the channels."""

    remedy = "check --channel; `momopay channels` lists the channels of this account"


class InvalidApiKeyError(APIError):
    """INVALID_API_KEY: the key is missing, wrong or revoked; or another code with status 401, see the message."""

    remedy = "set MOMOPAY_API_KEY to a valid key from the account console"


class InsufficientServiceBalanceError(APIError):
    """INSUFFICIENT_SERVICE_BALANCE: the service wallet cannot cover the fee. Use ``wallet.top_up``."""

    remedy = "top up the service wallet, then run the command again"


class KycNotVerifiedError(APIError):
    """KYC_NOT_VERIFIED: complete KYC in the account console; or another code with status 403, see the message."""

    remedy = "complete KYC in the account console; payouts are refused until it is approved"


class InsufficientFundsError(APIError):
    """INSUFFICIENT_FUNDS: the balance of the B2C wallet is too low. Fund it, then pay again."""

    remedy = "fund the B2C wallet in the account console, then run the command again"


class ChannelInUseError(APIError):
    """CHANNEL_IN_USE: the channel has transactions or customers and cannot be deleted."""

    remedy = "keep the channel; one with transactions or customers cannot be deleted"


class TransactionNotFoundError(APIError):
    """TRANSACTION_NOT_FOUND, or INVALID_UUID of a read: the account has no transaction with that id.

    Attributes:
        transaction_id: The id that was read, None where none was.
    """

    remedy = "check the id, and that the key is of the same account"
    transaction_id: str | None = None


class ThrottledError(APIError):
    """The service refuses requests for a time.

    Attributes:
        retry_after: Seconds to wait, None where the service stated none.
    """

    remedy = "wait, then run the command again"

    def __init__(self, message: str, *, retry_after: float | None = None, **of_response: Any) -> None:
        super().__init__(message, **of_response)
        self.retry_after = retry_after


class RateLimitExceededError(ThrottledError):
    """RATE_LIMIT_EXCEEDED, or an unknown code with status 429: too many requests. Share one budget among processes."""

    remedy = "wait, then run the command again; share one rate budget among programs with this key"


class StkTempBannedError(ThrottledError):
    """STK_TEMP_BANNED: too many unsuccessful prompts with this key. Wait. Payouts and reads still work."""

    remedy = "wait before the next prompt, and send fewer that fail; payouts and reads still work"


class TransactionHealthBlockedError(ThrottledError):
    """TRANSACTION_HEALTH_BLOCKED: too few of the last 100 prompts succeeded. Wait, and find the cause."""

    remedy = "wait, and find out why prompts fail: `momopay transactions list --type STK`"

    @property
    def blocked_until(self) -> datetime | None:
        """The end of the pause."""
        return moment_or_none(self.details.get("blockedUntil"))


class ServerError(APIError):
    """5xx or 408, after all attempts. Try again later; `may_have_executed` says whether it may have taken effect."""

    remedy = "try again later"


# The class for each code (service page, "Errors").
ERRORS_BY_CODE: Mapping[str, type[APIError]] = {
    "INVALID_PHONE": InvalidPhoneError,
    "NO_PAYMENT_CHANNELS": NoPaymentChannelsError,
    "NO_DEFAULT_CHANNEL": NoDefaultChannelError,
    "CHANNEL_NOT_FOUND": ChannelNotFoundError,
    "INVALID_API_KEY": InvalidApiKeyError,
    "INSUFFICIENT_SERVICE_BALANCE": InsufficientServiceBalanceError,
    "KYC_NOT_VERIFIED": KycNotVerifiedError,
    "INSUFFICIENT_FUNDS": InsufficientFundsError,
    "CHANNEL_IN_USE": ChannelInUseError,
    "TRANSACTION_NOT_FOUND": TransactionNotFoundError,
    "RATE_LIMIT_EXCEEDED": RateLimitExceededError,
    "STK_TEMP_BANNED": StkTempBannedError,
    "TRANSACTION_HEALTH_BLOCKED": TransactionHealthBlockedError,
}


def number_or_none(value: object) -> float | None:
    """Return a finite, non-negative JSON number as a float, and None for anything else."""
    # Compared before the conversion, because an integer of hundreds of digits does not fit into a float.
    return float(value) if is_number(value) and 0 <= value <= sys.float_info.max else None


def moment_or_none(value: Any) -> datetime | None:
    """Return an ISO 8601 time, in UTC if it has no zone, and None for anything else."""
    try:
        when = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        return None
    return when if when.tzinfo else when.replace(tzinfo=UTC)


# Tracebacks name the errors as users import them: momopay.APIError, not momopay.errors.APIError.
for _kind in [value for value in globals().values() if isinstance(value, type) and issubclass(value, MomoPayError)]:
    _kind.__module__ = "momopay"
