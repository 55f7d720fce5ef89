"""What ended on each day, in a zone, and the chart of it."""

from datetime import UTC, date, datetime, timedelta, tzinfo
from decimal import Decimal
from itertools import pairwise
from xml.etree import ElementTree as ET
from zoneinfo import ZoneInfo

import pytest

from journal.constants import ACCEPTED, PAYOUT
from journal.database_kit import execute
from journal.kit import put, put_collection
from momopay import Journal, RequestValidationError
from momopay.journal.activity import chart
from momopay.types import ActivityDay, ActivitySum

NAIROBI = ZoneInfo("Africa/Nairobi")
LAST = date(2026, 11, 20)
NOTHING = ActivitySum()
SVG = "{http://www.w3.org/2000/svg}"


def end_at(journal: Journal, reference: str, when: str) -> None:
    execute(journal, f"UPDATE momopay_transactions SET ended_at = '{when}' WHERE reference = '{reference}'")


def sums(day: ActivityDay) -> list[tuple[int, Decimal]]:
    return [(each.count, each.amount) for each in (day.collected, day.refunded, day.failed)]


def payouts(day: ActivityDay) -> list[tuple[int, Decimal]]:
    return [(each.count, each.amount) for each in (day.paid_out, day.reversed)]


def test_each_end_is_in_the_sum_of_its_day(journal: Journal) -> None:
    put_collection(journal, "twice", 100, ["FAILED", "CANCELLED", "SUCCESS"])
    put_collection(journal, "cents", 10, ["SUCCESS"])
    execute(journal, "UPDATE momopay_transactions SET amount = '10.10' WHERE reference = 'cents'")
    put_collection(journal, "open", 1000, ["PENDING"])
    put(journal, "refund", ACCEPTED, PAYOUT, amount=40, refund_of="twice", status="SUCCESS")
    put(journal, "returned", ACCEPTED, PAYOUT, amount=50, refund_of="twice", status="REVERSED")
    put(journal, "salary", ACCEPTED, PAYOUT, amount=5000, status="SUCCESS")
    put(journal, "wage", ACCEPTED, PAYOUT, amount=700, status="SUCCESS")
    put(journal, "back", ACCEPTED, PAYOUT, amount=300, status="REVERSED")
    for open_ in ("FAILED", "PENDING"):  # FAILED: the money is on its way back
        put(journal, open_, ACCEPTED, PAYOUT, amount=9, status=open_)
    (day,) = journal.activity(1, last=LAST, zone=UTC)
    assert sums(day) == [(2, Decimal("110.10")), (1, Decimal(40)), (2, Decimal(200))]
    assert payouts(day) == [(2, Decimal(5700)), (2, Decimal(350))], "refunds that came back are reversed, too"
    assert (day.date, day.success_rate, day.judged) == (LAST, 0.5, 4)


@pytest.mark.parametrize(
    ("zone", "when", "days"),
    [
        (UTC, "2026-11-20T00:00:00+00:00", [0, 1, 0]),
        (UTC, "2026-11-19T23:59:59.999999+00:00", [1, 0, 0]),
        (NAIROBI, "2026-11-19T21:00:00+00:00", [0, 1, 0]),
        (NAIROBI, "2026-11-19T20:59:59.999999+00:00", [1, 0, 0]),
        (NAIROBI, "2026-11-20T21:00:00.000001+00:00", [0, 0, 1]),
        (ZoneInfo("Asia/Kathmandu"), "2026-11-19T18:15:00+00:00", [0, 1, 0]),
    ],
)
def test_a_day_begins_at_midnight_in_its_zone(journal: Journal, zone: tzinfo, when: str, days: list[int]) -> None:
    put_collection(journal, "o")
    end_at(journal, "o", when)
    found = journal.activity(3, last=LAST + timedelta(days=1), zone=zone)
    assert [each.collected.count for each in found] == days
    assert [each.date for each in found] == [LAST - timedelta(days=1), LAST, LAST + timedelta(days=1)]


def test_the_day_on_which_a_clock_is_set_back_has_25_hours(journal: Journal) -> None:
    put_collection(journal, "o")
    end_at(journal, "o", "2026-10-25T22:30:00+00:00")
    (day,) = journal.activity(1, last=date(2026, 10, 25), zone=ZoneInfo("Europe/Berlin"))
    assert day.collected.count == 1


def test_the_rate_is_of_the_latest_hundred_and_begins_before_the_first_day(journal: Journal) -> None:
    put_collection(journal, "older", 1, ["SUCCESS"] * 30)
    end_at(journal, "older", "2026-11-01T10:00:00+00:00")
    put_collection(journal, "old", 1, ["FAILED"] * 80)
    end_at(journal, "old", "2026-11-18T10:00:00+00:00")
    put_collection(journal, "new", 1, ["SUCCESS"] * 10)
    before, day, after = journal.activity(3, last=LAST + timedelta(days=1), zone=UTC)
    assert (before.success_rate, before.judged) == (0.2, 100)
    assert (day.success_rate, day.judged) == (0.2, 100), "of 30 old ones, the last ten, and ten new ones"
    assert (after.collected, after.success_rate) == (NOTHING, 0.2)


def test_a_journal_without_prompts_has_no_rate(journal: Journal) -> None:
    (day,) = journal.activity(1)
    assert (day.collected, day.refunded, day.failed) == (NOTHING,) * 3
    assert (day.success_rate, day.judged) == (None, 0)
    assert day.date == datetime.now().astimezone().date()


@pytest.mark.parametrize("count", [0, -1, 367, True, 1.5])
def test_a_senseless_number_of_days_is_refused(journal: Journal, count: int) -> None:
    with pytest.raises(RequestValidationError, match="days"):
        journal.activity(count)


@pytest.mark.parametrize("last", [date.min, date.max])
def test_days_at_the_edge_of_the_calendar_are_refused(journal: Journal, last: date) -> None:
    with pytest.raises(RequestValidationError, match="last"):
        journal.activity(30, last=last, zone=NAIROBI)


def made(*amounts: int) -> list[ActivityDay]:
    """Make a day for each amount: so much collected, half of it refunded, and a rate of a half."""
    return [
        ActivityDay(
            LAST + timedelta(days=number),
            ActivitySum(2, Decimal(amount)),
            ActivitySum(1, Decimal(amount) / 2),
            NOTHING,
            0.5,
            10,
        )
        for number, amount in enumerate(amounts)
    ]


@pytest.mark.parametrize(
    ("amount", "top"), [(0, "10"), (3, "10"), (11, "20"), (20, "20"), (51, "100"), (4_500_000, "5,000,000")]
)
def test_the_scale_has_room_for_the_largest_amount(amount: int, top: str) -> None:
    drawn = ET.fromstring(chart(made(amount, amount // 3)))
    assert top in [each.text for each in drawn.iter(f"{SVG}text")]


def test_the_bars_are_as_high_as_the_amounts() -> None:
    drawn = ET.fromstring(chart(made(1000, 250)))
    heights = [[float(bar.attrib["height"]) for bar in day.iter(f"{SVG}rect")] for day in drawn.iter(f"{SVG}g")]
    (area, *first), (_, *second) = heights
    assert first == [area, 0, area / 2, 0, 0]
    assert second == pytest.approx([area / 4, 0, area / 8, 0, 0], abs=0.1)
    titles = [each.text for each in drawn.iter(f"{SVG}title")]
    assert titles[0] == (
        "2026-11-20: collected KES 1,000.00 (2), paid out KES 0.00 (0), refunded KES 500.00 (1), reversed KES 0.00 (0),"
        " failed KES 0.00 (0); success rate 50% of 10"
    )


@pytest.mark.parametrize("count", [0, 1, 30, 366])
@pytest.mark.parametrize("width", [360, 1200])
def test_everything_is_inside_the_chart(count: int, width: int) -> None:
    drawn = ET.fromstring(chart(made(*range(1, count + 1)), width=width))
    texts = [float(each.attrib["x"]) for each in drawn.iter(f"{SVG}text")]
    bars = [float(each.attrib["x"]) + float(each.attrib["width"]) for each in drawn.iter(f"{SVG}rect")]
    assert all(0 <= each <= width for each in [*texts, *bars])
    dates = [float(each.attrib["x"]) for each in drawn.iter(f"{SVG}text") if each.attrib["text-anchor"] == "middle"]
    assert all(later - earlier >= 40 for earlier, later in pairwise(dates))


def test_days_without_prompts_have_no_line() -> None:
    nothing = [ActivityDay(LAST, NOTHING, NOTHING, NOTHING, None, 0)]
    assert "<circle" not in chart(nothing)
    assert "<circle" in chart(made(1))  # a point alone is no line
