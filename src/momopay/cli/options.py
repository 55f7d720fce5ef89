"""The options that several commands share. The key is not among them: other users of the machine see arguments."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, TypeAlias

import typer

from momopay.cli.times import use_utc
from momopay.errors import RequestValidationError
from momopay.phones import normalise_phone

_DECIMALS = 2
# A year, in seconds.
_LONGEST = 366 * 24 * 60 * 60
_NUMBERS = {3: "three", 4: "four", 5: "five", 6: "six"}


def amount(value: str | Decimal) -> Decimal:
    """Parse an amount of KES.

    Args:
        value: What was typed; or a default, which typer passes through its parser too.

    Raises:
        typer.BadParameter: It is not a number, or has more decimals than a currency of cents.
    """
    text = str(value)
    try:
        # Decimal reads other scripts' digits and 1_000 too; an amount is what everybody reads as the same number.
        parsed = Decimal(text if text.isascii() and "_" not in text else "")
        # int fails at NaN and infinity, normalize at a number such as 1e999999999.
        decimals = -int(parsed.normalize().as_tuple().exponent)
    except (ArithmeticError, ValueError) as error:
        raise typer.BadParameter("must be an amount in KES, such as 100 or 99.50, without commas") from error
    if decimals > _DECIMALS:
        count = _NUMBERS.get(decimals, str(decimals))
        raise typer.BadParameter(f"{text} has {count} decimals; KES has two")
    return parsed


def whole_phone(text: str) -> str:
    """Return a phone number as the service has it.

    Raises:
        RequestValidationError: It is none; the error names the option.
    """
    try:
        return normalise_phone(text)
    except ValueError as error:
        raise RequestValidationError({"phone": str(error)}) from error


def finite(seconds: float | None) -> float | None:
    """Return the seconds; the callback of options that wait.

    Raises:
        typer.BadParameter: They are more than any clock counts.
    """
    if seconds is not None and seconds > _LONGEST:
        raise typer.BadParameter(f"must be at most {_LONGEST:,} seconds")
    return seconds


Json: TypeAlias = Annotated[bool, typer.Option("--json", help="JSON on stdout, for machines.")]
BaseUrl: TypeAlias = Annotated[
    str | None,
    typer.Option("--base-url", metavar="URL", envvar="MOMOPAY_BASE_URL", help="The service's address, ending in /v1."),
]
ShowPhones: TypeAlias = Annotated[bool, typer.Option("--show-phones", help="Show phones whole, not masked.")]
Utc: TypeAlias = Annotated[
    bool,
    typer.Option("--utc", callback=use_utc, help="Times are of UTC, not of Nairobi."),
]
JournalAt: TypeAlias = Annotated[
    str,
    typer.Option(
        "--journal",
        metavar="FILE|URL",
        envvar="MOMOPAY_JOURNAL",
        help="The account's journal: an SQLite file, or a postgresql+psycopg:// URL.",
    ),
]
MaybeJournalAt: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--journal", metavar="FILE|URL", envvar="MOMOPAY_JOURNAL", help="The account's journal, if it has one."
    ),
]
JournalAccount: TypeAlias = Annotated[
    str,
    typer.Option(
        "--account",
        metavar="NAME",
        envvar="MOMOPAY_JOURNAL_ACCOUNT",
        help="The account's name in the journal, if the journal serves several.",
    ),
]
ConfirmLive: TypeAlias = Annotated[
    Decimal | None,
    typer.Option(
        "--confirm-live",
        metavar="TOTAL",
        parser=amount,
        help="For scripts, with a live key too: the exact sum, KES, that may move.",
    ),
]
Timeout: TypeAlias = Annotated[
    float,
    typer.Option("--timeout", metavar="SECONDS", min=1, callback=finite, help="Give up waiting after this long."),
]
# The minimum keeps one wait from using up the rate budget of the key for more than a few seconds.
Every: TypeAlias = Annotated[
    float,
    typer.Option(
        "--every",
        metavar="SECONDS",
        min=0.1,
        callback=finite,
        help="Time between polls; a new prompt is first polled after one and a half times this.",
    ),
]
