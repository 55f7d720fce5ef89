"""What a journal collected, paid out, refunded and failed to collect each day, and a chart of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from math import ceil
from typing import Final

JUDGED: Final = 100
"""How many of the latest ended prompts the service judges."""
LEAST_RATE: Final = 0.3
"""The success rate below which it refuses prompts for half an hour."""

# The colours of bars and line can be read on light and on dark. Texts have the colour of the page.
_BARS: Final = (
    ("collected", "#2f9e5f"),
    ("paid_out", "#7a5bd0"),
    ("refunded", "#b8770f"),
    ("reversed", "#6f7b86"),
    ("failed", "#d6484a"),
)
_LINE: Final = "#3d86e0"
# All in pixels.
_TOP, _FOOT, _HEIGHT, _RIGHT = 60, 274, 296, 40
_DIGIT, _DATE = 6.5, 48


@dataclass(frozen=True)
class ActivitySum:
    """A number of transactions, and their amounts together.

    Attributes:
        count: How many transactions.
        amount: KES.
    """

    count: int = 0
    amount: Decimal = Decimal(0)

    def __add__(self, other: ActivitySum) -> ActivitySum:
        """Return both together."""
        return ActivitySum(self.count + other.count, self.amount + other.amount)


@dataclass(frozen=True)
class ActivityDay:
    """What ended on one day, as far as the journal knows.

    Attributes:
        date: The day, in the time zone that was asked for.
        collected: The prompts that were paid.
        refunded: The refunds that were paid. Other payouts are in `paid_out`.
        failed: The prompts that ended without success. Another prompt of the same order may have been paid.
        success_rate: Which part of the latest prompts was paid, from 0 to 1: of the last 100 that had ended when the
            day was over, or of fewer if there were no more. None before the first one. The service refuses prompts
            while it counts less than 0.3 of 100.
        judged: How many prompts `success_rate` is of, at most 100.
        paid_out: The payouts that were paid, refunds aside.
        reversed: The payouts and refunds whose money came back. They are in no other sum.
    """

    date: date
    collected: ActivitySum
    refunded: ActivitySum
    failed: ActivitySum
    success_rate: float | None
    judged: int
    paid_out: ActivitySum = ActivitySum()
    reversed: ActivitySum = ActivitySum()


def chart(days: Sequence[ActivityDay], *, width: int = 720) -> str:
    """Return a chart of the days as an SVG element: bars of KES, and the success rate as a line.

    It needs no style sheet and no script, and has no text from outside. At `width` pixels, its letters have 11 of them,
    so a narrow screen needs a chart of its own.
    """
    largest = max((amount for day in days for amount in _amounts(day)), default=Decimal(0))
    top = _scale_end(largest)
    left = 12 + _DIGIT * len(f"{top:,.0f}")
    slot = (width - left - _RIGHT) / max(len(days), 1)
    parts = list(_legend(width))
    for part in (0.0, 0.5, 1.0):
        parts.append(f'<path d="M{left:.1f} {_y(part):.1f}H{width - _RIGHT}" stroke="currentColor" opacity=".25"/>')
        parts.append(_text(left - 5, _y(part) + 4, f"{float(top) * part:,.0f}", "end"))
    step = max(1, ceil(_DATE / slot))  # so that the dates do not touch
    for number, day in enumerate(days):
        x = left + number * slot
        parts.append(f"<g><title>{_words(day)}</title>")
        # Transparent, so that the pointer need not meet a bar.
        parts.append(_rectangle(x, slot, 1, "transparent"))
        for place, amount in enumerate(_amounts(day)):
            share = float(amount / top)
            parts.append(_rectangle(x + (0.1 + 0.16 * place) * slot, 0.15 * slot, share, _BARS[place][1]))
        parts.append("</g>")
        if number % step == 0:
            parts.append(_text(x + slot / 2, _HEIGHT - 6, f"{day.date.day} {day.date:%b}", "middle"))
    parts += _rates(days, left, slot)
    sums = "KES collected, paid out, refunded, reversed and failed each day"
    label = f"{sums}, and the success rate of prompts, of {len(days)} days"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {_HEIGHT}" role="img" aria-label="{label}"'
        f' font-family="sans-serif" font-size="11" fill="currentColor">{"".join(parts)}</svg>'
    )


def _rates(days: Sequence[ActivityDay], left: float, slot: float) -> Iterator[str]:
    """Yield the scale of the success rate, the limit as a broken line, and the rates as a line."""
    right = left + slot * len(days)
    for share in (0.0, LEAST_RATE, 1.0):
        yield _text(right + 5, _y(share) + 4, f"{share:.0%}")
    yield f'<path d="M{left:.1f} {_y(LEAST_RATE):.1f}H{right:.1f}" stroke="{_LINE}" stroke-dasharray="4 4"/>'
    rates = [(left + (number + 0.5) * slot, day.success_rate) for number, day in enumerate(days)]
    points = [(x, _y(rate)) for x, rate in rates if rate is not None]
    if points:
        path = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
        yield f'<path d="M{path}" fill="none" stroke="{_LINE}" stroke-width="2.5"/>'
        # On the first day there is no line, and today's rate is what counts.
        yield f'<circle cx="{points[-1][0]:.1f}" cy="{points[-1][1]:.1f}" r="4.5" fill="{_LINE}"/>'


def _legend(width: int) -> Iterator[str]:
    entries = [(f"{name.capitalize().replace('_', ' ')}, KES", colour) for name, colour in _BARS]
    for number, (name, colour) in enumerate([*entries, (f"Success rate of {JUDGED} prompts", _LINE)]):
        x, y = 8 + number % 2 * width / 2, 16 + number // 2 * 16
        yield f'<rect x="{x:.1f}" y="{y - 9}" width="10" height="10" fill="{colour}"/>' + _text(x + 15, y, name)


def _amounts(day: ActivityDay) -> tuple[Decimal, ...]:
    return tuple(getattr(day, name).amount for name, _ in _BARS)


def _words(day: ActivityDay) -> str:
    found = ((name.replace("_", " "), getattr(day, name)) for name, _ in _BARS)
    sums = (f"{name} KES {each.amount:,.2f} ({each.count})" for name, each in found)
    rate = "" if day.success_rate is None else f"; success rate {day.success_rate:.0%} of {day.judged}"
    return f"{day.date}: {', '.join(sums)}{rate}"


def _scale_end(largest: Decimal) -> Decimal:
    """Return 1, 2 or 5 with zeros, for the end of a scale that has room for this amount."""
    power = Decimal(10) ** max(largest, Decimal(10)).adjusted()
    return next(power * step for step in (1, 2, 5, 10) if power * step >= largest)


def _y(share: float) -> float:
    return _FOOT - share * (_FOOT - _TOP)


def _rectangle(x: float, width: float, share: float, colour: str) -> str:
    height = share * (_FOOT - _TOP)
    return f'<rect x="{x:.1f}" y="{_y(share):.1f}" width="{width:.1f}" height="{height:.1f}" fill="{colour}"/>'


def _text(x: float, y: float, content: str, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{content}</text>'
