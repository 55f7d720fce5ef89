"""What the command line's tests share: commands run in this process, in one of their own, or at a terminal."""

from __future__ import annotations

import json
import os
import pty
import select
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from momopay.cli.app import app

PHONE = "0712345678"
WHOLE = "254712345678"


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


@dataclass(frozen=True)
class Shell:
    """The command line with the settings of one account."""

    settings: dict[str, str]

    def __call__(self, *arguments: str, piped: str | None = None, **settings: str) -> Done:
        """Run a command in this process, with so much on its standard input."""
        cleared = {"MOMOPAY_API_KEY": None, "MOMOPAY_BASE_URL": None}
        environment = {**cleared, "COLUMNS": "80", **self.settings, **settings}
        result = CliRunner().invoke(app, list(arguments), input=piped, env=environment, prog_name="momopay")
        return Done(result.exit_code, result.stdout, result.stderr)

    def start(self, *arguments: str, stdin: int = subprocess.DEVNULL, **settings: str) -> subprocess.Popen[str]:
        """Run a command in a process of its own."""
        return subprocess.Popen(
            [sys.executable, "-m", "momopay", *arguments],
            env=self.environment(**settings),
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def process(self, *arguments: str, piped: str | None = None, **settings: str) -> Done:
        """Run a command in a process of its own, to its end."""
        stdin = subprocess.DEVNULL if piped is None else subprocess.PIPE
        started = self.start(*arguments, stdin=stdin, **settings)
        out, err = started.communicate(piped, timeout=60)
        return Done(started.returncode, out, err)

    def at_a_terminal(self, arguments: Sequence[str], typed: Sequence[tuple[str, str]], **settings: str) -> Done:
        """Run a command at a terminal, where somebody answers each question with a line."""
        ours, theirs = pty.openpty()
        started = subprocess.Popen(
            [sys.executable, "-m", "momopay", *arguments],
            env=self.environment(**settings),
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)
        seen = ""
        answers = list(typed)
        give_up = time.monotonic() + 60
        while time.monotonic() < give_up:
            if select.select([ours], [], [], 0.1)[0]:
                try:
                    read = os.read(ours, 65536).decode()
                except OSError:  # the terminal's other end was closed
                    break
                seen += read
                if not read:
                    break
            if answers and answers[0][0] in seen:
                time.sleep(0.2)  # a hidden prompt throws away what was typed before it
                os.write(ours, (answers.pop(0)[1] + "\n").encode())
        code = started.wait(timeout=10)
        os.close(ours)
        assert not answers, seen
        return Done(code, seen, "")

    def environment(self, **settings: str) -> dict[str, str]:
        mine = {name: value for name, value in os.environ.items() if not name.startswith("MOMOPAY_")}
        return {**mine, "COLUMNS": "80", "TERM": "xterm", **self.settings, **settings}


def write_salaries(path: Path, rows: int, *, prefix: str = "SAL", amount: int = 1000) -> Path:
    """A payroll file of so many people."""
    lines = [f"{prefix}-{row},07{row:08},{amount + row}.50,November\n" for row in range(rows)]
    path.write_text("reference,phone,amount,description\n" + "".join(lines))
    return path
