"""The exit status and the remedy of every error of the library."""

import re
from datetime import UTC, datetime
from typing import Any

import momopay
import momopay.errors
from cli.kit import COMMANDS
from in_turn import in_turn
from momopay.cli.exit_codes import CommandError, ExitCode, exit_code_of, remedy_of

ANSWER: Any = {"code": "X", "status_code": 500}
UNKNOWN = momopay.OutcomeUnknownError("it may be paid", sent_at=datetime.now(UTC))


@in_turn(
    ("error", "code"),
    [
        (momopay.APIError("no", **ANSWER), ExitCode.REFUSED),
        (momopay.InsufficientFundsError("no", **ANSWER), ExitCode.REFUSED),
        (momopay.RequestValidationError({"amount": "no"}), ExitCode.USAGE),
        (momopay.ConfigurationError("no"), ExitCode.CONFIGURATION),
        (momopay.JournalError("no"), ExitCode.CONFIGURATION),
        (momopay.InvalidApiKeyError("no", **ANSWER), ExitCode.CONFIGURATION),
        (momopay.ProtocolError("no"), ExitCode.CONFIGURATION),
        (UNKNOWN, ExitCode.UNKNOWN),
        (momopay.ProtocolError("no", may_have_executed=True), ExitCode.UNKNOWN),
        (momopay.APIConnectionError("no", may_have_executed=True), ExitCode.UNKNOWN),
        (momopay.ServerError("no", may_have_executed=True, **ANSWER), ExitCode.UNKNOWN),
        (momopay.APIConnectionError("no"), ExitCode.TRY_LATER),
        (momopay.BudgetExhaustedError("no", retry_after=3), ExitCode.TRY_LATER),
        (momopay.ServerError("no", **ANSWER), ExitCode.TRY_LATER),
        (momopay.RateLimitExceededError("no", **ANSWER), ExitCode.TRY_LATER),
        (momopay.WaitTimeoutError("no", last=None, pending=()), ExitCode.TRY_LATER),
        (CommandError("no", remedy="yes"), ExitCode.USAGE),
        (CommandError("no", remedy="yes", code=ExitCode.PARTIAL), ExitCode.PARTIAL),
    ],
)
def test_the_exit_status_of_an_error(error: momopay.MomoPayError, code: ExitCode) -> None:
    assert exit_code_of(error) is code


def test_every_error_has_a_remedy_of_its_own_in_one_line() -> None:
    errors: list[type[momopay.MomoPayError]] = [
        getattr(momopay, name) for name in momopay.__all__ if name.endswith("Error")
    ]
    assert len({kind.remedy for kind in errors}) == len(errors) > 20
    # It continues a line, without a full stop.
    remedies = [remedy_of(kind.__new__(kind)) for kind in errors]
    assert [each for each in remedies if not re.fullmatch(r"[a-z].{9,157}[^.]", each)] == []


def test_the_remedies_name_commands_that_exist() -> None:
    remedies = [getattr(kind, "remedy", "") for kind in vars(momopay.errors).values()]
    named = {name for remedy in remedies for name in re.findall(r"`momopay ([a-z ]+)", str(remedy))}
    assert len(named) > 5
    assert [name for name in named if name.strip() not in COMMANDS] == []


def test_the_remedy_of_what_may_have_been_paid_and_of_a_pause() -> None:
    for error in (UNKNOWN, momopay.ServerError("no", may_have_executed=True, **ANSWER)):
        assert "do not send it again" in remedy_of(error)
    assert "do not send it again" not in remedy_of(momopay.ServerError("no", **ANSWER))
    assert remedy_of(momopay.RateLimitExceededError("no", retry_after=17.2, **ANSWER)).endswith("(17 s)")
    assert "(" not in remedy_of(momopay.RateLimitExceededError("no", **ANSWER))
    assert remedy_of(CommandError("no", remedy="do it")) == "do it"
