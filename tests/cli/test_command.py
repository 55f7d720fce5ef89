"""How commands end: errors with a remedy and without secrets, interrupts, and readers that go away."""

import json
import signal
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from cli.kit import NORMALISED, PHONE, Shell, signalling
from in_turn import in_turn
from momopay.cli.app import options
from momopay.cli.command import Command
from momopay.sandbox import Fault, Sandbox
from patience import LONGEST


def test_an_error_names_its_remedy(momopay: Shell, sandbox: Sandbox, no_backoff: None) -> None:
    sandbox.fail_next("GET", "/wallets/service/balance", Fault.error_before_commit, times=4)
    failed = momopay("balance")
    assert failed.says(6, "Error: INTERNAL_ERROR", "What to do: try again later")
    assert failed.out == ""


def test_an_error_as_json(momopay: Shell) -> None:
    refused = momopay("transactions", "get", "nonsense", "--json")
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
    prompt = ("collect", "--no-journal", "--amount", "5", "--phone", PHONE, "--wait", "--every", "0.1", "--json")
    with signalling([signal.SIGINT], lambda: len(sandbox.requests) > 1):  # it waits for the prompt that it sent
        done = momopay(*prompt)
    assert (done.code, f"momopay transactions wait {done.json['transaction_id']}" in done.err) == (130, True)
    assert "Interrupted." in done.err
    assert "Traceback" not in done.err


@pytest.mark.whole
def test_neither_a_reader_that_goes_away_nor_a_full_disk_is_a_bug(momopay: Shell) -> None:
    with momopay.start("balance", "--json") as started:
        assert started.stdout is not None
        started.stdout.close()
        assert started.stderr is not None
        assert ("Traceback" in started.stderr.read(), started.wait(timeout=LONGEST)) == (False, 130)
    with Path("/dev/full").open("w") as full, momopay.start("balance", stdout=full.fileno()) as started:
        _, err = started.communicate(timeout=LONGEST)
    assert (started.returncode, "No space left on device" in err, "Traceback" in err) == (3, True, False)


@in_turn(
    ("arguments", "message"),
    [
        ("collect --no-journal --amount 10.005 --phone 0712345678", "--amount: must have no more than two decimals"),
        ("collect --no-journal --amount 1 --phone 0712345678 --abandon-after 1", "--abandon-after needs a journal"),
        ("collect --phone 0712345678", "Missing option '--amount'"),
        ("collect 1234567890123 --amount 1 --phone 0712345678 --no-journal", "account_reference: must"),
        ("transactions list --limit 500", "--limit: Input should be less than or equal to 100"),
        ("callback send success --to http://127.0.0.1:1/x --reference \udcff", "--reference: must be text"),
        ("callback send gone --to http://127.0.0.1:1/x", "END: there is no gone"),
        ("balance --nosuch", "No such option: --nosuch"),
        ("nosuch", "No such command 'nosuch'."),
        ("--debug", "Missing command."),
        ("payouts nosuch", "No such command 'nosuch'."),
        ("transactions wait ID --timeout inf", "--timeout: Input should be less than or equal to 31622400"),
        ("sweep --journal none.db --every 1e300", "--every: Input should be less than or equal to 31622400"),
        ("callback send success --to http://127.0.0.1:1/x --amount 1e400", "--amount: must be below KES 10,000,"),
        ("listen --forward-to http://[::1", "--forward-to: must be a URL"),
        ("probe --against none.toml", "--against: file 'none.toml' does not exist"),
        ("collect INV-1 --amount 1 --phone 0712345678", "an order is collected once by its REFERENCE and a journal"),
        ("payouts status", "no journal"),
        ("transactions list --type STX", "--type: there is no STX"),
    ],
)
def test_a_wrong_argument_is_named(momopay: Shell, sandbox: Sandbox, arguments: str, message: str) -> None:
    before = len(sandbox.requests)
    refused = momopay(*arguments.split())
    assert (refused.code, refused.out) == (2, "")
    first, second = refused.err.splitlines()
    assert first.startswith(f"Error: {message}")
    assert second.startswith("What to do: ")
    assert len(sandbox.requests) == before


FAULTY: dict[tuple[str, ...], tuple[str, ...]] = {
    ("collect", " ", "--amount", "1,5", "--phone", "12"): (
        *("REFERENCE: ", "--amount: ", "--phone: must be a Kenyan phone number"),
    ),
    ("collect", "A\u00a0B", "--amount", "0", "--description", "x" * 14, "--phone", PHONE): (
        *("REFERENCE: ", "--amount: must be at least KES 1", "--description: must have at most 13"),
    ),
    ("collect", "", "--callback-url", "x"): (
        *("REFERENCE: ", "--callback-url: ", "Missing option '--amount'", "'--phone'"),
    ),
    ("payouts", "refund", "", "--amount", "9", "--reference", " R"): ("REFERENCE: ", "--amount: ", "--reference: "),
    ("transactions", "list", "--from", "x", "--min", "x", "--status", "x", "--limit", "0", "--timezone", "x"): (
        *("--from: x is", "--min: ", "--status: there is no x", "--limit: ", "--timezone: there is no zone 'x'"),
    ),
    ("payouts", "run", "none.csv", "--max-each", "x", "--every", "0"): ("none.csv", "--max-each: ", "--every: "),
    ("reconcile", "--day", "x", "--last-day", "2026-13", "--orders", "none"): (
        *("--day: x", "--last-day: 2026-13", "--orders: "),
    ),
    ("journal", "show", "\t"): ("REFERENCE: must not be blank",),
}


@pytest.mark.parametrize("arguments", FAULTY)
def test_one_error_names_every_fault(momopay: Shell, sandbox: Sandbox, arguments: tuple[str, ...]) -> None:
    refused = momopay(*arguments)
    assert (refused.code, refused.out) == (2, "")
    first, second = refused.err.splitlines()
    assert [each for each in FAULTY[arguments] if each not in first] == []
    assert first.count("; ") >= len(FAULTY[arguments]) - 1
    assert second.startswith("What to do: ")
    refused = momopay(*arguments, "--json")
    assert json.loads(refused.err)["message"] == first.removeprefix("Error: ")
    assert sandbox.requests == []


@in_turn(
    ("arguments", "message", "command"),
    [
        ("nosuch --json", "No such command", "momopay"),
        ("payouts nosuch --json", "No such command", "momopay payouts"),
        ("payouts -x --json", "No such option", "momopay payouts"),
        ("collect --json --phone 0712345678", "Missing option '--amount'.", "momopay collect"),
    ],
)
def test_wrong_arguments_as_json(momopay: Shell, arguments: str, message: str, command: str) -> None:
    refused = momopay(*arguments.split())
    assert (refused.code, refused.out) == (2, "")
    error = json.loads(refused.err)
    assert error["message"].startswith(message)
    assert (error["exit_code"], error["remedy"]) == (2, f"`{command} --help` shows how it is used")


@in_turn("arguments", ["", "payouts"])
def test_a_group_alone_shows_its_help(momopay: Shell, arguments: str) -> None:
    shown = momopay(*arguments.split())
    assert shown.code == 2
    assert "Usage: " in shown.out + shown.err
    assert "Error" not in shown.err
