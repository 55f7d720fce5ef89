"""How values are shown: exact as JSON, readable in tables, and harmless to a terminal."""

import json
import sys
import time
import zoneinfo
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from urllib.parse import parse_qs

import pytest
from rich.table import Table

from cli.kit import NORMALISED, PHONE, Shell
from in_turn import in_turn
from momopay.cli.output import Output, end_of, in_lines, local, moment, moment_of, use_timezone
from momopay.sandbox import Sandbox
from patience import LONGEST

WHEN = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)
ID = "0a1b2c3d-0712-4345-8678-0a1b2c3d4e5f"
REFERENCE = "SALARY-2026-NOVEMBER-WAREHOUSE-0002"
PAID = {"transaction_id": ID, "amount": Decimal("9123.50"), "reference": REFERENCE}
COLUMNS = {"Transaction": "transaction_id", "KES": "amount", "Reference": "reference"}


def as_json(capsys: pytest.CaptureFixture[str], document: object, *, show_phones: bool = False) -> dict[str, object]:
    Output(as_json=True, show_phones=show_phones).result(document, "not shown")
    shown: dict[str, object] = json.loads(capsys.readouterr().out)
    return shown


def as_text(capsys: pytest.CaptureFixture[str], *shown: object) -> str:
    Output(as_json=False).result({"not": "shown"}, *shown)
    return capsys.readouterr().out


def test_json_is_exact(capsys: pytest.CaptureFixture[str]) -> None:
    plain = {"none": None, "ok": True, "rows": 3}
    document = {"amounts": [Decimal("1234567.50"), Decimal(100)], "at": WHEN, **plain}
    assert as_json(capsys, document) == {"amounts": ["1234567.50", "100"], "at": "2026-01-05T09:00:00+00:00", **plain}


def test_phones_are_masked_unless_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    ids = {"transaction_id": ID, "next_cursor": NORMALISED}
    document = {"phone": "unusual-123456", "reference": f"for {NORMALISED}", **ids}
    assert as_json(capsys, document) == {"phone": "unus*****456", "reference": "for 2547*****678", **ids}
    assert as_json(capsys, document, show_phones=True) == document


def table(rows: Iterable[object], columns: dict[str, str], title: str | None = None) -> Table:
    return Output(as_json=False).table(rows, columns, title)


def test_cells_are_formatted_by_their_type(capsys: pytest.CaptureFixture[str]) -> None:
    row = {"name": "a", "amount": Decimal("1234567.5"), "at": WHEN, "none": None, "rows": 3}
    shown = as_text(capsys, table([row], {"Name": "name", "KES": "amount", "At": "at", "None": "none", "Rows": "rows"}))
    assert shown.splitlines()[-1].split() == ["a", "1,234,567.50", "2026-01-05", "12:00:00", "EAT", "3"]
    assert moment(WHEN) == "2026-01-05 12:00:00 EAT"


def test_a_time_at_the_edge_of_the_calendar_is_shown_in_its_own_zone() -> None:
    assert moment(datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)) == "9999-12-31 23:59:59 UTC"
    first = datetime.fromisoformat("0001-01-01T00:00:00+03:00")
    assert moment(first) == "0001-01-01 00:00:00 UTC+03:00"


def test_a_record_shows_what_has_a_value_as_a_person_reads_it(capsys: pytest.CaptureFixture[str]) -> None:
    prompts = [{"transaction_id": ID, "status": "FAILED", "fee": None}, {"transaction_id": "t", "fee": Decimal(2)}]
    document = {"phone": NORMALISED, "amount": Decimal("9.5"), "created_at": WHEN, "receipt": None, "is_paid": False}
    Output(as_json=False).record({**document, "prompts": prompts, "secret": 1}, "secret")
    assert [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()] == [
        "Phone 2547*****678",
        "Amount KES 9.50",
        "Created 2026-01-05 12:00:00 EAT",
        f"Prompts transaction_id {ID}, status FAILED",
        "transaction_id t, fee 2.00",
    ]


def test_a_text_cannot_drive_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    written = as_text(capsys, table([{"a": "\x1b[2J[red]x[/red]"}], {"A": "a"}))
    assert "\x1b" not in written
    assert "[red]x[/red]" in written


@pytest.mark.whole
def test_a_character_that_the_terminal_lacks_is_escaped(momopay: Shell) -> None:
    in_latin = Shell({**momopay.settings, "PYTHONIOENCODING": "latin-1"})
    with in_latin.start("collect", "\u017dofia", "--no-journal", "--amount", "5", "--phone", PHONE) as started:
        out, _ = started.communicate(timeout=LONGEST)
    assert (started.returncode, "\\u017dofia" in out) == (0, True)


def test_what_is_closed_is_not_written_to(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    Output(as_json=False).note("not a result")
    assert capsys.readouterr().out == ""
    monkeypatch.setattr(sys, "stdout", None)
    for as_json in (True, False):
        Output(as_json).result({"a": 1}, "shown")


@pytest.mark.parametrize("columns", ["80", "200"])
def test_no_cell_is_cut_off(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, columns: str) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    shown = as_text(capsys, table([PAID], COLUMNS))
    assert ID in shown
    assert "9,123.50" in shown
    start = shown.splitlines()[0].index("Reference")
    assert "".join(line[start:].strip() for line in shown.splitlines()[2:]) == REFERENCE


@pytest.mark.parametrize("columns", [20, 40, 60, 79])
def test_a_narrow_table_shows_each_record_as_lines(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    made = table([PAID, PAID | {"reference": None}], {"": "amount", **COLUMNS}, "Payments of this month")
    lines = as_text(capsys, made).splitlines()
    assert max(len(line.rstrip()) for line in lines) <= max(columns, 36)
    assert lines[0].strip() == "Payments of this month"
    assert (len([line for line in lines if ID in line]), "9,123.50" in lines[1]) == (2, True)
    words = " ".join(" ".join(lines).split())
    assert f"Transaction {ID} KES 9,123.50 Reference SALARY-2026-NOVEMBER" in words
    assert words.count("Reference") == 1, "an empty cell has no heading"
    assert as_text(capsys, table([], COLUMNS)).strip() == "Nothing"


@pytest.mark.parametrize(("columns", "lines"), [("40", 3), ("60", 2), ("80", 1)])
def test_a_sentence_ends_at_a_word_on_a_narrow_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, columns: str, lines: int
) -> None:
    """A pipe of the usual width has each on one line, for programs that search it."""
    monkeypatch.setenv("COLUMNS", columns)
    sentence = "What is sent is paid, and what is not sent is said to be not sent, each time, in words."
    shown = as_text(capsys, sentence).splitlines()
    assert (len(shown), " ".join(line.strip() for line in shown)) == (lines, sentence)


NEW_YEAR = datetime(2025, 12, 31, 21, tzinfo=UTC)  # in Nairobi


@pytest.fixture(autouse=True)
def nairobi() -> Iterator[None]:
    use_timezone("Africa/Nairobi")
    yield
    use_timezone(None)


def test_a_date_is_one_of_the_zone_and_its_end_is_its_last_moment() -> None:
    assert moment_of("2026-01-01") == moment_of("2026-01-01T00:00") == NEW_YEAR
    assert moment_of("2026-01-01T00:00+00:00") == datetime(2026, 1, 1, tzinfo=UTC)
    assert local(NEW_YEAR).isoformat() == "2026-01-01T00:00:00+03:00"
    for day in ("2026-01-01", "9999-12-31"):
        assert end_of(day).isoformat() == f"{day}T23:59:59.999000+03:00"
    assert end_of("2026-01-01T08:00").isoformat() == "2026-01-01T08:00:00+03:00"
    use_timezone("UTC")
    assert moment_of("2026-01-01") == datetime(2026, 1, 1, tzinfo=UTC)
    assert local(NEW_YEAR).isoformat() == "2025-12-31T21:00:00+00:00"


def test_by_default_times_are_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    use_timezone(None)
    with monkeypatch.context() as patched:
        patched.setenv("TZ", "Europe/Berlin")
        time.tzset()
        assert [moment(datetime(2026, month, 1, tzinfo=UTC))[-8:] for month in (1, 7)] == ["0:00 CET", ":00 CEST"]
        assert moment_of("2026-07-01").isoformat() == "2026-07-01T00:00:00+02:00"
        use_timezone("America/New_York")
        assert moment(datetime(2026, 7, 1, tzinfo=UTC)) == "2026-06-30 20:00:00 EDT"
        assert moment_of("2026-01-01").isoformat() == "2026-01-01T00:00:00-05:00"
    time.tzset()


@in_turn("name", ["Mars", "", "Africa", "../Nairobi", "/etc/passwd", "EAT"])
def test_a_zone_that_there_is_not_is_refused(momopay: Shell, sandbox: Sandbox, name: str) -> None:
    assert momopay("transactions", "list", "--timezone", name).says(2, f"--timezone: there is no zone '{name}'")
    assert sandbox.requests == []


def test_a_machine_without_zones_is_told_what_installs_them(
    momopay: Shell, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ["tzdata", *(each for each in sys.modules if each.startswith("tzdata."))]:
        monkeypatch.setitem(sys.modules, name, None)  # as in a slim container, and on Windows
    zoneinfo.reset_tzpath(to=[])
    zoneinfo.ZoneInfo.clear_cache()
    try:
        done = momopay("transactions", "list", "--timezone", "Africa/Nairobi")
        assert done.says(2, "--timezone: this machine has no time zones: pip install tzdata")
    finally:
        zoneinfo.reset_tzpath()
        zoneinfo.ZoneInfo.clear_cache()
    assert sandbox.requests == []
    assert momopay("transactions", "list", "--timezone", "Africa/Nairobi").code == 0


def test_a_wrong_date_names_its_option_and_nothing_is_sent(momopay: Shell, sandbox: Sandbox, tmp_path: Path) -> None:
    path = f"{tmp_path}/new.db"
    assert momopay("collect", "A", "--amount", "1", "--phone", PHONE, "--journal", path).code == 0
    before = len(sandbox.requests)
    for text, problem in (("tomorrow", "a date"), ("2026-11-30T25:00", "a time"), ("0001-01-01", "a date")):
        assert momopay("transactions", "list", "--from", text).says(2, f"--from: {text} is not {problem}, such as ")
    for command in (
        *("transactions list --from", "transactions list --to", "transactions find --reference X --since"),
        *("reconcile --day", "journal list --since", "journal list --until", "journal anonymise --yes --before"),
    ):
        words, problem = command.split(), "2026-13-01 is not a date, such as 2026-11-30 or "
        assert momopay(*words, "2026-13-01", MOMOPAY_JOURNAL=path).says(2, f"Error: {words[-1]}: {problem}")
    assert len(sandbox.requests) == before


def test_dates_and_times_of_a_command_are_of_its_zone(momopay: Shell, sandbox: Sandbox) -> None:
    made = momopay("collect", "--no-journal", "--amount", "5", "--phone", PHONE, "--json").json["transaction_id"]
    nairobi = ("--timezone", "Africa/Nairobi")
    for option, zone in ((nairobi, "EAT"), (("--timezone", "UTC"), "UTC"), ((), moment(datetime.now(UTC)).split()[2])):
        assert momopay("transactions", "get", made, *option).out.count(f" {zone} ") == 2
    # The zone goes first, wherever it stands.
    assert momopay("transactions", "list", "--from", "2026-01-01", *nairobi, "--to", "2026-01-31").code == 0
    query = parse_qs(sandbox.requests[-1].query)
    assert (query["from"], query["to"]) == (["2026-01-01T00:00:00+03:00"], ["2026-01-31T23:59:59.999000+03:00"])


@pytest.mark.parametrize(("columns", "lines"), [("40", 3), ("60", 2), ("80", 1)])
def test_a_question_leaves_room_for_the_answer(monkeypatch: pytest.MonkeyPatch, columns: str, lines: int) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    asked = in_lines("Pay KES 46,500.50 in 3 payouts to 3 phones now? The journal is new, so nobody counts.")
    assert asked.count("\n") == lines - 1
    assert all(len(f"{line} [y/N]: y") <= int(columns) for line in asked.splitlines() if lines > 1)


def test_a_long_name_of_a_zone_gives_way_to_its_offset(monkeypatch: pytest.MonkeyPatch) -> None:
    windows = timezone(timedelta(hours=3), "E. Africa Standard Time")

    def local(when: datetime) -> datetime:
        return when.astimezone(windows)

    monkeypatch.setattr("momopay.cli.output.local", local)
    assert moment(NEW_YEAR) == "2026-01-01 00:00:00 +03:00"


def test_on_windows_a_pipe_is_as_wide_as_elsewhere(momopay: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """rich takes it for a console that knows no escape sequences, of whose columns it leaves one free."""
    monkeypatch.setattr("rich.console.detect_legacy_windows", lambda: True)
    refused = momopay("collect", " ", "--amount", "1,5", "--phone", "12")
    assert len(refused.err.splitlines()) == 2
