"""The options that several commands share, and the prompts for the API key and for consent to a payment.

The API key is not an option, because other users of the machine can see a process's arguments.
"""

from __future__ import annotations

import getpass
import os
import sys
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, TypeAlias, TypeVar

import typer
from typer import Option

import momopay
from momopay._core.wiring import NO_JOURNAL
from momopay._redaction import key_mode
from momopay.cli.command import consented
from momopay.cli.exit_codes import CommandError, ExitCode
from momopay.cli.output import Output, end_of, in_lines, kes, moment_of, plain, stderr, use_timezone
from momopay.errors import RequestValidationError
from momopay.money import parse_amount
from momopay.phones import normalise_phone

KEY_REMEDY = "set MOMOPAY_API_KEY to a key from the account console, or to any pk_test_ key for the sandbox"
ADDRESS_REMEDY = (
    "set MOMOPAY_BASE_URL or give --base-url; for a trial, `momopay sandbox` runs the service at"
    " http://127.0.0.1:8787/v1"
)
_CONFIRM = "give --confirm-live with the exact sum"
SEARCH_DEADLINE = 3600.0  # seconds; a long list is searched at 60 pages a minute, and a person can press Ctrl-C
_LONGEST = 366 * 24 * 60 * 60  # seconds in a year
WordT = TypeVar("WordT", bound=str)
_SQLITE = b"SQLite format 3\0"  # the header of its files


def amount(value: str | Decimal) -> Decimal:
    """Return an amount in KES from what was typed, or from a default, which typer parses too."""
    text = str(value)
    try:
        # Decimal also accepts 1_000 and the digits of other scripts, which people may misread.
        parsed = Decimal(text if text.isascii() and "_" not in text else "")
    except ArithmeticError as error:
        raise typer.BadParameter("must be an amount in KES, such as 100 or 99.50, without commas") from error
    try:
        return parse_amount(parsed, 0)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


def checked(field: str) -> Callable[[Any], Any]:
    """Return a callback of options that refuses what the library would refuse as this field of a request.

    So one error has every fault of a command line, and not those first that can be seen without the library.
    """
    request, _, name = field.partition(".")

    def check(value: Any) -> Any:
        if value is not None:
            from momopay.models import requests  # loads pydantic

            try:
                # On loopback, more URLs are allowed. Whether the service is there is not known yet.
                getattr(requests, request).checked(on_loopback=True, **{name: value})
            except RequestValidationError as error:  # it also names the arguments that are not given here
                if name in error.fields:
                    raise typer.BadParameter(error.fields[name]) from error
        return value

    return check


def whole_phone(text: str | None) -> str | None:
    """Return a phone number as ``254XXXXXXXXX``, as a callback of options; raise BadParameter if it is not one."""
    try:
        return None if text is None else normalise_phone(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


def not_blank(text: str | None) -> str | None:
    """Return a text, as a callback of options; raise BadParameter if it has nothing but spaces."""
    if text is not None and not text.strip():
        raise typer.BadParameter("must not be blank")
    return text


def one_of(words: Callable[[], Iterable[WordT]]) -> Callable[[str], WordT]:
    """Return a parser of options that returns the member which a word in any case names, and refuses other words."""

    # The library passes on any word, since the service may add new ones. Here an unknown word is most likely a typo,
    # and the empty list that it gives would look like an answer.
    def parse(word: str) -> WordT:
        known = {str(each): each for each in words()}
        if word.upper() in known:
            return known[word.upper()]
        raise typer.BadParameter(f"there is no {plain(word) or repr(word)}; give one of {', '.join(known)}")

    return parse


def time_option(text: str, *names: str, is_end: bool = False) -> Any:
    """Return an option that takes a time; with `is_end`, a date means its last moment."""
    return Option(*names, metavar="TIME", parser=end_of if is_end else moment_of, help=text)


def word_option(metavar: str, words: Callable[[], Iterable[str]], text: str, *names: str) -> Any:
    """Return an option that takes one of these words."""
    return Option(*names, metavar=metavar, parser=one_of(words), help=text)


def flag(name: str, text: str) -> Any:
    """Return an option without a value."""
    return Option(name, help=text)


def kes_option(name: str, text: str, **more: Any) -> Any:
    """Return an option that takes an amount."""
    return Option(name, metavar="KES", parser=amount, help=text, **more)


def seconds_option(text: str, least: float = 1) -> Any:
    """Return an option that takes seconds, named after its parameter."""
    return Option(metavar="SECONDS", min=least, max=_LONGEST, help=text)


def request_option(field: str, metavar: str, text: str) -> Any:
    """Return an option that refuses what the library would refuse as this field, such as ``StkRequest.phone``."""
    return Option(metavar=metavar, callback=checked(field), help=text)


def file_option(text: str) -> Any:
    """Return an option that takes an existing file, named after its parameter."""
    return Option(metavar="FILE", exists=True, dir_okay=False, help=text)


def sheet_option(file: str) -> Any:
    """Return an option for the sheet of a file."""
    return Option("--sheet", metavar="NAME", help=f"The sheet of an .xlsx {file}; by default the one with the columns.")


Json: TypeAlias = Annotated[bool, flag("--json", "JSON on stdout, for machines.")]
BaseUrl: TypeAlias = Annotated[
    str | None, Option(metavar="URL", envvar="MOMOPAY_BASE_URL", help="The service's address, ending in /v1.")
]
ShowPhones: TypeAlias = Annotated[bool, flag("--show-phones", "Show phones whole, not masked.")]
# Eager, because times among the other options are of this zone.
TimeZone: TypeAlias = Annotated[
    str | None,
    Option(metavar="NAME", callback=use_timezone, is_eager=True, help="The zone of times; by default this machine's."),
]
DayZone: TypeAlias = Annotated[
    str | None,
    Option(metavar="NAME", callback=use_timezone, is_eager=True, help="The zone of days and times; else Nairobi's."),
]
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
# There is a minimum because each poll uses a slot of the key's rate budget.
Every: TypeAlias = Annotated[float, seconds_option("Time between polls; before the first, half as much more.", 0.1)]


def is_interactive() -> bool:
    """Return whether stdin is a terminal."""
    return sys.stdin is not None and sys.stdin.isatty()


def find_key() -> str:
    """Return the key from the environment, or else one that is typed without an echo, or piped; "" if there is none."""
    # Scripts often unset a variable by setting it to nothing.
    if key := os.environ.get("MOMOPAY_API_KEY"):
        return key
    if is_interactive():
        typed: str = typer.prompt("API key", hide_input=True, err=True)
        return typed.strip()
    return "" if sys.stdin is None else sys.stdin.readline().strip()


def api_key() -> str:
    """Return the key from the environment or a prompt; raise CommandError if there is none."""
    key = find_key()
    if not key:
        raise CommandError("no API key", remedy=KEY_REMEDY, code=ExitCode.CONFIGURATION)
    return key


def login_name() -> str | None:
    """Return the login name of the user; None for a user id without a name, as in some containers."""
    try:
        return getpass.getuser()
    except (KeyError, ImportError, OSError):
        return None


def check_writable(path: Path | None, option: str, *used: Path | None) -> None:
    """Raise CommandError if a file cannot be written, instead of failing after minutes of requests.

    Also raise if it is one of `used`, or an SQLite database such as a journal: its content would be lost.
    """
    if path is None:
        return
    remedy, is_database = "give a file that can be written", False
    try:
        if not path.exists():
            path.touch()
            path.unlink()  # an empty file would look like a result
        else:
            path.open("a").close()
            if path.is_file():  # reading a pipe would wait for a writer
                with path.open("rb") as file:
                    is_database = file.read(len(_SQLITE)) == _SQLITE
    except OSError as error:
        raise CommandError(f"{option} {plain(path)} cannot be written: {error.strerror}", remedy=remedy) from error
    if is_database or any(each is not None and path.resolve() == each.resolve() for each in used):
        what = "is a database, perhaps a journal" if is_database else "is used by this command"
        raise CommandError(f"{option} {plain(path)} {what}, and would be overwritten", remedy="give another file")


def journal_exists(where: str) -> bool:
    """Return whether there is a journal; True for a database server, which shows it only once it is opened."""
    try:
        return "://" in where or Path(where).exists()
    except OSError:  # no file can have this name, for example because it is too long
        return False


@dataclass(frozen=True, kw_only=True)
class DisplayOptions:
    """Options of every command: how results are shown."""

    show_phones: ShowPhones = False
    timezone: TimeZone = None
    as_json: Json = False

    @property
    def output(self) -> Output:
        """How this command shows its results."""
        return Output(self.as_json, self.show_phones)


@dataclass(frozen=True, kw_only=True)
class ServiceOptions(DisplayOptions):
    """Options of commands that send requests: the service."""

    base_url: BaseUrl = None

    def client(
        self, journal: momopay.Journal | None = None, *, key: str | None = None, deadline: float = 90.0
    ) -> momopay.Client:
        """Return a client; raise CommandError if there is no key or address. By default, the key is `api_key()`."""
        if not self.base_url:
            raise CommandError("no base URL", remedy=ADDRESS_REMEDY, code=ExitCode.CONFIGURATION)
        # The client alone would read the environment only, but the key may have been typed or piped.
        key = api_key() if key is None else key
        own = NO_JOURNAL if journal is None else journal  # the commands name it
        return momopay.Client(key, base_url=self.base_url, journal=own, deadline=deadline)


def url_of(journal: str) -> Any:
    """Return the URL of a journal that was given as a URL or as the path of a file."""
    if "://" in journal:
        return journal
    from sqlalchemy import URL  # from an extra that the other commands do not need

    return URL.create("sqlite", database=journal)  # in the text of a URL, a "?" would end the path


@dataclass(frozen=True, kw_only=True)
class JournalOptions(DisplayOptions):
    """Options of commands that use a journal."""

    journal: JournalAt = None
    account: JournalAccount = "default"

    def open_journal(self, *, create: bool = False) -> AbstractContextManager[momopay.Journal]:
        """Return the journal. If there is none, make one with `create`, and otherwise raise CommandError."""
        url = self.journal_url()
        # The library refuses it too, but its error cannot name the option.
        if not (create or journal_exists(self.journal or "")):
            problem = f"there is no journal at {self.journal}"
            raise CommandError(problem, remedy="check --journal", code=ExitCode.CONFIGURATION)
        return momopay.Journal(url, account=self.account, create=create)

    def journal_url(self) -> Any:
        """Return the journal's URL; raise CommandError if there is none."""
        if not self.journal:
            raise CommandError("no journal", remedy="give --journal FILE, or set MOMOPAY_JOURNAL")
        return url_of(self.journal)


@dataclass(frozen=True, kw_only=True)
class AccountOptions(ServiceOptions, JournalOptions):
    """Options of commands that use the service and a journal."""


@dataclass(frozen=True, kw_only=True)
class DayOptions(AccountOptions):
    """The same, of a command whose days are of Nairobi."""

    timezone: DayZone = None


class Confirmation:
    """Consent to a payment: given by the options, or else by an answer that is typed or piped.

    Every key that is not a test key counts as live. `yes` is consent for test keys only, and `confirm_live` if it is
    exactly the sum that may move. Raise CommandError for any other consent.
    """

    def __init__(self, key: str, *, may_move: Decimal, yes: bool, confirm_live: Decimal | None) -> None:
        if confirm_live is not None and confirm_live != may_move:
            raise CommandError(
                f"--confirm-live says KES {kes(confirm_live)}, and KES {kes(may_move)} may move",
                remedy="check the amounts; nothing was sent",
            )
        self._is_live = key_mode(key) != "test"
        self._is_given = confirm_live is not None or yes
        if self._is_live and yes and confirm_live is None:
            raise CommandError("--yes is for test keys, and a live key moves real money", remedy=_CONFIRM)

    def ask(self, question: str, *, to_type: str) -> None:
        """Ask before money moves, unless the options gave consent. With a live key, the answer must be `to_type`.

        Raise CommandError if the answer is no or nobody answers.
        """
        self._ask(question, to_type=to_type)
        consented()

    def _ask(self, question: str, *, to_type: str) -> None:
        if self._is_given:
            return
        try:
            if self._is_live:
                stderr().show("This is a live key: real money will move.", "bold red")
                typed: str = typer.prompt(in_lines(f"{question} Type {to_type} to go on"), err=True)
                agreed = typed.strip() == to_type
            else:
                agreed = typer.confirm(in_lines(question), err=True)
        except (typer.Abort, RuntimeError):  # RuntimeError: stdin was closed before the start
            if is_interactive():
                raise
            remedy = _CONFIRM if self._is_live else "give --yes to go on without a question"
            raise CommandError("nobody is there to answer", remedy=remedy) from None
        if not agreed:
            raise CommandError(
                "not confirmed, nothing was sent",
                remedy="run the command again, and answer as it asks",
                code=ExitCode.REFUSED,
            )
