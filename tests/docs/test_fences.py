"""Rules for every fenced block, whether it is run or not."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from cli.kit import whole_command
from docs.blocks import PAGES, ROOT, Block, blocks_in
from docs.pages import is_run

OF_EVERY_COMMAND = ("--help", "--install-completion", "--show-completion")
ALL = [block for page in PAGES for block in blocks_in(page)]
FENCES = [block for block in ALL if block.language != "check"]
LANGUAGES = {
    *("bash", "console", "csv", "ini", "json", "python", "states", "text", "toml"),
    *("dockerfile", "java", "js", "php", "yaml"),  # on the page for other languages
}
WIDEST = 88
"""Columns of a Python block. Wider ones scroll sideways even on a wide screen."""


@pytest.mark.parametrize("block", FENCES, ids=lambda block: block.name)
def test_a_fence_has_a_language_and_fits(block: Block) -> None:
    assert block.language in LANGUAGES
    too_wide = [line for line in block.text.splitlines() if len(line) > WIDEST]
    assert block.language != "python" or too_wide == []
    if block.language == "json":
        json.loads(block.text)


def test_a_block_that_is_not_run_has_a_reason() -> None:
    noted = [block for block in ALL if block.note.startswith("not run")]
    assert [block.name for block in noted if not block.reason] == []
    assert [block.name for block in noted if block.language not in {"console", "python"}] == []


def test_the_python_blocks_are_formatted(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("blocks")
    wanted = [block for block in FENCES if block.language == "python"]
    for block in wanted:
        (folder / f"{block.name.replace('/', '_').replace(':', '_')}.py").write_text(block.text)
    assert len(wanted) > 0
    command = [sys.executable, "-m", "ruff", "format", "--check", "--isolated", f"--line-length={WIDEST}", str(folder)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout


def test_a_page_defines_the_names_that_it_uses(tmp_path: Path) -> None:
    """A reader pastes the blocks of a page one after the other, without what the hidden checks define."""
    for page in PAGES:
        shown = [block.text for block in blocks_in(page) if is_run(block) and block.language == "python"]
        (tmp_path / f"{page.relative_to(ROOT).as_posix().replace('/', '_')}.py").write_text("\n".join(shown))
    assert len(list(tmp_path.iterdir())) == len(PAGES)
    command = [sys.executable, "-m", "ruff", "check", "--isolated", "--select=F821", str(tmp_path)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout


SETTINGS = {
    "MOMOPAY_API_KEY",
    "MOMOPAY_BASE_URL",
    "MOMOPAY_CALLBACK_SECRET",
    "MOMOPAY_LOG",
    "OTEL_PYTHON_HTTPX_EXCLUDED_URLS",
    "REDIS_URL",
    "SHOP_URL",
}


def test_a_printed_command_exists() -> None:
    commands = [
        (block.name, line.removeprefix("$ "))
        for block in FENCES
        if block.language == "console"
        for line in block.text.splitlines()
        if line.startswith("$ ")
    ]
    assert [name for name, command in commands if not _is_known(command)] == []


def _is_known(command: str) -> bool:
    return all(map(_is_one, (part.strip() for part in command.split("&&"))))


def _is_one(command: str) -> bool:
    words = shlex.split(command, comments=True)
    checks: dict[str, Callable[[list[str]], bool]] = {
        "eval": lambda rest: _is_one(rest[0].removeprefix("$(").removesuffix(")")),
        "export": lambda rest: {each.partition("=")[0] for each in rest} <= SETTINGS,
        "momopay": _is_command_line,
        "pip": lambda rest: rest[0] == "install" and all(map(_is_installable, set(rest[1:]) - {"-e"})),
        "python": lambda rest: _is_sandbox(rest) if rest[0] == "-m" else (ROOT / rest[0]).is_file(),
    }
    check = checks.get(words[0])
    others = {
        "celery",
        "cp",
        "createdb",
        "curl",
        "gunicorn",
        "mkdocs",
        "pg_dump",
        "pg_restore",
        "pytest",
        "rm",
        "uvicorn",
    }
    return words[0] in others if check is None else check(words[1:])


def _is_sandbox(words: list[str]) -> bool:
    return words[1] == "momopay.sandbox" and all(word in _sandbox_help() for word in words if word.startswith("--"))


@cache
def _sandbox_help() -> str:
    command = [sys.executable, "-m", "momopay.sandbox", "--help"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def _is_installable(wanted: str) -> bool:
    """Return whether it is one of the few packages that pages name, or this package with existing extras."""
    name, _, extras = wanted.partition("[")
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    others = {"celery", "django", "flask", "opentelemetry-exporter-prometheus", "opentelemetry-sdk", "pytest"}
    return name in others or (name in {".", "momopay"} and set(extras.rstrip("]").split(",")) - {""} <= set(known))


def _is_command_line(words: list[str]) -> bool:
    """Return whether the command exists and has all the options that are printed."""
    command = whole_command()
    known = set(OF_EVERY_COMMAND)
    while True:
        known |= {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
        options = [word.partition("=")[0] for word in words if word.startswith("--")]
        inner = next((word for word in words if word in getattr(command, "commands", {})), None)
        if inner is None:
            return set(options) <= known
        command, words = command.commands[inner], [word for word in words if word != inner]
