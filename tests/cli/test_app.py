"""The program as a whole: its help, its cost, its extras, and that no command shows a secret."""

import json
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

import momopay as package
from cli.kit import COMMANDS, NORMALISED, PHONE, PayrollShell, Shell, whole_command
from in_turn import in_turn
from momopay.cli import main
from momopay.cli.exit_codes import ExitCode
from momopay.sandbox import Sandbox
from patience import run_program


@in_turn("command", ["", "transactions", "payouts", "journal", "callback", *COMMANDS])
def test_every_help_page_fits(momopay: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    monkeypatch.chdir(tmp_path)
    for file in ("salaries.csv", "orders.csv", "service.toml"):
        Path(file).touch()
    done = momopay(*command.split(), "--help")
    assert done.code == 0
    assert max(map(len, done.out.splitlines())) <= 80
    assert "\u2026" not in done.out  # nothing was cut
    assert "bool" not in done.out.lower(), "a flag invites no value"
    if command not in COMMANDS or command == "sandbox":  # which is the help of `python -m momopay.sandbox`
        return
    assert "--json" in done.out
    lines = [line.strip() for line in done.out.splitlines()]
    examples = [shlex.split(line)[1:] for line in lines if line.startswith(f"momopay {command}")]
    assert examples, "its docstring has no section Examples"
    found: Any = whole_command()
    names = command.split()
    for name in names:
        found = found.commands[name]
    for words in examples:
        # The parser alone: it refuses what does not exist, what is missing, and values of another type.
        found.make_context(names[-1], words[len(names) :]).close()


def test_the_help_lists_commands_and_exit_codes(momopay: Shell) -> None:
    shown = momopay("--help").out
    codes = [f" {code.value}  {code.meaning}" for code in ExitCode]
    assert [word for word in (*codes, *(command.split()[0] for command in COMMANDS)) if word not in shown] == []
    groups = {each.split()[0]: re.findall(r"^│ (\w+) ", each, re.MULTILINE) for each in re.split("[╭┌]─ ", shown)[2:]}
    assert groups["Records"] == ["sweep", "reconcile", "report", "mcp", "journal"]
    assert groups["Payments"] == ["collect", "balance", "channels", "payouts", "transactions"]
    assert momopay("--version").out == f"momopay {package.__version__}\n"


def test_the_guide_names_every_command_and_exit_code() -> None:
    guide = (Path(__file__).parents[2] / "docs/operate/command-line.md").read_text()
    for command in COMMANDS:
        group, _, name = command.rpartition(" ")
        # Commands of one group may share a row: `momopay journal list`, `show`.
        row = rf"^\| `momopay {group} .*, `{name}`"
        assert f"| `momopay {command}`" in guide or re.search(row, guide, re.MULTILINE)
    for code in ExitCode:
        assert f"| {code.value} |" in guide


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "typer", None)
    monkeypatch.delitem(sys.modules, "momopay.cli.app")
    assert main() == 3
    assert 'pip install "momopay[cli]"' in capsys.readouterr().err


def test_the_help_loads_no_client() -> None:
    code = (
        "import sys; sys.argv[1:] = ['--help']\n"
        "from momopay.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print(*sorted({name.split('.')[0] for name in sys.modules}), file=sys.stderr)"
    )
    loaded = set(run_program([sys.executable, "-c", code]).stderr.split())
    assert not loaded & {"pydantic", "httpx", "anyio", "sqlalchemy", "fastapi", "tenacity"}


def test_no_command_shows_a_key_or_a_phone(momopay: Shell, payroll: PayrollShell, key: str, sandbox: Sandbox) -> None:
    payroll.write(2)
    prompt = momopay("collect", PHONE, "--amount", "5", "--phone", PHONE, "--no-journal", "--json")
    made = prompt.json["transaction_id"]
    sandbox.advance(120)
    shown = [prompt.out]
    plain = ("doctor", "balance", "channels", "transactions list", "transactions list --all")
    given = [f"transactions {command}" for command in (f"get {made}", f"get {PHONE}", f"wait {made}")]
    for command in (
        *(words.split() for words in (*plain, *given)),
        ("collect", PHONE, "--amount", "5", "--phone", PHONE, *payroll.journal),
        ("collect", "--amount", "5", "--phone", "07x" + PHONE, "--no-journal"),
        ("journal", "show", PHONE, *payroll.journal),
        *(payroll.command("--dry-run"), payroll.command("--yes")),
        ("payouts", "status", *payroll.journal),
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
