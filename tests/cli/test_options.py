"""The options that commands share, and the questions: a live key takes the exact words, and no answer is a no."""

import inspect
import io
import json
import os
import sys
import threading
from contextlib import nullcontext, suppress
from decimal import Decimal
from pathlib import Path

import pytest
import typer

from cli.kit import PHONE, Shell
from in_turn import in_turn
from momopay import MomoPayError, PollSchedule
from momopay.cli.exit_codes import CommandError, ExitCode, exit_code_of
from momopay.cli.options import Confirmation, JournalOptions, amount, find_key
from momopay.cli.transactions import collect, wait
from momopay.sandbox import Sandbox
from patience import LONGEST

LIVE, TEST = "mno_live_secret", "mno_test_trial"
TOTAL = Decimal("83500.50")


@in_turn(
    ("text", "problem"),
    [
        *((text, "must be an amount in KES") for text in ("", "x", "1,000", "1_000", "\u0661\u0662")),
        *(("nan", "a finite number"), ("1e400000000000000000000", "must be"), ("10.005", "no more than two decimals")),
    ],
)
def test_what_is_not_an_amount(text: str, problem: str) -> None:
    assert amount("9.500") == Decimal("9.5")
    with pytest.raises(typer.BadParameter, match=problem):
        amount(text)


def test_the_defaults_of_a_wait_are_the_librarys() -> None:
    for command in (collect, wait):
        defaults = [inspect.signature(command).parameters[name].default for name in ("every", "timeout")]
        assert defaults == [PollSchedule().every, PollSchedule().limit]


def ask(key: str, *, yes: bool = False, confirm_live: Decimal | None = None) -> None:
    confirmation = Confirmation(key, may_move=TOTAL, yes=yes, confirm_live=confirm_live)
    confirmation.ask("Pay KES 83,500.50 to 2 people now?", to_type="83500.50")


AGREES = {TEST: ("y", " YES \r\n"), LIVE: ("83500.50\n", " 83500.50 ")}
DOES_NOT = {
    TEST: ("n\n", "\ny\n"),
    LIVE: ("y\n", "yes\n", "83500.5\n", "83,500.50\n", "83500.51\n", "y\n83500.50\n"),
}


@in_turn("key", [TEST, LIVE])
def test_a_piped_answer(monkeypatch: pytest.MonkeyPatch, key: str) -> None:
    for piped in AGREES[key] + DOES_NOT[key]:
        monkeypatch.setattr(sys, "stdin", io.StringIO(piped))
        with nullcontext() if piped in AGREES[key] else pytest.raises(CommandError, match="not confirmed") as refused:
            ask(key)
        assert refused is None or refused.value.code is ExitCode.REFUSED


@pytest.mark.parametrize("key", [LIVE, TEST])
@pytest.mark.parametrize("piped", [io.StringIO(), None])
def test_nobody_answers(monkeypatch: pytest.MonkeyPatch, key: str, piped: io.TextIOBase | None) -> None:
    """Nothing piped, and a standard input that was closed before the start."""
    monkeypatch.setattr(sys, "stdin", piped)
    monkeypatch.delenv("MOMOPAY_API_KEY", raising=False)
    with pytest.raises(CommandError, match="nobody is there to answer") as refused:
        ask(key)
    assert refused.value.code is ExitCode.USAGE
    assert ("--confirm-live" in refused.value.remedy) == (key == LIVE)
    assert find_key() == ""


def test_options_answer_for_a_person(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    ask(TEST, yes=True)
    for key in (TEST, LIVE):
        ask(key, confirm_live=Decimal("83500.5"))
        with pytest.raises(CommandError, match=r"--confirm-live says KES 83,500.51, and KES 83,500.50 may move"):
            ask(key, yes=True, confirm_live=Decimal("83500.51"))
    for key in (LIVE, "a key of another shape"):
        with pytest.raises(CommandError, match="--yes is for test keys"):
            ask(key, yes=True)


def test_a_piped_key_is_read_and_not_shown(momopay: Shell, key: str, sandbox: Sandbox) -> None:
    del momopay.settings["MOMOPAY_API_KEY"]
    done = momopay("balance", piped=f"{key}\r\n")
    assert (done.code, "10,000.00" in done.out) == (0, True)
    assert key not in done.out + done.err
    for piped in ("", "\n", "  "):
        refused = momopay("balance", "--json", piped=piped)
        assert (refused.code, refused.out) == (3, "")
        assert "MOMOPAY_API_KEY" in json.loads(refused.err)["remedy"]
    assert len(sandbox.requests) == 1


@pytest.mark.whole
def test_a_key_is_asked_for_at_a_terminal_and_not_shown(momopay: Shell, key: str) -> None:
    """In a process of its own, at a real terminal, which echoes what is typed unless the program turns that off."""
    del momopay.settings["MOMOPAY_API_KEY"]
    ours, theirs = os.openpty()
    started = momopay.start("balance", stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True)
    os.close(theirs)
    hung = threading.Timer(LONGEST, started.kill)
    hung.start()
    seen = b""
    with suppress(OSError):  # the terminal's other end was closed
        while b"API key: " not in seen:  # the blank comes once what was typed before it has been thrown away
            seen += os.read(ours, 65536)
        os.write(ours, f"{key}\n".encode())
        while read := os.read(ours, 65536):
            seen += read
    os.close(ours)
    started.wait()
    hung.cancel()
    assert (started.returncode, b"10,000.00" in seen, key.encode() in seen) == (0, True, False)


def test_a_key_as_an_argument_is_refused_and_not_repeated(momopay: Shell, key: str) -> None:
    for arguments in (("balance", key), ("balance", "--api-key", key), ("stk", PHONE), ("channels", f"--key={key}")):
        done = momopay(*arguments)
        assert (done.code, key in done.err) == (2, False)
        assert PHONE not in done.err


def test_without_an_address_nothing_is_sent(momopay: Shell) -> None:
    assert momopay("balance", MOMOPAY_BASE_URL="").says(3, "momopay sandbox")


def test_the_path_of_a_journal_is_no_part_of_a_url(tmp_path: Path) -> None:
    path = tmp_path / "a?b=c#%20.db"
    with JournalOptions(journal=str(path)).open_journal(create=True) as journal:
        journal.get("A")
    assert path.is_file()


@in_turn("create", [False, True])
@in_turn("where", ["/", "x" * 1000, "a\x00b", "\udcff"])
def test_an_impossible_journal_fails(where: str, create: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    options = JournalOptions(journal=where)
    with pytest.raises(MomoPayError) as refused, options.open_journal(create=create) as journal:
        journal.get("A")
    assert exit_code_of(refused.value) is ExitCode.CONFIGURATION
