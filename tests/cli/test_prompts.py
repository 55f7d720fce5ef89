"""Who agrees to a payment: a live key takes the exact words, whoever answers, and no answer is a no."""

from __future__ import annotations

import io
import sys
from decimal import Decimal

import pytest

from momopay.cli.exit_codes import CommandError, ExitCode
from momopay.cli.prompts import Confirmation, ask_for_key

LIVE, TEST = "pk_live_secret", "pk_test_trial"
TOTAL = Decimal("83500.50")


def ask(key: str, *, yes: bool = False, confirm_live: Decimal | None = None) -> None:
    confirmation = Confirmation(key, may_move=TOTAL, yes=yes, confirm_live=confirm_live)
    confirmation.ask("Pay KES 83,500.50 to 2 people now?", to_type="83500.50")


@pytest.mark.parametrize(
    ("key", "piped"), [(TEST, "y"), (TEST, " YES \r\n"), (LIVE, "83500.50\n"), (LIVE, " 83500.50 ")]
)
def test_an_answer_that_agrees(monkeypatch: pytest.MonkeyPatch, key: str, piped: str) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(piped))
    ask(key)


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
    monkeypatch.setattr(sys, "stdin", io.StringIO(piped))
    with pytest.raises(CommandError, match="not confirmed") as refused:
        ask(key)
    assert refused.value.code is ExitCode.REFUSED


@pytest.mark.parametrize("key", [LIVE, TEST])
@pytest.mark.parametrize("piped", [io.StringIO(), io.TextIOWrapper(io.BytesIO(b"\xff\n"), encoding="utf-8"), None])
def test_an_empty_input_is_an_error_before_anything_is_asked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], key: str, piped: io.TextIOBase | None
) -> None:
    """Nothing piped, bytes that are not text, and a standard input that was closed before the start."""
    monkeypatch.setattr(sys, "stdin", piped)
    with pytest.raises(CommandError, match="nobody is there to answer") as refused:
        Confirmation(key, may_move=TOTAL, yes=False, confirm_live=None)
    assert refused.value.code is ExitCode.USAGE
    assert ("--confirm-live" in refused.value.remedy) == (key == LIVE)
    assert ask_for_key() == ""
    assert capsys.readouterr().err == ""


def test_options_agree_without_a_question(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    ask(TEST, yes=True)
    for key in (TEST, LIVE):
        ask(key, confirm_live=Decimal("83500.5"))


def test_options_that_do_not_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    for key in (LIVE, "a key of another shape"):
        with pytest.raises(CommandError, match="nobody is there"):
            ask(key, yes=True)
    for key in (TEST, LIVE):
        with pytest.raises(CommandError, match=r"--confirm-live says KES 83,500.51, and KES 83,500.50 may move"):
            ask(key, yes=True, confirm_live=Decimal("83500.51"))
