"""The key comes from the environment or a question, and never from the arguments."""

from __future__ import annotations

import json
import os
import pty
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cli.kit import PHONE, Shell
from momopay import MomoPayError
from momopay.cli.credentials import open_journal
from momopay.cli.exit_codes import ExitCode, exit_code_of
from momopay.sandbox import Sandbox
from patience import LONGEST


def test_a_piped_key_is_read_and_not_shown(momopay: Shell, key: str, sandbox: Sandbox) -> None:
    del momopay.settings["MOMOPAY_API_KEY"]
    done = momopay("balance", piped=f"{key}\r\n")
    assert done.code == 0
    assert "10,000.00" in done.out
    assert key not in done.out + done.err
    assert len(sandbox.requests) == 1
    for piped in ("", "\n", "  "):
        refused = momopay("balance", "--json", piped=piped)
        assert (refused.code, refused.out) == (3, "")
        assert "MOMOPAY_API_KEY" in json.loads(refused.err)["remedy"]
    assert len(sandbox.requests) == 1


def test_a_key_is_asked_for_at_a_terminal_and_not_shown(momopay: Shell, key: str) -> None:
    """In a process of its own, at a real terminal, which echoes what is typed unless the program turns that off."""
    del momopay.settings["MOMOPAY_API_KEY"]
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "momopay", "balance"]
    started = subprocess.Popen(
        command, env=momopay.environment(), stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
    )
    os.close(theirs)
    seen, typed, give_up = "", False, time.monotonic() + LONGEST
    while time.monotonic() < give_up:
        if select.select([ours], [], [], 0.1)[0]:
            try:
                read = os.read(ours, 65536).decode()
            except OSError:  # the terminal's other end was closed
                break
            seen += read
            if not read:
                break
        if not typed and "API key: " in seen:  # the blank comes once what was typed before it has been thrown away
            os.write(ours, f"{key}\n".encode())
            typed = True
    os.close(ours)
    assert started.wait(timeout=LONGEST) == 0
    assert "10,000.00" in seen
    assert key not in seen


def test_a_key_as_an_argument_is_refused_and_not_repeated(momopay: Shell, key: str) -> None:
    for arguments in (("balance", key), ("balance", "--api-key", key), ("stk", PHONE), ("channels", f"--key={key}")):
        done = momopay(*arguments)
        assert done.code == 2
        assert key not in done.err
        assert PHONE not in done.err


def test_without_an_address_nothing_is_sent(momopay: Shell) -> None:
    done = momopay("balance", MOMOPAY_BASE_URL="")
    assert done.code == 3
    assert "momopay sandbox" in done.err


def test_a_live_key_in_a_test_run_is_refused(momopay: Shell) -> None:
    live = {"MOMOPAY_API_KEY": "pk_live_secret", "MOMOPAY_BASE_URL": "https://service.invalid/v1"}
    refused = momopay("balance", **live, MOMOPAY_TEST_RUN="1")
    assert refused.code == 3
    assert "a live key in a test run" in refused.err


@pytest.mark.parametrize("where", ["/", "x" * 1000, "a\x00b", "\udcff", ""])
@pytest.mark.parametrize("create", [False, True])
def test_what_cannot_be_a_journal_is_a_wrong_set_up(
    where: str, create: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(MomoPayError) as refused, open_journal(where, "default", create=create) as journal:
        journal.get("A")
    assert exit_code_of(refused.value) is ExitCode.CONFIGURATION
