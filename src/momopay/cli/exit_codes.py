"""How a command ends: the exit status of each error, and what to do about it. Pure.

Every command loads this module, so it loads nothing but the errors.
"""

from __future__ import annotations

import re
from enum import IntEnum
from inspect import cleandoc
from typing import Self

from momopay.errors import (
    APIConnectionError,
    BudgetExhaustedError,
    ChannelNotFoundError,
    ConfigurationError,
    InsufficientServiceBalanceError,
    InvalidApiKeyError,
    JournalError,
    MomoPayError,
    NoDefaultChannelError,
    ProtocolError,
    RequestValidationError,
    ServerError,
    ThrottledError,
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


# Only where a command or an option of this program helps, or where the docstring of the error speaks to programmers.
REMEDIES: dict[type[MomoPayError], str] = {
    APIConnectionError: "try again later; `momopay doctor` shows how far a request gets",
    ChannelNotFoundError: "`momopay channels` lists the channels of this account",
    ConfigurationError: "fix the set-up; `momopay doctor` checks all of it",
    InsufficientServiceBalanceError: "top up the service wallet, then run the command again",
    NoDefaultChannelError: "give --channel, or make a channel the default; `momopay channels` lists them",
    ServerError: "try again later",
    TransactionNotFoundError: "check the id, and that the key is of the same account",
    WaitTimeoutError: "it may still succeed: `momopay transactions wait` waits on; do not pay it again",
}
_OUTCOME_UNKNOWN = (
    "do not send it again: look for it with `momopay transactions list --q REFERENCE`, and in the account console"
)


def remedy_of(error: MomoPayError) -> str:
    """Return what to do about an error; if nothing better is known, what the docstring of its class says."""
    if isinstance(error, CommandError):
        return error.remedy
    if exit_code_of(error) is ExitCode.UNKNOWN:
        return _OUTCOME_UNKNOWN
    remedy = next((REMEDIES[kind] for kind in type(error).__mro__ if kind in REMEDIES), None)
    pause = getattr(error, "retry_after", None)
    return (remedy or _documented(type(error))) + (f" ({pause:.0f} s)" if pause else "")


def _documented(kind: type[MomoPayError]) -> str:
    """Return a class's docstring as one line: without its list of attributes and without the service's code."""
    text = cleandoc(kind.__doc__ or "").partition("\n\nAttributes:")[0]
    remedy = re.sub(r"^[A-Z_]+: ", "", " ".join(text.split())).replace("``", "`")
    return remedy[:1].lower() + remedy[1:]


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
