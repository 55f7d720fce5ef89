"""How a command ends: the exit status of each error, and what to do about it. Knows no terminal."""

from __future__ import annotations

from enum import IntEnum

from momopay.errors import (
    APIConnectionError,
    APIError,
    BudgetExhaustedError,
    ChannelNotFoundError,
    ConfigurationError,
    DuplicatePayoutError,
    InsufficientFundsError,
    InsufficientServiceBalanceError,
    InvalidApiKeyError,
    InvalidPhoneError,
    JournalError,
    KycNotVerifiedError,
    MomoPayError,
    NoDefaultChannelError,
    NoPaymentChannelsError,
    ProtocolError,
    RequestValidationError,
    ServerError,
    ThrottledError,
    TransactionNotFoundError,
    WaitTimeoutError,
)


class ExitCode(IntEnum):
    """The exit statuses."""

    OK = 0
    REFUSED = 1
    USAGE = 2
    CONFIGURATION = 3
    UNKNOWN = 4
    PARTLY = 5
    LATER = 6
    BUG = 70
    INTERRUPTED = 130


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


_EXTRAS = {
    "fastapi": "sandbox",
    "filelock": "journal",
    "psycopg": "journal",
    "sqlalchemy": "journal",
    "starlette": "sandbox",
    "uvicorn": "sandbox",
}

_CODES: tuple[tuple[tuple[type[MomoPayError], ...], ExitCode], ...] = (
    ((WaitTimeoutError,), ExitCode.LATER),
    ((RequestValidationError,), ExitCode.USAGE),
    ((ConfigurationError, JournalError, InvalidApiKeyError), ExitCode.CONFIGURATION),
)
_CODES_WHEN_NOTHING_MOVED: tuple[tuple[tuple[type[MomoPayError], ...], ExitCode], ...] = (
    ((APIConnectionError, BudgetExhaustedError, ServerError, ThrottledError), ExitCode.LATER),
    ((ProtocolError,), ExitCode.CONFIGURATION),
)

_REMEDIES: dict[type[MomoPayError], str] = {
    InvalidApiKeyError: "take a valid key from the account console, and set MOMOPAY_API_KEY to it",
    InsufficientFundsError: "fund the B2C wallet, then run the command again",
    InsufficientServiceBalanceError: "top up the service wallet, then run the command again",
    KycNotVerifiedError: "finish KYC in the account console",
    InvalidPhoneError: "ask for the number again",
    NoPaymentChannelsError: "create a payment channel in the account console or with channels.create",
    NoDefaultChannelError: "give --channel, or make a channel the default; `momopay channels` lists them",
    ChannelNotFoundError: "`momopay channels` lists the channels of this account",
    TransactionNotFoundError: "check the id, and that the key is of the same account",
    DuplicatePayoutError: "give each payout a reference of its own",
    WaitTimeoutError: "it may still succeed: look again with `momopay transactions wait`, and do not pay it again",
    ConfigurationError: "mend the set-up; `momopay doctor` checks all of it",
    RequestValidationError: "mend the arguments; nothing was sent",
    JournalError: "mend the journal's database; this command sent nothing that the journal does not know",
    BudgetExhaustedError: "try again later: the rate budget of the key is used up",
    ThrottledError: "try again after the pause",
    ProtocolError: "check the base URL, and what stands between here and there",
    APIConnectionError: "try again later; `momopay doctor` shows how far the way goes",
    ServerError: "try again later",
}
_IN_DOUBT = (
    "do not send it again: look for it with `momopay transactions list --q REFERENCE`, and in the account console"
)


def exit_code_of(error: MomoPayError) -> ExitCode:
    """Give the exit status that an error ends a command with."""
    if isinstance(error, CommandError):
        return error.code
    table = _CODES if error.may_have_executed else (*_CODES, *_CODES_WHEN_NOTHING_MOVED)
    fallback = ExitCode.UNKNOWN if error.may_have_executed else ExitCode.REFUSED
    return next((code for kinds, code in table if isinstance(error, kinds)), fallback)


def remedy_of(error: MomoPayError) -> str | None:
    """Say what to do about an error."""
    if isinstance(error, CommandError):
        return error.remedy
    if exit_code_of(error) is ExitCode.UNKNOWN:
        return _IN_DOUBT
    remedy = next((_REMEDIES[kind] for kind in type(error).__mro__ if kind in _REMEDIES), None)
    pause = getattr(error, "retry_after", None)
    return f"{remedy} ({pause:.0f} s)" if remedy and pause else remedy


def missing_extra(error: ModuleNotFoundError) -> CommandError | None:
    """Tell which extra a missing module belongs to; None if it is none of ours."""
    extra = _EXTRAS.get((error.name or "").partition(".")[0])
    if extra is None:
        return None
    return CommandError(
        f"this command needs the extra {extra!r}",
        remedy=f"pip install 'momopay[cli,{extra}]'",
        code=ExitCode.CONFIGURATION,
    )


def request_id_of(error: MomoPayError) -> str | None:
    """Give the service's id of the request that failed, to quote to its support."""
    return error.request_id if isinstance(error, APIError) else None
