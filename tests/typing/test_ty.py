"""ty finds the same mistakes in signatures.py as mypy and pyright do."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.whole

SIGNATURES = Path(__file__).parent / "signatures.py"


def test_ty_finds_the_mistakes_that_mypy_finds() -> None:
    ty = shutil.which("ty")
    assert ty is not None
    command = [ty, "check", "--python", sys.prefix, "--output-format", "concise", str(SIGNATURES)]
    printed = subprocess.run(command, cwd=SIGNATURES.parents[2], capture_output=True, text=True, check=False).stdout
    found = {int(line) for line in re.findall(r"signatures\.py:(\d+):\d+: error", printed)}
    lines = SIGNATURES.read_text().splitlines()
    mistakes = {number for number, line in enumerate(lines, 1) if "# type: ignore" in line}
    # ty has no rule for a coroutine that nobody awaits.
    assert found == {number for number in mistakes if "unused-coroutine" not in lines[number - 1]}, printed
