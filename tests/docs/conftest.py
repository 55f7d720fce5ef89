"""The documentation site, built once in a run for all tests that read it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from docs.blocks import ROOT


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site, or wait until another process of this run has built it."""
    fcntl: Any = pytest.importorskip("fcntl", reason="Windows has no fcntl")
    of_the_run = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        of_the_run = of_the_run.parent
    folder, built = of_the_run / "site", of_the_run / "site.built"
    with (of_the_run / "site.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not built.exists():
            build(folder)
            built.touch()
    return folder


def build(folder: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    printed = built.stdout + built.stderr
    # Its notes too: of a link to an anchor that a page does not have, it only tells.
    noted = [
        line for line in printed.splitlines() if not re.search(r"Cleaning site|Building doc|Documentation built", line)
    ]
    assert (built.returncode, noted) == (0, []), printed
