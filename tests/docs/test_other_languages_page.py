"""The programs of the page for other languages, each run as it stands against a sandbox on the port that it names."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from docs.blocks import ROOT, Block, blocks_in
from momopay.sandbox import Sandbox
from momopay.sandbox._control_api import ACTIONS, VIEWS

PAGE = ROOT / "docs" / "test" / "other-languages.md"
ADDRESS = "http://127.0.0.1:8787"
BLOCKS = list(blocks_in(PAGE))
PROGRAMS = {"bash": ("curl", "test.sh", ["bash", "-eu"]), "js": ("node", "sandbox.test.mjs", ["node"])}
"""What a program needs, the file that it is, and what runs it."""


@pytest.fixture
def sandbox() -> Iterator[Sandbox]:
    """A sandbox of its own, on any port: tests run side by side."""
    with Sandbox(speed=0) as sandbox:
        yield sandbox


def run(block: Block, sandbox: Sandbox, folder: Path) -> str:
    """Run a program of the page in a folder, and return what it has printed."""
    needed, name, command = PROGRAMS[block.language]
    if shutil.which(needed) is None:
        pytest.skip(f"needs {needed}")
    (folder / name).write_text(block.text.replace(ADDRESS, sandbox.url))
    environment = os.environ | {"no_proxy": "*", "SANDBOX": sandbox.url}
    ran = subprocess.run(
        [*command, name], cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=60
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def blocks(language: str) -> list[Block]:
    return [block for block in BLOCKS if block.language == language]


def test_the_health_check_and_the_test_with_curl(sandbox: Sandbox, tmp_path: Path) -> None:
    ready, collect = blocks("bash")
    assert '"now"' in run(ready, sandbox, tmp_path)
    run(collect, sandbox, tmp_path)
    assert [movement.kind for movement in sandbox.ledger] == ["fee", "fee", "stk"]


def test_the_test_with_node(sandbox: Sandbox, tmp_path: Path) -> None:
    (block,) = blocks("js")
    assert "# pass 2" in run(block, sandbox, tmp_path)
    assert [movement.kind for movement in sandbox.ledger] == ["fee", "payout", "fee"]


def test_every_control_route_is_listed() -> None:
    table = PAGE.read_text().partition("## The control routes")[2]
    assert [name for name in (*ACTIONS, *VIEWS, "account", "events") if f"/sandbox/{name}" not in table] == []
