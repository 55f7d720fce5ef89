"""The options that several commands share. The key is not among them: other users of the machine see arguments."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, TypeAlias

import typer
from typer import Option

import momopay
from momopay.cli.credentials import open_client, open_journal
from momopay.cli.exit_codes import CommandError
from momopay.cli.output import Output
from momopay.cli.times import use_utc
from momopay.errors import RequestValidationError
from momopay.phones import normalise_phone

_DECIMALS = 2
# A year, in seconds.
_LONGEST = 366 * 24 * 60 * 60
_NUMBERS = {3: "three", 4: "four", 5: "five", 6: "six"}


def amount(value: str | Decimal) -> Decimal:
    """Return an amount of KES as it was typed, or a default, which typer passes through its parser too."""
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
    """Return a phone number as the service has it; raise RequestValidationError if it is none."""
    try:
        return normalise_phone(text)
    except ValueError as error:
        raise RequestValidationError({"phone": str(error)}) from error


def finite(seconds: float | None) -> float | None:
    """Return the seconds; raise BadParameter if they are more than any clock counts. The callback of options."""
    if seconds is not None and seconds > _LONGEST:
        raise typer.BadParameter(f"must be at most {_LONGEST:,} seconds")
    return seconds


Json: TypeAlias = Annotated[bool, Option("--json", help="JSON on stdout, for machines.")]
BaseUrl: TypeAlias = Annotated[
    str | None,
    Option("--base-url", metavar="URL", envvar="MOMOPAY_BASE_URL", help="The service's address, ending in /v1."),
]
ShowPhones: TypeAlias = Annotated[bool, Option("--show-phones", help="Show phones whole, not masked.")]
Utc: TypeAlias = Annotated[bool, Option("--utc", callback=use_utc, help="Times are of UTC, not of Nairobi.")]
JournalAt: TypeAlias = Annotated[
    str | None,
    Option(
        "--journal",
        metavar="FILE|URL",
        envvar="MOMOPAY_JOURNAL",
        help="The account's journal: an SQLite file, or a postgresql+psycopg:// URL.",
    ),
]
JournalAccount: TypeAlias = Annotated[
    str,
    Option(
        "--account",
        metavar="NAME",
        envvar="MOMOPAY_JOURNAL_ACCOUNT",
        help="The account's name in the journal, if the journal serves several.",
    ),
]
Yes: TypeAlias = Annotated[bool, Option("--yes", help="With a test key: do not ask.")]
ConfirmLive: TypeAlias = Annotated[
    Decimal | None,
    Option(
        "--confirm-live",
        metavar="TOTAL",
        parser=amount,
        help="For scripts, with a live key too: the exact sum, KES, that may move.",
    ),
]
Wait: TypeAlias = Annotated[bool, Option("--wait", help="Wait until the money is where it will stay.")]
Timeout: TypeAlias = Annotated[
    float, Option("--timeout", metavar="SECONDS", min=1, callback=finite, help="Give up waiting after this long.")
]
# The minimum keeps one wait from using up the rate budget of the key for more than a few seconds.
Every: TypeAlias = Annotated[
    float,
    Option(
        "--every",
        metavar="SECONDS",
        min=0.1,
        callback=finite,
        help="Time between polls; a new prompt is first polled after one and a half times this.",
    ),
]


@dataclass(frozen=True, kw_only=True)
class DisplayOptions:
    """How results are shown: the options of every command."""

    show_phones: ShowPhones = False
    utc: Utc = False
    as_json: Json = False

    @property
    def output(self) -> Output:
        """What shows them."""
        return Output(self.as_json, self.show_phones)


@dataclass(frozen=True, kw_only=True)
class ServiceOptions(DisplayOptions):
    """The service, for a command that sends requests."""

    base_url: BaseUrl = None

    def client(self, journal: momopay.Journal | None = None, *, key: str | None = None) -> momopay.Client:
        """Return a client, whose durable calls use the journal; without a key, that of the environment."""
        return open_client(self.base_url, key=key, journal=journal)


@dataclass(frozen=True, kw_only=True)
class JournalOptions(DisplayOptions):
    """The journal, for a command that reads one."""

    journal: JournalAt = None
    account: JournalAccount = "default"

    def open_journal(self, *, create: bool = False) -> AbstractContextManager[momopay.Journal]:
        """Return the journal; only with `create` is there a new one where there was none."""
        if not self.journal:
            raise CommandError("no journal", remedy="give --journal FILE, or set MOMOPAY_JOURNAL")
        return open_journal(self.journal, self.account, create=create)


@dataclass(frozen=True, kw_only=True)
class AccountOptions(ServiceOptions, JournalOptions):
    """The service and the journal."""
