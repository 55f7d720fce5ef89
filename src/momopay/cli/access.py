"""Who pays, and with whose consent: the key, the address, and the questions before money moves."""

from __future__ import annotations

import os
import sys
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from momopay.cli.exits import CommandError, ExitCode
from momopay.cli.output import kes, stderr

if TYPE_CHECKING:
    from momopay._budget import Budget
    from momopay.client import Client
    from momopay.journal import Journal

TEST_KEY = "pk_test_"


def is_interactive() -> bool:
    """Tell whether a person can be asked."""
    return sys.stdin.isatty()


def api_key() -> str:
    """Take the key from the environment, or ask for it without showing it."""
    found = os.environ.get("MOMOPAY_API_KEY")
    if found:
        return found
    if not is_interactive():
        raise CommandError(
            "no API key",
            remedy="set MOMOPAY_API_KEY; a key is never taken as an argument, where other users could see it",
            code=ExitCode.CONFIGURATION,
        )
    given: str = typer.prompt("API key", hide_input=True, err=True)
    return given.strip()


def open_client(base_url: str | None, *, key: str | None = None, budget: Budget | None = None) -> Client:
    """Make a client; without a budget of its own it has the default one.

    Raises:
        CommandError: No key, or no address.
        ConfigurationError: A key or address that cannot work.
    """
    from momopay.client import SHARED, Client

    if not base_url:
        raise CommandError(
            "no base URL",
            remedy="set MOMOPAY_BASE_URL or give --base-url; for a trial run `momopay sandbox` and use"
            " http://127.0.0.1:8787/v1 with any pk_test_ key",
            code=ExitCode.CONFIGURATION,
        )
    return Client(api_key() if key is None else key, base_url=base_url, budget=SHARED if budget is None else budget)


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


def is_agreed(key: str, *, may_move: Decimal, yes: bool, confirm_live: Decimal | None) -> bool:
    """Tell whether the options already agree to a payment, before anything is sent.

    `confirm_live` agrees if it is exactly `may_move`; ``yes`` agrees for test keys alone.

    Raises:
        CommandError: They do not, and there is nobody to ask; or they name another sum.
    """
    is_live = not key.startswith(TEST_KEY)
    if confirm_live is not None and confirm_live != may_move:
        raise CommandError(
            f"--confirm-live says KES {kes(confirm_live)}, and KES {kes(may_move)} may move",
            remedy="check the amounts; nothing was sent",
        )
    agreed = confirm_live is not None or (yes and not is_live)
    if not agreed and not is_interactive():
        remedy = "a live key moves real money: give --confirm-live TOTAL; --yes is for test keys"
        raise CommandError(
            "nobody is there to be asked", remedy=remedy if is_live else "give --yes to go on without being asked"
        )
    return agreed


def ask(key: str, question: str, *, to_type: str) -> None:
    """Ask a person before money moves; with a live key, one who types `to_type`.

    Raises:
        CommandError: The answer was no. Nothing was sent.
    """
    if key.startswith(TEST_KEY):
        agreed = typer.confirm(question, err=True)
    else:
        stderr().print("This is a live key: real money will move.", style="bold red")
        typed = typer.prompt(f"{question} Type {to_type}", err=True, prompt_suffix=" to go on: ")
        agreed = typed.strip() == to_type
    if not agreed:
        raise CommandError("not confirmed", remedy="nothing was sent", code=ExitCode.REFUSED)
