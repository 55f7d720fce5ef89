"""A payment that the network held back does not arrive once its call has ended, its process was killed or is frozen."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from transport.late_arrival import NO_NAMESPACES, payments


@pytest.fixture(scope="module")
def results() -> dict[str, dict[str, Any]]:
    """Make all payments at once: the link is down for each of them."""
    command = [sys.executable, str(Path(__file__).with_name("late_arrival.py"))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode == NO_NAMESPACES:
        pytest.skip(done.stderr.strip())  # a permission that no package can bring, even where CI demands every program
    assert done.returncode == 0, done.stderr
    found: dict[str, dict[str, Any]] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("payment", [each for each in payments() if not each.is_control], ids=lambda each: each.name)
def test_nothing_arrives_late(results: dict[str, dict[str, Any]], payment: Any) -> None:
    outcome = "wOutcomeUnknownError" if payment.end == "timeout" else "w"
    assert results[payment.name] == {"arrived": False, "outcome": outcome}, "w: written; then the error of its call"


@pytest.mark.parametrize("payment", [each for each in payments() if each.is_control], ids=lambda each: each.name)
def test_without_that_care_it_arrives(results: dict[str, dict[str, Any]], payment: Any) -> None:
    result = results[payment.name]
    why = f"{payment.name}: {result}. It was written and not taken back, so the run ended too early to see it arrive"
    assert result["arrived"] is True, why
