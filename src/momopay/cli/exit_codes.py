"""The exit status of each error, and what to do about it. Every command loads this module, so it imports little."""

from __future__ import annotations

from enum import IntEnum
from typing import Self

from momopay import errors
from momopay.errors import MomoPayError, OutcomeUnknownError

MISSING_EXTRA = 'install the extras of momopay that you use: pip install "momopay[cli,journal,postgresql,sandbox]"'


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
    """An error that a command itself raises, with the exit status `code`."""

    def __init__(self, message: str, *, remedy: str, code: ExitCode = ExitCode.USAGE) -> None:
        super().__init__(message)
        self.remedy = remedy
        self.code = code


def exit_code_of(error: MomoPayError) -> ExitCode:
    """Return the exit status for an error."""
    match error:
        case CommandError():
            code = error.code
        # Before `may_have_executed`: a wait sends no payment, and the journal has what is unresolved.
        case errors.WaitTimeoutError():
            code = ExitCode.TRY_LATER
        case errors.RequestValidationError():
            code = ExitCode.USAGE
        case errors.ConfigurationError() | errors.JournalError() | errors.InvalidApiKeyError():
            code = ExitCode.CONFIGURATION
        case MomoPayError(may_have_executed=True):
            code = ExitCode.UNKNOWN
        case (
            errors.APIConnectionError() | errors.BudgetExhaustedError() | errors.ServerError() | errors.ThrottledError()
        ):
            code = ExitCode.TRY_LATER
        case errors.ProtocolError():
            code = ExitCode.CONFIGURATION
        case _:
            code = ExitCode.REFUSED
    return code


def remedy_of(error: MomoPayError) -> str:
    """Return what to do about an error, in one line."""
    # If a payment may have been made, not making it again comes first, whatever the error's class advises.
    is_unknown = exit_code_of(error) is ExitCode.UNKNOWN and not isinstance(error, CommandError)
    remedy = OutcomeUnknownError.remedy if is_unknown else error.remedy
    pause = getattr(error, "retry_after", None)
    return remedy + (f" ({pause:.0f} s)" if pause else "")
