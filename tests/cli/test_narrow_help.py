"""Help on a terminal of 40 columns: whole names, one below the other."""

from __future__ import annotations

import re

import pytest

from cli.kit import Shell


@pytest.mark.parametrize("command", ["", "payouts", "payouts run", "callback send"])
def test_help_is_whole_on_40_columns(momopay: Shell, command: str) -> None:
    narrow = momopay(*command.split(), "--help", COLUMNS="40").out
    wide = momopay(*command.split(), "--help").out
    assert "\u2026" not in narrow  # nothing was cut
    assert [line for line in narrow.splitlines() if len(line) > 40 and not line.startswith("  momopay ")] == []
    names = set(re.findall(r"--[a-z][a-z-]+", wide))
    assert len(names) > 0
    assert names == set(re.findall(r"--[a-z][a-z-]+", narrow))
    assert "[bold]" not in narrow
    for line in wide.splitlines():
        if line.strip().startswith("momopay "):
            assert line.rstrip()[1:] in narrow.splitlines()
