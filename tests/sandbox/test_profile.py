"""Profiles in the sandbox: every account gets the switches that the file knows."""

from decimal import Decimal
from pathlib import Path

import pytest

from momopay.sandbox import Sandbox, Switches

TEXT = """
[probe]
format = 1
[switches]
naming = "snake_case"
created_status = 201
late_pin = true
rate_window = "unknown"
[facts]
rate_limit = 60
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "service.toml"
    path.write_text(TEXT)
    return path


def test_every_account_has_the_switches(path: Path) -> None:
    expected = Switches(naming="snake_case", created_status=201, late_pin=True)
    with Sandbox(profile=path) as sandbox:
        first = sandbox.account("pk_test_first")
        assert first.switches == expected
        first.switches.naming = "camelCase"
        assert sandbox.account("pk_test_second").switches == expected
        sandbox.reset()
        assert first.switches == expected


def test_accounts_of_a_state_file_have_them_too(path: Path, tmp_path: Path) -> None:
    state = tmp_path / "state.db"
    with Sandbox(state=state) as sandbox:
        sandbox.account("pk_test_first").fee = Decimal(5)
    with Sandbox(state=state, profile=path) as sandbox:
        account = sandbox.account("pk_test_first")
        assert account.fee == Decimal(5)
        assert account.switches.created_status == 201


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("nonsense", "not a profile"),
        ("[facts]\n", "not a profile"),
        ("switches = 1\n", "not a profile"),
        ("[switches]\nnamimg = 'snake_case'\n", "namimg"),
        ("[switches]\nnaming = 'kebab-case'\n", "naming"),
    ],
)
def test_a_file_that_does_not_fit_is_refused(path: Path, text: str, reason: str) -> None:
    path.write_text(text)
    with pytest.raises(ValueError, match=reason):
        Sandbox(profile=path)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="nowhere"):
        Sandbox(profile=tmp_path / "nowhere.toml")
