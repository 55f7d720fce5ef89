"""The options that several commands share, and what is asked in their place: the key, and whether to pay.

The key is no option: other users of the machine see arguments.
"""

from __future__ import annotations

import getpass
import os
import select
import sys
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer
from typer import Option

import momopay
from momopay.cli.exit_codes import CommandError, ExitCode
from momopay.cli.output import Output, kes, plain, stderr, use_utc
from momopay.errors import RequestValidationError
from momopay.money import parse_amount
from momopay.phones import normalise_phone

KEY_REMEDY = "set MOMOPAY_API_KEY to a key from the account console, or to any pk_test_ key for the sandbox"
ADDRESS_REMEDY = (
    "set MOMOPAY_BASE_URL or give --base-url; for a trial, `momopay sandbox` runs the service at"
    " http://127.0.0.1:8787/v1"
)
# A year, in seconds.
_LONGEST = 366 * 24 * 60 * 60
_TEST_KEY = "pk_test_"
_SQLITE = b"SQLite format 3\0"  # how its files begin


def amount(value: str | Decimal) -> Decimal:
    """Return an amount of KES as it was typed, or a default, which typer passes through its parser too."""
    text = str(value)
    try:
        # Decimal reads other scripts' digits and 1_000 too; an amount is what everybody reads as the same number.
        parsed = Decimal(text if text.isascii() and "_" not in text else "")
    except ArithmeticError as error:
        raise typer.BadParameter("must be an amount in KES, such as 100 or 99.50, without commas") from error
    try:
        return parse_amount(parsed, 0)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


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


def flag(name: str, text: str) -> Any:
    """Return an option without a value."""
    return Option(name, help=text)


def kes_option(name: str, text: str) -> Any:
    """Return an option that takes an amount."""
    return Option(name, metavar="KES", parser=amount, help=text)


def seconds_option(text: str, least: float = 1) -> Any:
    """Return an option that takes seconds; its name is that of the parameter."""
    return Option(metavar="SECONDS", min=least, callback=finite, help=text)


def file_option(text: str) -> Any:
    """Return an option that takes a file which exists; its name is that of the parameter."""
    return Option(metavar="FILE", exists=True, dir_okay=False, help=text)


Json: TypeAlias = Annotated[bool, flag("--json", "JSON on stdout, for machines.")]
BaseUrl: TypeAlias = Annotated[
    str | None, Option(metavar="URL", envvar="MOMOPAY_BASE_URL", help="The service's address, ending in /v1.")
]
ShowPhones: TypeAlias = Annotated[bool, flag("--show-phones", "Show phones whole, not masked.")]
Utc: TypeAlias = Annotated[bool, Option("--utc", callback=use_utc, help="Times are of UTC, not of Nairobi.")]
JournalAt: TypeAlias = Annotated[
    str | None,
    Option(
        metavar="FILE|URL",
        envvar="MOMOPAY_JOURNAL",
        help="The account's journal: an SQLite file, or a postgresql+psycopg:// URL.",
    ),
]
JournalAccount: TypeAlias = Annotated[
    str, Option(metavar="NAME", envvar="MOMOPAY_JOURNAL_ACCOUNT", help="Its name in a journal that serves several.")
]
Yes: TypeAlias = Annotated[bool, flag("--yes", "With a test key: do not ask.")]
ConfirmLive: TypeAlias = Annotated[
    Decimal | None, kes_option("--confirm-live", "For scripts, with a live key too: the exact sum that may move.")
]
Wait: TypeAlias = Annotated[bool, flag("--wait", "Wait until the money is where it will stay.")]
Timeout: TypeAlias = Annotated[float, seconds_option("Give up waiting after this long.")]
# The minimum keeps one wait from using up the rate budget of the key for more than a few seconds.
Every: TypeAlias = Annotated[float, seconds_option("Time between polls; before the first, half as much more.", 0.1)]


def is_interactive() -> bool:
    """Return whether a person sits at a terminal."""
    return sys.stdin is not None and sys.stdin.isatty()


def has_input() -> bool:
    """Return, without waiting, whether a piped line or the end of the input can be read."""
    try:
        descriptor = sys.stdin.fileno()
    except (AttributeError, OSError):  # closed before the start, or text in memory
        return True
    try:
        return bool(select.select([descriptor], [], [], 0)[0])
    except OSError:  # on Windows, select knows sockets alone
        return False


def read_line() -> str | None:
    """Return a piped line without blanks around it; None at the end of the input, or if it cannot be read."""
    try:
        line = sys.stdin.readline()
    except (AttributeError, OSError, UnicodeDecodeError):  # closed before the start, unreadable, or not text
        return None
    return line.strip() if line else None


def ask_for_key() -> str:
    """Ask for the API key, and show nothing of what is typed; return "" if nobody answers."""
    if is_interactive():
        typed: str = typer.prompt("API key", hide_input=True, err=True)
        return typed.strip()
    # A line that is there already answers a question that need not be shown.
    if not has_input():
        stderr().print("API key:")
    return read_line() or ""


def find_key() -> str:
    """Return the key from the environment, or ask for it; "" if there is none."""
    # A variable that is set to nothing is the usual way to unset one in a script.
    return os.environ.get("MOMOPAY_API_KEY") or ask_for_key()


def api_key() -> str:
    """Return the key, or raise CommandError: there is none."""
    key = find_key()
    if not key:
        raise CommandError("no API key", remedy=KEY_REMEDY, code=ExitCode.CONFIGURATION)
    return key


def login_name() -> str | None:
    """Return the name of the user; None for an id without a name, as in a container."""
    try:
        return getpass.getuser()
    except (KeyError, ImportError, OSError):
        return None


def check_writable(path: Path | None, option: str, *used: Path | None) -> None:
    """Raise CommandError if a file cannot be written: to learn that after minutes of requests is too late.

    Also if it is one of `used`, or a database of SQLite, such as a journal: what it has would be lost.
    """
    if path is None:
        return
    remedy, is_database = "give a file that can be written", False
    try:
        if not path.exists():
            path.touch()
            path.unlink()  # an empty file would be taken for a result
        else:
            path.open("a").close()
            if path.is_file():  # no pipe, which would wait for a writer
                with path.open("rb") as file:
                    is_database = file.read(len(_SQLITE)) == _SQLITE
    except OSError as error:
        raise CommandError(f"{option} {plain(path)} cannot be written: {error.strerror}", remedy=remedy) from error
    if is_database or any(each is not None and _is_same(path, each) for each in used):
        what = "is a database, perhaps a journal" if is_database else "is used by this command"
        raise CommandError(f"{option} {plain(path)} {what}, and would be overwritten", remedy="give another file")


def _is_same(path: Path, other: Path) -> bool:
    """Return whether both name one file: also by a link, or, where the disk takes it for the same, in another case."""
    with suppress(OSError):  # one of them does not exist
        return path.samefile(other)
    return path.resolve() == other.resolve()


def journal_exists(where: str) -> bool:
    """Return whether there is a journal; of a database server this is not known before it is opened."""
    try:
        return "://" in where or Path(where).exists()
    except OSError:  # a name that no file can have, such as one of a thousand characters
        return False


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
        """Return a client, whose durable calls use the journal; raise CommandError if there is no key or address.

        Without a key, it is that of the environment.
        """
        if not self.base_url:
            raise CommandError("no base URL", remedy=ADDRESS_REMEDY, code=ExitCode.CONFIGURATION)
        # Passed on rather than left to the client, which knows the environment alone: the key may come from a pipe.
        return momopay.Client(api_key() if key is None else key, base_url=self.base_url, journal=journal)


@dataclass(frozen=True, kw_only=True)
class JournalOptions(DisplayOptions):
    """The journal, for a command that reads one."""

    journal: JournalAt = None
    account: JournalAccount = "default"

    def open_journal(self, *, create: bool = False) -> AbstractContextManager[momopay.Journal]:
        """Return the journal; only with `create` is there a new one where there was none."""
        where = self.journal
        if not where:
            raise CommandError("no journal", remedy="give --journal FILE, or set MOMOPAY_JOURNAL")
        # Before the library looks, which refuses it too: only here is it known that an option is wrong.
        if not (create or journal_exists(where)):
            raise CommandError(f"there is no journal at {where}", remedy="check --journal", code=ExitCode.CONFIGURATION)
        url: Any = where
        if "://" not in where:
            from sqlalchemy import URL  # an extra, which the other commands do without

            url = URL.create("sqlite", database=where)  # in a text, a ? would end the path
        return momopay.Journal(url, account=self.account, create=create)


@dataclass(frozen=True, kw_only=True)
class AccountOptions(ServiceOptions, JournalOptions):
    """The service and the journal."""


class Confirmation:
    """Whether a payment is agreed to: by the options, or else by an answer, typed or piped.

    What is not a test key counts as live. `yes` agrees for test keys alone, `confirm_live` if it is exactly what may
    move. Raise CommandError if it is another sum, or it is certain already that nobody will answer.
    """

    def __init__(self, key: str, *, may_move: Decimal, yes: bool, confirm_live: Decimal | None) -> None:
        if confirm_live is not None and confirm_live != may_move:
            raise CommandError(
                f"--confirm-live says KES {kes(confirm_live)}, and KES {kes(may_move)} may move",
                remedy="check the amounts; nothing was sent",
            )
        self._is_live = not key.startswith(_TEST_KEY)
        self._is_given = confirm_live is not None or (yes and not self._is_live)
        self._piped: str | None = None
        # Read a piped answer now: an empty pipe is an error before the first request, not in the middle of a run.
        if not self._is_given and not is_interactive() and has_input():
            self._piped = self._read()

    def ask(self, question: str, *, to_type: str) -> None:
        """Ask before money moves, unless the options agree; with a live key the answer must be `to_type`.

        Raise CommandError if the answer was no, or nobody answered; nothing was sent.
        """
        if self._is_given:
            return
        if self._is_live:
            stderr().print("This is a live key: real money will move.", style="bold red")
            agreed = self._answer(f"{question} Type {to_type} to go on") == to_type
        elif is_interactive():
            agreed = typer.confirm(question, err=True)
        else:
            agreed = self._answer(f"{question} [y/N]").lower() in {"y", "yes"}
        if not agreed:
            raise CommandError(
                "not confirmed, nothing was sent",
                remedy="run the command again, and answer as it asks",
                code=ExitCode.REFUSED,
            )

    def _answer(self, question: str) -> str:
        if is_interactive():
            typed: str = typer.prompt(question, err=True)
            return typed.strip()
        stderr().print(f"{question}:", soft_wrap=True)
        return self._read() if self._piped is None else self._piped

    def _read(self) -> str:
        line = read_line()
        if line is None:
            live = "a live key moves real money: give --confirm-live TOTAL; --yes is for test keys"
            raise CommandError(
                "nobody is there to answer", remedy=live if self._is_live else "give --yes to go on without a question"
            )
        return line
