"""What the command line's tests share: commands run in this process, as at a terminal, or in a process of their own."""

import io
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import typer.main
from typer.testing import CliRunner

from momopay import Journal, JournalState
from momopay.cli.app import app
from momopay.sandbox import Sandbox
from patience import beside, until
from sandbox.kit import execute, posts

PHONE = "0712345678"
NORMALISED = "254712345678"
PAY = "/b2c/payouts"
LIVE = {"MOMOPAY_API_KEY": "pk_live_secret", "MOMOPAY_BASE_URL": "https://service.invalid/v1"}
# Ctrl-C may strike while a connection is being examined. The collector closes that one, which is not what is tested.
loses_a_connection = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@cache
def whole_command(of: typer.Typer = app) -> Any:
    """Build all commands, once: that takes ten times as long as to run one of them."""
    return typer.main.get_command(of)


def _commands_of(group: Any, *path: str) -> Iterator[str]:
    for name, each in group.commands.items():
        yield from _commands_of(each, *path, name) if hasattr(each, "commands") else [" ".join([*path, name])]


COMMANDS = [*_commands_of(whole_command())]


@dataclass(frozen=True)
class Done:
    """A command that has ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        (line,) = self.out.splitlines()
        return json.loads(line)

    @property
    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def words(self) -> str:
        """Everything on stdout, without the line breaks of the terminal."""
        return " ".join(self.out.split())

    def prints(self, code: int, *texts: str) -> bool:
        """Return whether it ended with this status, and each of these texts is on stdout, line breaks aside."""
        return self.code == code and all(text in self.words for text in texts)

    def says(self, code: int, *texts: str) -> bool:
        """Return whether it ended with this status, and each of these texts is on stderr."""
        return self.code == code and all(text in self.err for text in texts)


class Keyboard(io.BytesIO):
    """What a person types, at a terminal."""

    def __init__(self, text: str, charset: str) -> None:
        super().__init__(text.encode(charset))

    def isatty(self) -> bool:
        return True


@dataclass(frozen=True)
class Shell:
    """The command line with the settings of one account."""

    settings: dict[str, str]

    def __call__(self, *arguments: str, piped: str | None = None, **settings: str) -> Done:
        """Run a command in this process, with so much on its standard input."""
        cleared = {"MOMOPAY_API_KEY": None, "MOMOPAY_BASE_URL": None}
        environment = {**cleared, "COLUMNS": "80", **self.settings, **settings}
        with patch("typer.testing._get_command", whole_command):
            result = CliRunner().invoke(app, list(arguments), input=piped, env=environment, prog_name="momopay")
        return Done(result.exit_code, result.stdout, result.stderr)

    def at_a_terminal(self, *arguments: str, typed: str = "", **settings: str) -> Done:
        """Run a command in this process, as at a terminal where somebody types so much and then Ctrl-D."""
        # Typer's runner always pipes; this makes the same input a terminal's.
        with patch("typer.testing.make_input_stream", Keyboard):
            return self(*arguments, piped=typed, **settings)

    def start(self, *arguments: str, **options: Any) -> subprocess.Popen[str]:
        """Run a command in a process of its own, without an input."""
        mine = {name: value for name, value in os.environ.items() if not name.startswith("MOMOPAY_")}
        environment = {**mine, "COLUMNS": "80", "TERM": "xterm", **self.settings}
        pipes: dict[str, Any] = {"stdin": subprocess.DEVNULL} | dict.fromkeys(("stdout", "stderr"), subprocess.PIPE)
        command = [sys.executable, "-m", "momopay", *arguments]
        return subprocess.Popen(command, env=environment, text=True, **(pipes | options))


@dataclass(frozen=True)
class PayrollShell:
    """`payouts run` with a file and a journal of one test; the sandbox's ledger says what was paid."""

    momopay: Shell
    sandbox: Sandbox
    folder: Path

    @property
    def file(self) -> Path:
        return self.folder / "salaries.csv"

    @property
    def database(self) -> Path:
        return self.folder / "payouts.db"

    @property
    def report(self) -> Path:
        return self.folder / "report.csv"

    @property
    def journal(self) -> tuple[str, str]:
        return ("--journal", str(self.database))

    def write(self, rows: int, *, prefix: str = "SAL", amount: int = 1000) -> None:
        lines = [f"{prefix}-{row},07{row:08},{amount + row}.50,November\n" for row in range(rows)]
        self.file.write_text("reference,phone,amount,description\n" + "".join(lines))

    def command(self, *options: str) -> tuple[str, ...]:
        return ("payouts", "run", str(self.file), *self.journal, *options)

    def run(self, *options: str, piped: str | None = None, **settings: str) -> Done:
        return self.momopay(*self.command(*options), piped=piped, **settings)

    def state(self, reference: str = "SAL-0") -> JournalState | None:
        with Journal(f"sqlite:///{self.database}") as journal:
            entry = journal.get(reference)
        return None if entry is None else entry.state

    def unresolved(self) -> list[str]:
        with Journal(f"sqlite:///{self.database}") as journal:
            return [entry.reference for entry in journal.unresolved()]

    @property
    def paid(self) -> Counter[str]:
        return Counter(movement.reference for movement in self.sandbox.ledger if str(movement.kind) == "payout")

    @property
    def posts(self) -> int:
        return posts(self.sandbox, PAY)

    def assert_paid_once(self, rows: int, prefix: str = "SAL") -> None:
        assert self.paid == {f"{prefix}-{row}": 1 for row in range(rows)}


def wait_is_over(path: Path) -> None:
    """End the lease of each payment, so that an unresolved one may be released."""
    execute(path, "UPDATE momopay_payments SET lease_until = 0")


@contextmanager
def signalling(numbers: list[signal.Signals], when: Callable[[], object]) -> Generator[None]:
    """Send these signals to this process's main thread, where the command runs, once it holds."""
    main, ended = threading.main_thread().ident, threading.Event()
    assert main is not None

    def strike(number: signal.Signals) -> None:
        if sys.platform == "win32":
            signal.raise_signal(number)  # which the main thread handles
        else:
            signal.pthread_kill(main, number)

    def send() -> None:
        until(when)
        for number in numbers:
            time.sleep(0.05)
            strike(number)
        # Two that arrive before Python has noticed the first are one to it.
        while len(numbers) > 1 and not ended.wait(3.0):
            strike(numbers[-1])

    with beside(send):
        yield
        ended.set()
