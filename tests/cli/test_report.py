"""The report: its numbers, and how it looks in headless Chromium."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from chromium import Tab

from cli.kit import Shell
from journal.constants import ACCEPTED, PAYOUT
from journal.database_kit import execute
from journal.kit import put, put_collection
from momopay import Journal

NOW = datetime.now(UTC)


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    journal = Journal(f"sqlite:///{tmp_path / 'shop.db'}")
    for number, days in enumerate((0, 0, 3, 8, 8, 40)):
        name = f"INV-{number}"
        put_collection(journal, name, 1250 + number, ["FAILED"] * (number % 2) + ["SUCCESS"])
        ended = (NOW - timedelta(days=days)).isoformat()
        execute(journal, f"UPDATE momopay_transactions SET ended_at = '{ended}' WHERE reference = '{name}'")
    return journal


@pytest.fixture
def paid_out(journal: Journal) -> None:
    for name, amount, status in (("S-1", 15500, "SUCCESS"), ("S-2", 31000, "SUCCESS"), ("S-3", 700, "REVERSED")):
        put(journal, name, ACCEPTED, PAYOUT, amount=amount, status=status)
        execute(journal, f"UPDATE momopay_transactions SET ended_at = '{NOW.isoformat()}' WHERE reference = '{name}'")


@pytest.fixture
def report(momopay: Shell, journal: Journal, tmp_path: Path) -> Path:
    path = tmp_path / "report.html"
    assert momopay("report", "--html", str(path), "--timezone", "UTC", "--journal", str(tmp_path / "shop.db")).code == 0
    return path


@pytest.mark.usefixtures("paid_out")
def test_a_payroll_is_in_the_report(momopay: Shell, report: Path) -> None:
    done = momopay("report", "--html", str(report), "--days", "7", "--journal", str(report.with_name("shop.db")))
    assert done.prints(0, "The last 7 days", "Collected 3 3,753.00", "Paid out 2 46,500.00", "Reversed 1 700.00")


@pytest.mark.usefixtures("paid_out")
def test_the_numbers_are_the_librarys(momopay: Shell, journal: Journal, report: Path) -> None:
    database, page = str(report.with_name("shop.db")), report.read_text()
    done = momopay("report", "--html", str(report), "--days", "7", "--timezone", "UTC", "--json", "--journal", database)
    (day, *_), today = done.json["days"], done.json["days"][-1]
    assert today["date"] == journal.activity(7, zone=UTC)[-1].date.isoformat()
    assert today["collected"] == {"count": 2, "amount": "2501"}
    assert today["failed"] == {"count": 1, "amount": "1251"}
    assert (len(done.json["days"]), day["collected"]["count"]) == (7, 0)
    # The page's sums are of all days.
    for cells in (("Collected", "6,260.00", "5"), ("Paid out", "46,500.00", "2"), ("Failed", "2,504.00", "2")):
        assert "<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) in page


def test_only_its_owner_may_read_it(report: Path) -> None:
    assert report.stat().st_mode & 0o777 == 0o600


def test_the_journal_is_not_overwritten_nor_a_new_one_made(momopay: Shell, report: Path, tmp_path: Path) -> None:
    database = str(tmp_path / "shop.db")
    assert momopay("report", "--html", database, "--journal", database).says(2, "is a database")
    before = {*tmp_path.iterdir()}
    assert momopay("report", "--html", f"{tmp_path}/b.html", "--journal", f"{tmp_path}/missing.db").code == 3
    assert {*tmp_path.iterdir()} == before


def test_an_empty_journal_has_a_report(momopay: Shell, tmp_path: Path) -> None:
    with Journal(f"sqlite:///{tmp_path / 'new.db'}") as journal:
        journal.unresolved()
    path = tmp_path / "report.html"
    assert momopay("report", "--html", str(path), "--journal", str(tmp_path / "new.db")).prints(0, "Written to")
    assert "No prompt has ended" in path.read_text()


@pytest.mark.browser
@pytest.mark.parametrize(("width", "chart", "scheme"), [(390, ".narrow", "dark"), (1280, ".wide", "light")])
def test_it_can_be_read(tab: Tab, report: Path, width: int, chart: str, scheme: str) -> None:
    tab.set_window(width=width, height=900, scheme=scheme)
    tab.open(report.as_uri())
    assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth"), "it does not scroll sideways"
    letters = f"document.querySelector('{chart} text').getBoundingClientRect().height"
    assert 10 <= tab.evaluate(letters) <= 20
    assert tab.evaluate("[...document.querySelectorAll('svg')].filter((each) => each.checkVisibility()).length") == 1
    ground = tab.evaluate("getComputedStyle(document.documentElement).backgroundColor.match(/\\d+/g).map(Number)")
    letter = tab.evaluate(f"getComputedStyle(document.querySelector('{chart} text')).fill.match(/\\d+/g).map(Number)")
    assert (max(ground) < 60, min(letter) > 200) == (scheme == "dark", scheme == "dark")
    assert tab.faults == []
