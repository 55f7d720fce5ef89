"""How commands end: errors with a remedy and without secrets, interrupts, and readers that go away."""

from __future__ import annotations

import json
import signal

import pytest
import typer
from typer.testing import CliRunner

from cli.kit import NORMALISED, PHONE, Shell
from momopay.cli.app import options
from momopay.cli.command import Command
from momopay.sandbox import Fault, Sandbox
from patience import LONGEST, until


def test_an_error_names_its_remedy(momopay: Shell, sandbox: Sandbox, no_backoff: None) -> None:
    sandbox.fail_next("GET", "/wallets/service/balance", Fault.error_before_commit, times=4)
    failed = momopay("balance")
    assert (failed.code, failed.out) == (6, "")
    assert failed.err.startswith("Error: INTERNAL_ERROR")
    assert "What to do: try again later" in failed.err


def test_an_error_as_json(momopay: Shell) -> None:
    for arguments in (("transactions", "get", "nonsense", "--json"), ("--json", "transactions", "get", "nonsense")):
        refused = momopay(*arguments)
        assert (refused.code, refused.out) == (1, "")
        error = json.loads(refused.err)
        assert error.pop("request_id")
        assert "same account" in error.pop("remedy")
        assert error.pop("message").startswith("TRANSACTION_NOT_FOUND")
        assert error == {
            "error": "TransactionNotFoundError",
            "code": "TRANSACTION_NOT_FOUND",
            "may_have_executed": False,
            "exit_code": 1,
        }


def test_a_bug_is_reported_without_secrets_and_traced_when_asked() -> None:
    program = typer.Typer()
    program.callback()(options)

    @program.command(cls=Command)
    def fail() -> None:
        raise RuntimeError(f"of {NORMALISED} and pk_live_secret")

    done = CliRunner().invoke(program, ["fail"])
    assert done.exit_code == 70
    assert done.stderr.startswith("Error: RuntimeError: of 2547*****678 and pk_live_***")
    assert "look into the account console before you pay again" in done.stderr
    assert "Traceback" not in done.stderr
    traced = CliRunner().invoke(program, ["--debug", "fail"])
    assert "Traceback" in traced.stderr
    for secret in ("pk_live_secret", NORMALISED):
        assert secret not in done.stderr + traced.stderr


def test_ctrl_c_exits_130_and_says_how_to_go_on(momopay: Shell, sandbox: Sandbox) -> None:
    started = momopay.start(
        "collect", "--no-journal", "--amount", "5", "--phone", PHONE, "--wait", "--every", "0.1", "--json"
    )
    until(lambda: len(sandbox.requests) > 1, "it waits for the prompt that it sent")
    started.send_signal(signal.SIGINT)
    out, err = started.communicate(timeout=LONGEST)
    # An interrupt inside `exec`, as dataclasses use it, makes CPython end by the signal: shells show 130 for both.
    assert started.returncode in (130, -signal.SIGINT)
    assert f"momopay transactions wait {json.loads(out)['transaction_id']}" in err
    assert "Interrupted." in err
    assert "Traceback" not in err


def test_a_reader_that_goes_away_is_not_a_bug(momopay: Shell) -> None:
    started = momopay.start("balance", "--json")
    assert started.stdout is not None
    started.stdout.close()
    assert started.stderr is not None
    err = started.stderr.read()
    assert started.wait(timeout=LONGEST) == 130
    assert "Traceback" not in err
    started.stderr.close()


@pytest.mark.parametrize("arguments", [(), ("balance",)])
def test_flags_invite_no_value(momopay: Shell, arguments: tuple[str, ...]) -> None:
    assert "bool" not in momopay(*arguments, "--help").out.lower()
