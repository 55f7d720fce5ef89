"""Who agrees to a payment: a live key takes the exact words, whoever answers, and no answer is a no."""

from __future__ import annotations

import io
import sys
from decimal import Decimal

import pytest

from momopay.cli.credentials import Consent, find_key
from momopay.cli.exit_codes import CommandError, ExitCode

LIVE, TEST = "pk_live_secret", "pk_test_trial"


def answered(monkeypatch: pytest.MonkeyPatch, piped: io.TextIOBase | None, key: str) -> None:
    monkeypatch.setattr(sys, "stdin", piped)
    consent = Consent(key, may_move=Decimal("83500.50"), yes=False, confirm_live=None)
    consent.ask("Pay KES 83,500.50 to 2 people now?", to_type="83500.50")


@pytest.mark.parametrize(
    ("key", "piped"), [(TEST, "y"), (TEST, " YES \r\n"), (LIVE, "83500.50\n"), (LIVE, " 83500.50 ")]
)
def test_an_answer_that_agrees(monkeypatch: pytest.MonkeyPatch, key: str, piped: str) -> None:
    answered(monkeypatch, io.StringIO(piped), key)


@pytest.mark.parametrize(
    ("key", "piped"),
    [
        (TEST, "n\n"),
        (TEST, "\ny\n"),
        (TEST, "yep\n"),
        *((LIVE, piped) for piped in ("y\n", "yes\n", "83500.5\n", "83,500.50\n", "83500.51\n", "y\n83500.50\n", "\n")),
    ],
)
def test_an_answer_that_does_not(monkeypatch: pytest.MonkeyPatch, key: str, piped: str) -> None:
    with pytest.raises(CommandError, match="not confirmed") as refused:
        answered(monkeypatch, io.StringIO(piped), key)
    assert refused.value.code is ExitCode.REFUSED


@pytest.mark.parametrize("key", [LIVE, TEST])
@pytest.mark.parametrize("piped", [io.StringIO(), io.TextIOWrapper(io.BytesIO(b"\xff\n"), encoding="utf-8"), None])
def test_nobody_to_answer(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], key: str, piped: io.TextIOBase | None
) -> None:
    """Nothing piped, what is no text, and a standard input that was closed before the start."""
    with pytest.raises(CommandError, match="nobody is there to be asked") as refused:
        answered(monkeypatch, piped, key)
    assert refused.value.code is ExitCode.USAGE
    assert ("--confirm-live" in refused.value.remedy) == (key == LIVE)
    assert capsys.readouterr().err == ""
    monkeypatch.delenv("MOMOPAY_API_KEY", raising=False)
    assert find_key() == ""
