"""Every command of the guide, as printed and in its order, as at a terminal, against a sandbox."""

import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.kit import Done, Shell
from docs.pages import let_leases_end, waits_scaled
from momopay.sandbox import Fault, Sandbox
from sandbox.kit import Receiver

GUIDE = Path(__file__).parents[2] / "docs/operate/command-line.md"
TYPED = {"payouts run": "y\n", "payouts release": "SAL-2026-11-001\n"}
IN_DOUBT = 4
NOTHING_FOUND = 1
SPEED = 50
"""How much faster than real time the sandbox and the waits run."""


@pytest.fixture
def moving() -> Iterator[Sandbox]:
    with Sandbox(speed=SPEED) as sandbox, waits_scaled(SPEED):
        yield sandbox


def printed() -> list[tuple[list[str], str]]:
    """Return the commands, each with the error that the guide prints below it, or ""."""
    found: list[tuple[list[str], str]] = []
    skipped = ("$ momopay sandbox", "$ momopay listen", "$ momopay --install-completion")
    for line in GUIDE.read_text().splitlines():
        if line.startswith("$ momopay ") and not line.startswith(skipped):
            found.append((shlex.split(line)[2:], ""))
        elif line.startswith(("Error: ", "What to do: ")):
            found[-1] = (found[-1][0], f"{found[-1][1]}{line}\n")
    return found


def salaries() -> str:
    return GUIDE.read_text().partition("```csv\n")[2].partition("```")[0]


def test_every_command_as_printed(
    moving: Sandbox, receiver: Receiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("salaries.csv").write_text(salaries())
    shell = Shell({"MOMOPAY_API_KEY": "pk_test_first", "MOMOPAY_BASE_URL": moving.base_url})
    moving.fail_next("POST", "/b2c/payouts", Fault.error_before_commit)
    commands = printed()
    assert len(commands) > 10
    ended: list[tuple[str, int]] = []
    for command, error in commands:
        if command[:2] == ["payouts", "release"]:
            let_leases_end("payments.db")  # a person comes later than a minute after the latest attempt
        done = at_a_terminal(shell, command, receiver, moving)
        assert "Traceback" not in done.err
        if error:
            assert (done.code, done.err) == (2, error)
            continue
        ended.append((" ".join(command[:2]), done.code))
    # The guide runs the payroll again, with other options, before a person releases what is in doubt.
    # The receipt that it looks for is of no payment here.
    assert {each for each in ended if each[1] != 0} == {
        ("payouts run", IN_DOUBT),
        ("payouts status", IN_DOUBT),
        ("transactions find", NOTHING_FOUND),
    }
    paid = [movement.reference for movement in moving.ledger if str(movement.kind) == "payout"]
    assert sorted(paid) == ["SAL-2026-11-001", "SAL-2026-11-002"]
    first, *others = [body["transaction"]["status"] for body in receiver.bodies]
    assert (first, others) == ("SUCCESS", ["CANCELLED", "CANCELLED", "SUCCESS"])
    assert (tmp_path / "report.csv").exists()


def at_a_terminal(shell: Shell, command: list[str], receiver: Receiver, sandbox: Sandbox) -> Done:
    made = next((movement.transaction_id for movement in sandbox.ledger), "")
    filled = [receiver.url if word.startswith("http://127.0.0.1:8000/") else word for word in command]
    filled = [made if word == "ID" else word for word in filled]
    return shell.at_a_terminal(*filled, typed=TYPED.get(" ".join(command[:2]), ""))
