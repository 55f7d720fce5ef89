"""Times are of Nairobi, unless a command gets --utc."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from urllib.parse import parse_qs

import pytest

from cli.kit import PHONE, Shell
from momopay.cli.exit_codes import CommandError, ExitCode
from momopay.cli.times import end_of, local, moment_of, use_utc
from momopay.sandbox import Sandbox

NEW_YEAR = datetime(2025, 12, 31, 21, tzinfo=UTC)  # in Nairobi


@pytest.fixture(autouse=True)
def nairobi() -> Iterator[None]:
    use_utc(False)
    yield
    use_utc(False)


def test_a_date_is_one_of_nairobi() -> None:
    assert moment_of("2026-01-01", "--from") == NEW_YEAR
    assert moment_of("2026-01-01T00:00", "--from") == NEW_YEAR
    assert moment_of("2026-01-01T00:00+00:00", "--from") == datetime(2026, 1, 1, tzinfo=UTC)
    assert local(NEW_YEAR).isoformat() == "2026-01-01T00:00:00+03:00"


def test_with_utc_it_is_one_of_utc() -> None:
    use_utc(True)
    assert moment_of("2026-01-01", "--from") == datetime(2026, 1, 1, tzinfo=UTC)
    assert local(NEW_YEAR).isoformat() == "2025-12-31T21:00:00+00:00"


def test_the_end_of_a_date_is_its_last_moment() -> None:
    assert end_of("2026-01-01", "--to").isoformat() == "2026-01-01T23:59:59.999000+03:00"
    assert end_of("2026-01-01T08:00", "--to").isoformat() == "2026-01-01T08:00:00+03:00"
    assert end_of("9999-12-31", "--to").isoformat() == "9999-12-31T00:00:00+03:00"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("2026-13-01", "is not a date"),
        ("tomorrow", "is not a date"),
        ("2026-11-30T25:00", "is not a time"),
        ("0001-01-01", "is not a date"),
    ],
)
def test_what_is_no_time(text: str, problem: str) -> None:
    with pytest.raises(CommandError, match=rf"^--since: {text} {problem}$") as refused:
        moment_of(text, "--since")
    assert refused.value.code is ExitCode.USAGE


@pytest.mark.parametrize(
    "command",
    [
        "transactions list --from",
        "transactions list --to",
        "transactions find --reference X --since",
        "listen --forward-to http://127.0.0.1:1/x --since",
        "reconcile --journal JOURNAL --day",
        "journal list --journal JOURNAL --since",
        "journal list --journal JOURNAL --until",
        "journal anonymise --journal JOURNAL --yes --before",
    ],
)
def test_a_wrong_date_is_refused_by_its_option_and_nothing_is_sent(
    momopay: Shell, sandbox: Sandbox, tmp_path: object, command: str
) -> None:
    words = command.replace("JOURNAL", f"{tmp_path}/new.db").split()
    if "--journal" in words:
        assert momopay("collect", "A", "--amount", "1", "--phone", PHONE, "--journal", f"{tmp_path}/new.db").code == 0
    before = len(sandbox.requests)
    refused = momopay(*words, "2026-13-01")
    assert refused.code == 2
    assert refused.err.startswith(f"Error: {words[-1]}: 2026-13-01 is not a date\nWhat to do: give ")
    assert len(sandbox.requests) == before


def test_a_month_that_is_none(momopay: Shell, tmp_path: object) -> None:
    refused = momopay("reconcile", "--day", "2026-13", "--journal", f"{tmp_path}/no.db")
    assert (refused.code, refused.err.splitlines()[0]) == (2, "Error: --day: 2026-13 is not a month")


def test_times_are_shown_of_nairobi_unless_utc(momopay: Shell) -> None:
    made = momopay("collect", "--no-journal", "--amount", "5", "--phone", PHONE, "--json").json["transaction_id"]
    assert "+03:00" in momopay("transactions", "get", made).out
    in_utc = momopay("transactions", "get", made, "--utc").out
    assert "+00:00" in in_utc
    assert "+03:00" not in in_utc


def test_a_date_reaches_the_service_with_its_zone(momopay: Shell, sandbox: Sandbox) -> None:
    assert momopay("transactions", "list", "--from", "2026-01-01", "--to", "2026-01-31").code == 0
    query = parse_qs(sandbox.requests[-1].query)
    assert query["from"] == ["2026-01-01T00:00:00+03:00"]
    assert query["to"] == ["2026-01-31T23:59:59.999000+03:00"]
