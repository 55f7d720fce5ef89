"""How the command line starts and ends: help, version, missing extras, cost, interrupts, errors without secrets."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

import momopay as package
from cli.kit import PHONE, WHOLE, Shell, write_salaries
from momopay.cli.app import options
from momopay.cli.command import Command
from momopay.cli.exit_codes import ExitCode, exit_code_of, remedy_of
from momopay.errors import MomoPayError
from momopay.sandbox import Sandbox
from patience import LONGEST, until

COMMANDS = [
    "sandbox",
    "doctor",
    "balance",
    "channels",
    "transactions list",
    "transactions get",
    "transactions wait",
    "stk",
    "payouts run",
    "payouts status",
    "payouts release",
    "callback send",
]


@pytest.mark.parametrize("command", ["", "transactions", "payouts", "callback", *COMMANDS])
def test_every_help_page_fits_80_columns(momopay: Shell, command: str) -> None:
    done = momopay(*command.split(), "--help")
    assert done.code == 0
    assert max(map(len, done.out.splitlines())) <= 80
    assert "\u2026" not in done.out  # nothing was cut


def test_the_help_lists_commands_and_exit_codes(momopay: Shell) -> None:
    shown = momopay("--help").out
    for word in {command.split()[0] for command in COMMANDS} | {f" {code.value}  " for code in ExitCode if code < 130}:
        assert word in shown


def test_the_guide_names_every_command_and_exit_code() -> None:
    guide = (Path(__file__).parents[2] / "docs/guides/command-line.md").read_text()
    for command in COMMANDS:
        assert f"momopay {command}" in guide
    for code in ExitCode:
        assert f"| {code.value} |" in guide


def test_flags_invite_no_value(momopay: Shell) -> None:
    for command in ([], ["balance"]):
        assert "bool" not in momopay(*command, "--help").out.lower()


def test_json_before_the_command_is_json_after_it(momopay: Shell) -> None:
    assert momopay("--json", "balance").json == momopay("balance", "--json").json
    listed = momopay("--json", "transactions", "list")
    assert listed.json["items"] == []
    assert '"exit_code": 3' in momopay("--json", "balance", MOMOPAY_API_KEY="pk_nonsense_123").err


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_json(momopay: Shell, command: str) -> None:
    assert "--json" in momopay(*command.split(), "--help").out


def test_the_version(momopay: Shell) -> None:
    assert momopay.process("--version").out == f"momopay {package.__version__}\n"


@pytest.mark.parametrize(
    ("missing", "arguments", "extra"),
    [
        ("typer", "--help", "momopay[cli]"),
        ("rich", "--help", "momopay[cli]"),
        ("sqlalchemy", "payouts status --journal postgresql+psycopg://u@h/d", "momopay[cli,journal]"),
        ("fastapi", "sandbox", "momopay[cli,sandbox]"),
        ("fastapi", "sandbox --json", "momopay[cli,sandbox]"),
    ],
)
def test_a_missing_extra_is_named(missing: str, arguments: str, extra: str) -> None:
    without = f"import sys; sys.modules[{missing!r}] = None; sys.argv[1:] = {arguments.split()!r};"
    code = f"{without} from momopay.cli import main; sys.exit(main())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 3
    assert f"pip install '{extra}'" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_help_loads_no_client() -> None:
    code = (
        "import sys; sys.argv[1:] = ['--help']\n"
        "from momopay.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print(*sorted({name.split('.')[0] for name in sys.modules}), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not set(done.stderr.split()) & {"pydantic", "httpx", "anyio", "sqlalchemy", "fastapi", "tenacity"}


def test_importing_momopay_loads_no_command_line() -> None:
    code = "import sys, momopay; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"typer", "rich", "momopay.cli"} & set(done.stdout.split())


def test_completion_as_typer_gives_it(momopay: Shell) -> None:
    asked = {"_MOMOPAY_COMPLETE": "complete_bash", "COMP_WORDS": "momopay trans", "COMP_CWORD": "1"}
    assert momopay.process(**asked).out.strip() == "transactions"


def test_the_sandbox_runs_until_it_is_told() -> None:
    started = subprocess.Popen(
        [sys.executable, "-m", "momopay", "sandbox", "--port", "0", "--speed", "20"], stdout=subprocess.PIPE, text=True
    )
    assert started.stdout is not None
    address = started.stdout.readline().split()[1]
    page = started.stdout.readline().split()[1]
    with urllib.request.urlopen(page) as answer:
        assert answer.status == 200
    assert address.endswith("/v1")
    started.send_signal(signal.SIGINT)
    started.communicate(timeout=LONGEST)
    assert started.returncode == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_sandbox_tells_a_machine_where_it_is(momopay: Shell, number: signal.Signals) -> None:
    started = momopay.start("sandbox", "--port", "0", "--json")
    assert started.stdout is not None
    told = json.loads(started.stdout.readline())
    assert set(told) == {"base_url", "page"}
    assert told["base_url"] == f"{told['page']}v1"
    with urllib.request.urlopen(told["page"]) as answer:
        assert answer.status == 200
    taken = momopay.process("sandbox", "--port", told["page"].rstrip("/").rpartition(":")[2], "--json")
    assert (taken.code, taken.out) == (1, "")
    assert json.loads(taken.err)["exit_code"] == 1
    started.send_signal(number)
    assert started.communicate(timeout=LONGEST) == ("", "")
    assert started.returncode == 0


def test_an_interrupt_exits_130_and_says_how_to_go_on(momopay: Shell, sandbox: Sandbox) -> None:
    started = momopay.start("stk", "--amount", "5", "--phone", PHONE, "--wait", "--every", "0.1", "--json")
    until(lambda: len(sandbox.requests) > 1, "it waits for the prompt that it sent")
    started.send_signal(signal.SIGINT)
    out, err = started.communicate(timeout=LONGEST)
    assert started.returncode == 130
    assert f"momopay transactions wait {json.loads(out)['transaction_id']}" in err
    assert "Interrupted." in err
    assert "Traceback" not in err


def test_a_bug_is_told_without_secrets_and_traced_when_asked() -> None:
    shop = typer.Typer()
    shop.callback()(options)

    @shop.command(cls=Command)
    def fail() -> None:
        raise RuntimeError(f"of {WHOLE} and pk_live_secret")

    done = CliRunner().invoke(shop, ["fail"])
    assert done.exit_code == 70
    assert done.stderr.startswith("Error: RuntimeError: of 2547*****678 and pk_live_***")
    assert "Traceback" not in done.stderr
    traced = CliRunner().invoke(shop, ["--debug", "fail"])
    assert "Traceback" in traced.stderr
    for secret in ("pk_live_secret", WHOLE):
        assert secret not in done.stderr + traced.stderr


def test_a_reader_that_goes_away_is_no_bug(momopay: Shell) -> None:
    started = momopay.start("balance", "--json")
    assert started.stdout is not None
    started.stdout.close()
    assert started.stderr is not None
    err = started.stderr.read()
    assert started.wait(timeout=20) == 130
    assert "Traceback" not in err
    started.stderr.close()


def test_a_key_as_an_argument_is_refused_and_not_repeated(momopay: Shell, key: str) -> None:
    for arguments in (("balance", key), ("balance", "--api-key", key), ("stk", PHONE), ("channels", f"--key={key}")):
        done = momopay(*arguments)
        assert done.code == 2
        assert key not in done.err
        assert PHONE not in done.err


def test_no_command_shows_a_key_or_a_whole_phone(momopay: Shell, key: str, tmp_path: Path) -> None:
    file, journal = write_salaries(tmp_path / "salaries.csv", 2), str(tmp_path / "payouts.db")
    prompt = momopay("stk", "--amount", "5", "--phone", PHONE, "--reference", PHONE, "--json")
    made = prompt.json["transaction_id"]
    shown = [prompt.out]
    for command in (
        ("doctor",),
        ("balance",),
        ("channels",),
        ("stk", "--amount", "5", "--phone", PHONE, "--reference", PHONE),
        ("stk", "--amount", "5", "--phone", "07x" + PHONE),
        ("transactions", "list"),
        ("transactions", "list", "--all"),
        ("transactions", "get", made),
        ("transactions", "get", PHONE),
        ("transactions", "wait", made, "--timeout", "1", "--every", "0.3"),
        ("payouts", "run", str(file), "--journal", journal, "--dry-run"),
        ("payouts", "run", str(file), "--journal", journal, "--yes"),
        ("payouts", "status", "--journal", journal, "--file", str(file)),
        ("callback", "send", "success", "--to", "http://127.0.0.1:1/x", "--phone", PHONE),
    ):
        for form in ([], ["--json"]):
            done = momopay(*command, *form)
            shown += [done.out, done.err]
            if form and done.out:
                assert [json.loads(line) for line in done.out.splitlines()]
                assert "\x1b" not in done.out
    for secret in (key, PHONE, WHOLE, "712345678", "700000001"):
        assert secret not in "".join(shown)


def test_every_error_has_a_remedy_and_a_status() -> None:
    kinds = [value for name in package.__all__ if isinstance(value := getattr(package, name), type)]
    for kind in kinds:
        if issubclass(kind, MomoPayError) and kind not in {MomoPayError, package.APIError}:
            error = kind.__new__(kind)
            assert exit_code_of(error) in set(ExitCode)
            if kind is not package.OutcomeUnknownError and not issubclass(kind, package.CallbackError):
                assert remedy_of(error) or kind is package.ChannelInUseError
    assert exit_code_of(package.OutcomeUnknownError.__new__(package.OutcomeUnknownError)) == 4
