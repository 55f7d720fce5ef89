"""The program as a whole: its help, its cost, its extras, and that no command shows a secret."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import momopay as package
from cli.kit import NORMALISED, PHONE, PayrollShell, Shell
from momopay.cli.exit_codes import ExitCode
from momopay.sandbox import Sandbox
from patience import LONGEST

GUIDE = Path(__file__).parents[2] / "docs/operate/command-line.md"
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
    "listen",
    "callback send",
]


@pytest.mark.parametrize("command", ["", "transactions", "payouts", "callback", *COMMANDS])
def test_every_help_page_fits_80_columns(momopay: Shell, command: str) -> None:
    done = momopay(*command.split(), "--help")
    assert done.code == 0
    assert max(map(len, done.out.splitlines())) <= 80
    assert "\u2026" not in done.out  # nothing was cut
    assert "--json" in done.out or command not in COMMANDS


def test_the_help_lists_commands_and_exit_codes(momopay: Shell) -> None:
    shown = momopay("--help").out
    for word in {command.split()[0] for command in COMMANDS} | {f" {code.value}  {code.meaning}" for code in ExitCode}:
        assert word in shown


def test_the_guide_names_every_command_and_exit_code() -> None:
    guide = GUIDE.read_text()
    for command in COMMANDS:
        assert f"momopay {command}" in guide
    for code in ExitCode:
        assert f"| {code.value} |" in guide


def test_json_before_the_command_is_json_after_it(momopay: Shell) -> None:
    assert momopay("--json", "balance").json == momopay("balance", "--json").json


def test_the_program_starts(momopay: Shell) -> None:
    started = momopay.start("--version")
    assert started.communicate(timeout=LONGEST) == (f"momopay {package.__version__}\n", "")
    assert started.returncode == 0


@pytest.mark.parametrize(
    ("missing", "arguments", "extra"),
    [("typer", "--help", "momopay[cli]"), ("fastapi", "sandbox --json", "momopay[cli,sandbox]")],
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


def test_no_command_shows_a_key_or_a_whole_phone(
    momopay: Shell, payroll: PayrollShell, key: str, sandbox: Sandbox
) -> None:
    payroll.write(2)
    prompt = momopay("stk", "--amount", "5", "--phone", PHONE, "--reference", PHONE, "--json")
    made = prompt.json["transaction_id"]
    sandbox.advance(120)
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
        ("transactions", "wait", made),
        payroll.command("--dry-run"),
        payroll.command("--yes"),
        ("payouts", "status", *payroll.journal, "--file", str(payroll.file)),
        ("callback", "send", "success", "--to", "http://127.0.0.1:1/x", "--phone", PHONE),
    ):
        for form in ([], ["--json"]):
            done = momopay(*command, *form)
            shown += [done.out, done.err]
            if form and done.out:
                assert [json.loads(line) for line in done.out.splitlines()]
                assert "\x1b" not in done.out
    for secret in (key, PHONE, NORMALISED, "712345678", "700000001"):
        assert secret not in "".join(shown)
