"""Who pays, and with whose consent: the key, the address, and the questions before money moves."""

from __future__ import annotations

import os
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from momopay.cli.exit_codes import CommandError, ExitCode
from momopay.cli.output import kes, stderr
from momopay.cli.prompts import is_interactive, is_there_already, read_line

if TYPE_CHECKING:
    from momopay._ratelimit.budget import Budget
    from momopay.client import Client
    from momopay.journal import Journal

TEST_KEY = "pk_test_"


def find_key() -> str:
    """Take the key from the environment, or ask for it without showing it; empty if nobody is there to be asked."""
    found = os.environ.get("MOMOPAY_API_KEY")
    if found:
        return found
    if is_interactive():
        typed: str = typer.prompt("API key", hide_input=True, err=True)
        return typed.strip()
    if not is_there_already():
        stderr().print("API key:")
    return read_line() or ""


def api_key() -> str:
    """Find the key.

    Raises:
        CommandError: There is none.
    """
    found = find_key()
    if not found:
        raise CommandError(
            "no API key",
            remedy="set MOMOPAY_API_KEY; a key is never taken as an argument, where other users could see it",
            code=ExitCode.CONFIGURATION,
        )
    return found


def open_client(base_url: str | None, *, key: str | None = None, budget: Budget | None = None) -> Client:
    """Make a client; without a budget of its own it has the default one.

    Raises:
        CommandError: No key, or no address.
        ConfigurationError: A key or address that cannot work.
    """
    from momopay.client import Client

    if not base_url:
        raise CommandError(
            "no base URL",
            remedy="set MOMOPAY_BASE_URL or give --base-url; for a trial run `momopay sandbox` and use"
            " http://127.0.0.1:8787/v1 with any pk_test_ key",
            code=ExitCode.CONFIGURATION,
        )
    key = api_key() if key is None else key
    return Client(key, base_url=base_url) if budget is None else Client(key, base_url=base_url, budget=budget)


def open_journal(where: str) -> Journal:
    """Open a journal by its file or its URL.

    Raises:
        ConfigurationError: Neither.
    """
    from momopay.journal import Journal

    return Journal(where if "://" in where else f"sqlite:///{where}")


def journal_exists(where: str) -> bool:
    """Tell whether a journal is there already, as far as that can be told without opening it."""
    return "://" in where or Path(where).exists()


class Consent:
    """Whether a payment is agreed to: by the options, or else by an answer, typed or piped.

    Args:
        key: Whose money it is.
        may_move: KES.
        yes: Agrees for test keys alone.
        confirm_live: KES; agrees if it is exactly `may_move`.

    Raises:
        CommandError: The options name another sum, or it is plain already that nobody will answer. Nothing was sent.
    """

    def __init__(self, key: str, *, may_move: Decimal, yes: bool, confirm_live: Decimal | None) -> None:
        if confirm_live is not None and confirm_live != may_move:
            raise CommandError(
                f"--confirm-live says KES {kes(confirm_live)}, and KES {kes(may_move)} may move",
                remedy="check the amounts; nothing was sent",
            )
        self._is_live = not key.startswith(TEST_KEY)
        self._is_given = confirm_live is not None or (yes and not self._is_live)
        self._piped: str | None = None
        if not self._is_given and not is_interactive() and is_there_already():
            self._piped = self._read()

    def ask(self, question: str, *, to_type: str) -> None:
        """Ask before money moves, unless the options agree; with a live key the answer must be `to_type`.

        Raises:
            CommandError: The answer was no, or nobody answered. Nothing was sent.
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
                "not confirmed, nothing was sent", remedy="run it again, and answer as it asks", code=ExitCode.REFUSED
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
            remedy = "a live key moves real money: give --confirm-live TOTAL; --yes is for test keys"
            raise CommandError(
                "nobody is there to be asked",
                remedy=remedy if self._is_live else "give --yes to go on without being asked",
            )
        return line
