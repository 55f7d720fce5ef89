"""Questions, and their answers from standard input: a person at a terminal, or what is piped in."""

from __future__ import annotations

import select
import sys
from decimal import Decimal

import typer

from momopay.cli.exit_codes import CommandError, ExitCode
from momopay.cli.output import kes, stderr

_TEST_KEY = "pk_test_"


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
