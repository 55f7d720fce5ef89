"""Every printed command is run, or has a reason why it is not.

The commands of `momopay` run here, in their order on the page, on a sandbox and a journal that has a little of
everything.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from cli.kit import Shell
from docs.blocks import PAGES, ROOT, Block, blocks_in
from docs.pages import waits_scaled
from momopay import Client, Journal, RateBudget
from momopay._core import state
from momopay.probe.wire import Wire
from momopay.sandbox import Sandbox

NOT_RUN = {
    "it never ends; tests of its own run it": (
        *("celery", "gunicorn", "momopay listen", "momopay sandbox", "momopay sweep --every"),
        *("python -m momopay.sandbox", "uvicorn"),
    ),
    "test_other_programs.py restores a journal": ("cp", "createdb", "pg_dump", "pg_restore", "rm"),
    "test_pages.py sends the same requests to the app": ("curl",),
    "these tests run in the folder of a clone, with settings of their own": ("cd", "export", "git clone"),
    "it makes a secret, which tests have": ("python -c",),
    ".ci/run installs into fresh environments": ("pip", "python -m venv", "source"),
    "the parts of the compose file are tested without Docker": ("docker",),
    "the fixture `site` builds the documentation": ("mkdocs",),
    "it changes the shell of the person who runs it": ("momopay --install-completion",),
    "it runs this suite, or a part of it that takes minutes": ("pytest", "python tests/"),
    "tests/examples run every example": ("python examples/",),
}
"""Beginnings of commands, by the reason. A word in the middle may be left out."""
SPEED = 50
"""How much faster than real time the sandbox, the rate budget and the pauses of the probe run."""
WRONG_USAGE = 2


def commands(block: Block) -> Iterator[str]:
    for line in block.text.replace("\\\n", " ").splitlines():
        if line.startswith("$ "):
            yield from (part.strip() for part in line[2:].split(" && "))


PRINTED = [
    (block, command)
    for page in PAGES
    for block in blocks_in(page)
    if block.language == "console" and not block.reason
    for command in commands(block)
]


def reason(command: str) -> str | None:
    for why, beginnings in NOT_RUN.items():
        for first, *others in (beginning.split(" ") for beginning in beginnings):
            if re.match(re.escape(first) + r"\b", command) and all(word in command for word in others):
                return why
    return None


def test_every_command_is_run_or_has_a_reason() -> None:
    unknown = [
        f"{block.name}: {command}"
        for block, command in PRINTED
        if not command.startswith("momopay ") and reason(command) is None
    ]
    assert unknown == []


QUOTED = re.compile('"[^"]*"')
IN_ALL_SHELLS = [ROOT / "README.md", ROOT / "docs/start/install.md"]


def test_commands_are_one_a_line_and_quoted_as_every_shell_reads_them() -> None:
    """PowerShell 5.1 knows no `&&`, cmd neither `;` nor single quotes, and neither of them `export` or `\\`."""
    lines = {
        (block.page, line.removeprefix("$ "))
        for page in PAGES
        for block in blocks_in(page)
        if block.language == "console"
        for line in block.text.splitlines()
        if line.startswith("$ ")
    }
    wrong = {line for _, line in lines if re.search("&&|;|'|`", QUOTED.sub("", line))}
    wrong |= {
        line for page, line in lines if page in IN_ALL_SHELLS and re.search(r"\\$|^(export|source|set)\b|\$", line)
    }
    assert sorted(wrong) == []
    assert {page for page, _ in lines} >= {*IN_ALL_SHELLS}


WITH_COMMANDS = sorted(
    {block.page for block, command in PRINTED if command.startswith("momopay ") and reason(command) is None}
)


@pytest.fixture
def moving(monkeypatch: pytest.MonkeyPatch) -> Iterator[Sandbox]:
    sleep, hold = Wire.sleep, Wire.hold

    def sleep_scaled(wire: Wire, seconds: float) -> None:
        sleep(wire, seconds / SPEED)

    def hold_scaled(wire: Wire, seconds: float) -> None:
        hold(wire, seconds / SPEED)

    monkeypatch.setattr(state, "RateBudget", partial(RateBudget, window=61.0 / SPEED))
    monkeypatch.setattr(Wire, "sleep", sleep_scaled)
    monkeypatch.setattr(Wire, "hold", hold_scaled)
    with Sandbox(speed=SPEED) as sandbox, waits_scaled(SPEED):
        yield sandbox


@pytest.mark.whole
@pytest.mark.parametrize("page", WITH_COMMANDS, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_the_commands_of_a_page(page: Path, moving: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("orders.csv").write_text("reference,amount,state\nINV-42,500,PAID\n")
    guide = (ROOT / "docs/operate/command-line.md").read_text()
    Path("salaries.csv").write_text(guide.partition("```csv\n")[2].partition("```")[0])
    account = {"MOMOPAY_API_KEY": "pk_test_pages", "MOMOPAY_BASE_URL": moving.base_url}
    shell = Shell({**account, "MOMOPAY_CALLBACK_SECRET": "a secret of more than 16 bytes"})
    for block, command in PRINTED:
        if block.page != page or not command.startswith("momopay ") or reason(command) is not None:
            continue
        words = [word.replace("/backups/", "") for word in shlex.split(command, comments=True)[1:]]
        fill(words, moving)
        done = shell.at_a_terminal(*words, typed="y\n")
        assert "Traceback" not in done.out + done.err, command
        assert done.code != WRONG_USAGE or done.err in block.text, f"{command}: {done.err}"


def fill(words: list[str], sandbox: Sandbox) -> None:
    """Give a journal that a command names orders that were paid, and a payout."""
    if "--journal" not in words or "://" in (path := words[words.index("--journal") + 1]) or Path(path).exists():
        return
    with Client("pk_test_pages", base_url=sandbox.base_url) as client, Journal(f"sqlite:///{path}") as journal:
        for order in ("INV-42", "INV-43"):
            client.stk.collect_once(journal=journal, reference=order, amount=500, phone="0712 345 678")
        client.payouts.pay_once(journal=journal, reference="SAL-7", amount=100, phone="0712 345 678")
        sandbox.advance(120)
        client.transactions.sweep(journal=journal)
    sandbox.fail_next("POST", "/b2c/payouts", "error_before_commit")  # the next payout is left in doubt
