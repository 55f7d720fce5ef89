"""Every Python block of the pages and of the README runs against the sandbox, page by page."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from docs import pages
from docs.blocks import PAGES, ROOT, blocks_in
from momopay.sandbox import Sandbox
from patience import run_program
from redis_server import PROGRAM, RedisServer

OWN_PROCESS = "<!-- own process -->"
WITH_CODE = [page for page in PAGES if any(map(pages.is_run, blocks_in(page)))]
TEST_FILES = [(name, block) for page in PAGES for block in blocks_in(page) if (name := block.noted("test file:"))]


@pytest.fixture(scope="module")
def shared_sandbox() -> Iterator[Sandbox]:
    with Sandbox(speed=pages.SPEED) as sandbox:
        yield sandbox


@pytest.fixture(scope="module")
def redis_url() -> Iterator[str]:
    """The URL of a Redis server, or of none if the program is missing: the budget then falls back."""
    if PROGRAM is None:
        yield "redis://127.0.0.1:1/0"
        return
    with RedisServer() as server:
        yield server.url


@pytest.mark.parametrize("page", WITH_CODE, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_the_blocks_of_a_page(
    page: Path, shared_sandbox: Sandbox, redis_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REDIS_URL", redis_url)
    if OWN_PROCESS not in page.read_text():
        pages.run_page(page, shared_sandbox)
        return
    # Django looks its settings up by module name, so such a page needs a separate process.
    environment = os.environ | {"PYTHONWARNINGS": "error", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, pages.__file__, str(page)]
    run_program(command, env=environment)


def test_the_tests_of_the_pages(pytester: pytest.Pytester) -> None:
    """In one run, each in a folder of its own."""
    for number, (name, block) in enumerate(TEST_FILES):
        (pytester.mkdir(f"{number}_{block.page.stem}") / name).write_text(block.text)
    plugins = ("-pno:momopay", "-pmomopay.pytest_plugin", "-pno:cacheprovider")
    result = pytester.runpytest_subprocess(*plugins, "-Werror", "--import-mode=importlib")
    assert result.ret == 0, "\n".join(result.outlines)
    assert set(result.parseoutcomes()) == {"passed"}
