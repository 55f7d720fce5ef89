"""What a command works with: the API key, a client, and the account's journal."""

from __future__ import annotations

import os
from pathlib import Path

import momopay
from momopay.cli.exit_codes import CommandError, ExitCode
from momopay.cli.prompts import ask_for_key

KEY_REMEDY = "set MOMOPAY_API_KEY to a key from the account console, or to any pk_test_ key for the sandbox"
ADDRESS_REMEDY = (
    "set MOMOPAY_BASE_URL or give --base-url; for a trial, `momopay sandbox` runs the service at"
    " http://127.0.0.1:8787/v1"
)


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


def open_client(
    base_url: str | None, *, key: str | None = None, journal: momopay.Journal | None = None
) -> momopay.Client:
    """Return a client, whose durable calls use the journal; raise CommandError if there is no key or no address."""
    if not base_url:
        raise CommandError("no base URL", remedy=ADDRESS_REMEDY, code=ExitCode.CONFIGURATION)
    # Passed on rather than left to the client, which knows the environment alone: the key may come from a pipe.
    return momopay.Client(api_key() if key is None else key, base_url=base_url, journal=journal)


def open_journal(where: str, account: str, *, create: bool = False) -> momopay.Journal:
    """Return the journal of a file or URL; only with `create` is there a new one where there was none."""
    # Before the library looks, which refuses it too: only here is it known that an option is wrong.
    if not (create or journal_exists(where)):
        raise CommandError(f"there is no journal at {where}", remedy="check --journal", code=ExitCode.CONFIGURATION)
    if not where.isprintable():
        raise CommandError("--journal names no file", remedy="check --journal", code=ExitCode.CONFIGURATION)
    return momopay.Journal(where if "://" in where else f"sqlite:///{where}", account=account, create=create)


def journal_exists(where: str) -> bool:
    """Return whether there is a journal; of a database server this is not known before it is opened."""
    try:
        return "://" in where or Path(where).exists()
    except OSError:  # a name that no file can have, such as one of a thousand characters
        return False
