"""How a command ends: the exit status of each error, and what to do about it. Pure.

Every command loads this module, so it loads nothing but the errors.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Self

from momopay.errors import (
    APIConnectionError,
    APIError,
    BudgetExhaustedError,
    CallbackError,
    CallbackMismatchError,
    ChannelInUseError,
    ChannelNotFoundError,
    ConfigurationError,
    DuplicateCollectionError,
    DuplicatePayoutError,
    ForgedCallbackError,
    InsufficientFundsError,
    InsufficientServiceBalanceError,
    InvalidApiKeyError,
    InvalidCallbackError,
    InvalidPhoneError,
    JournalError,
    KycNotVerifiedError,
    MomoPayError,
    NoDefaultChannelError,
    NoPaymentChannelsError,
    OutcomeUnknownError,
    ProtocolError,
    RateLimitExceededError,
    RequestValidationError,
    ServerError,
    StkTempBannedError,
    ThrottledError,
    TransactionHealthBlockedError,
    TransactionNotFoundError,
    WaitTimeoutError,
)


class ExitCode(IntEnum):
    """The exit statuses, each with its meaning as the help shows it."""

    meaning: str

    def __new__(cls, value: int, meaning: str) -> Self:
        """Make a member that is an int and carries its meaning."""
        code = int.__new__(cls, value)
        code._value_ = value
        code.meaning = meaning
        return code

    # 70 is EX_SOFTWARE of sysexits.h; 130 is what shells give for SIGINT.
    OK = 0, "done"
    REFUSED = 1, "refused, or ended without success"
    USAGE = 2, "wrong arguments or a faulty file; nothing was sent"
    CONFIGURATION = 3, "wrong set-up: key, address, journal, extras"
    UNKNOWN = 4, "the outcome is unknown: money may have moved"
    PARTIAL = 5, "a payroll done in part; the rest was not paid"
    TRY_LATER = 6, "not now: not reached, throttled, or not ended in time"
    BUG = 70, "a bug"
    INTERRUPTED = 130, "interrupted (143 by SIGTERM)"


class CommandError(MomoPayError):
    """What a command itself refuses. Nothing was sent.

    Attributes:
        remedy: What to do about it.
        code: The exit status.
    """

    def __init__(self, message: str, *, remedy: str, code: ExitCode = ExitCode.USAGE) -> None:
        super().__init__(message)
        self.remedy = remedy
        self.code = code


def exit_code_of(error: MomoPayError) -> ExitCode:
    """Return the exit status for an error."""
    match error:
        case CommandError():
            code = error.code
        # Before the question whether money may have moved: a wait sent nothing, and the journal keeps what is in doubt.
        case WaitTimeoutError():
            code = ExitCode.TRY_LATER
        case RequestValidationError():
            code = ExitCode.USAGE
        case ConfigurationError() | JournalError() | InvalidApiKeyError():
            code = ExitCode.CONFIGURATION
        case MomoPayError(may_have_executed=True):
            code = ExitCode.UNKNOWN
        case APIConnectionError() | BudgetExhaustedError() | ServerError() | ThrottledError():
            code = ExitCode.TRY_LATER
        case ProtocolError():
            code = ExitCode.CONFIGURATION
        case _:
            code = ExitCode.REFUSED
    return code


_OUTCOME_UNKNOWN = (
    "do not send it again: look for it with `momopay transactions list --q REFERENCE`, and in the account console"
)
# One line for each class; a class without one has that of its base. The library's docstrings speak to programmers.
REMEDIES: dict[type[MomoPayError], str] = {
    MomoPayError: "read the message; `momopay --debug ...` shows more",
    ConfigurationError: "fix the set-up that the message names; `momopay doctor` checks key, address and journal",
    RequestValidationError: "correct what the message names; nothing was sent",
    CallbackError: "do not act on this callback; read the transaction with `momopay transactions get`",
    InvalidCallbackError: "do not act on it: answer 400; the service sends JSON with an id, a status and an event type",
    ForgedCallbackError: "do not act on it: answer 403; check that both sides have the same callback secret",
    CallbackMismatchError: "do not act on it; `momopay transactions get` shows what the service knows",
    APIConnectionError: "try again later; `momopay doctor` shows how far a request gets",
    BudgetExhaustedError: "wait, then run the command again; other programs use up the minute's requests of this key",
    OutcomeUnknownError: _OUTCOME_UNKNOWN,
    ProtocolError: "check MOMOPAY_BASE_URL and the proxies on the way to it; `momopay doctor` shows what answers",
    WaitTimeoutError: "it may still succeed: `momopay transactions wait` waits on; do not pay it again",
    DuplicatePayoutError: "use a new reference; `momopay journal show REFERENCE` shows the earlier payout",
    DuplicateCollectionError: "use a new reference; `momopay journal show REFERENCE` shows the earlier order",
    JournalError: "fix the database, then run the same command again; `momopay journal check` tests it",
    APIError: "the message says why; give the request id to the service's support",
    InvalidPhoneError: "check the number with its owner; the service does not recognise it",
    NoPaymentChannelsError: "create a payment channel in the account console or with channels.create",
    NoDefaultChannelError: "give --channel, or make a channel the default; `momopay channels` lists them",
    ChannelNotFoundError: "check --channel; `momopay channels` lists the channels of this account",
    InvalidApiKeyError: "set MOMOPAY_API_KEY to a valid key from the account console",
    InsufficientServiceBalanceError: "top up the service wallet, then run the command again",
    KycNotVerifiedError: "complete KYC in the account console; payouts are refused until it is approved",
    InsufficientFundsError: "fund the B2C wallet in the account console, then run the command again",
    ChannelInUseError: "keep the channel; one with transactions or customers cannot be deleted",
    TransactionNotFoundError: "check the id, and that the key is of the same account",
    ThrottledError: "wait, then run the command again",
    RateLimitExceededError: "wait, then run the command again; share one rate budget among programs with this key",
    StkTempBannedError: "wait before the next prompt, and send fewer that fail; payouts and reads still work",
    TransactionHealthBlockedError: "wait, and find out why prompts fail: `momopay transactions list --type STK`",
    ServerError: "try again later",
}


def remedy_of(error: MomoPayError) -> str:
    """Return what to do about an error, in one line."""
    if isinstance(error, CommandError):
        return error.remedy
    if exit_code_of(error) is ExitCode.UNKNOWN:
        return _OUTCOME_UNKNOWN
    remedy = next(REMEDIES[kind] for kind in type(error).__mro__ if kind in REMEDIES)
    pause = getattr(error, "retry_after", None)
    return remedy + (f" ({pause:.0f} s)" if pause else "")


_EXTRAS = {
    "fastapi": "sandbox",
    "filelock": "journal",
    "psycopg": "journal",
    "sqlalchemy": "journal",
    "starlette": "sandbox",
    "uvicorn": "sandbox",
}


def missing_extra(error: ModuleNotFoundError) -> CommandError | None:
    """Return an error that names the extra which a missing module belongs to; None if it is none of ours."""
    extra = _EXTRAS.get((error.name or "").partition(".")[0])
    if extra is None:
        return None
    return CommandError(
        f"this command needs the extra {extra!r}",
        remedy=f"pip install 'momopay[cli,{extra}]'",
        code=ExitCode.CONFIGURATION,
    )
