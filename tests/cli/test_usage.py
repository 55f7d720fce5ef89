"""Wrong arguments are named as they were typed."""

from __future__ import annotations

import json

import pytest

from cli.kit import PHONE, Shell
from momopay.sandbox import Sandbox


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("collect --no-journal --amount 10.005 --phone 0712345678", "--amount: 10.005 has three decimals; KES has two"),
        (
            "collect --no-journal --amount 1,000 --phone 0712345678",
            "--amount: must be an amount in KES, such as 100 or 99.50",
        ),
        ("collect --phone 0712345678", "Missing option '--amount'"),
        ("collect --no-journal --amount 0 --phone 0712345678", "--amount: must be at least KES 1"),
        ("collect 1234567890123 --amount 1 --phone 0712345678 --no-journal", "REFERENCE: "),
        ("collect --no-journal --amount 1 --phone 0712345678 --description 12345678901234", "--description: "),
        ("collect --no-journal --amount 1 --phone 12", "--phone: must be a Kenyan phone number"),
        ("transactions list --limit 500", "--limit: Input should be less than or equal to 100"),
        ("transactions list --min 5 --max 1.001", "--max: 1.001 has three decimals"),
        ("callback send gone --to http://127.0.0.1:1/x", "END: 'gone' is not one of"),
        ("transactions get", "Missing argument 'ID'"),
        ("balance --nosuch", "No such option: --nosuch"),
        ("--nosuch", "No such option: --nosuch"),
        ("journal --nosuch", "No such option: --nosuch"),
        ("nosuch", "No such command 'nosuch'."),
        ("--debug", "Missing command."),
        ("payouts nosuch", "No such command 'nosuch'."),
        ("transactions wait ID --timeout inf", "--timeout: must be at most 31,622,400 seconds"),
        ("sweep --journal none.db --every 1e300", "--every: must be at most"),
        ("listen --forward-to http://127.0.0.1:1/x --every inf", "--every: must be at most"),
        ("journal list --journal none.db --limit 99999999999999999999", "--limit: "),
        ("transactions list --from=", "--from: '' is not a date"),
        ("transactions find --phone 12", "--phone: must be a Kenyan phone number"),
        ("callback send success --to http://127.0.0.1:1/x --amount -1", "--amount: must be at least KES 1"),
        ("callback send success --to http://127.0.0.1:1/x --amount 1e400", "--amount: must be at least KES 1"),
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


@pytest.mark.parametrize(
    "arguments", ["nosuch --json", "--json nosuch", "--json payouts nosuch", "payouts -x --json", "--json"]
)
def test_an_unknown_command_as_json(momopay: Shell, arguments: str) -> None:
    refused = momopay(*arguments.split())
    assert (refused.code, refused.out) == (2, "")
    error = json.loads(refused.err)
    assert error["message"].startswith(("No such ", "Missing command"))
    assert error["exit_code"] == 2


@pytest.mark.parametrize("arguments", ["", "payouts"])
def test_a_group_alone_shows_its_help(momopay: Shell, arguments: str) -> None:
    shown = momopay(*arguments.split())
    assert shown.code == 2
    assert "Usage: " in shown.out + shown.err
    assert "Error" not in shown.err


@pytest.mark.parametrize(
    "arguments", [("collect", "--phone", PHONE, "--json"), ("--json", "collect", "--phone", PHONE)]
)
def test_a_wrong_argument_as_json(momopay: Shell, arguments: tuple[str, ...]) -> None:
    error = json.loads(momopay(*arguments).err)
    assert (error["exit_code"], error["message"]) == (2, "Missing option '--amount'.")
    assert error["remedy"] == "`momopay collect --help` shows how it is used"
