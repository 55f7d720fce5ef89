"""Draws diagrams of states as SVG that follows the theme's light and dark schemes. The page needs no script for it.

A fence of the language `states` holds a grid, an empty line, and arrows:

    .        | [*]     | .
    REFUSED  | SENDING | ACCEPTED

    [*] -> SENDING: committed
    SENDING -> REFUSED: refused
    SENDING -> ACCEPTED: accepted

Each line of the grid is a row, with bars between its cells. `.` is an empty cell, `[*]` the start, `(*)` the end.
Arrows are straight. Two states with arrows in both directions get two parallel lines.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from math import hypot
from textwrap import wrap
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

FENCE = re.compile(r"^```states\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
_ARROW = re.compile(r"(?P<start>.+?) -> (?P<end>.+?): (?P<label>.+)|(?P<from>.+?) -> (?P<to>.+)")
_MARKS = {"[*]": "start", "(*)": "end"}

# CSS pixels at full size. The width of a character is an estimate, since the reader's fonts are unknown.
_CHARACTER = 8.2
_LABEL_CHARACTER = 6.6
_LINE = 16
_COLUMNS = 12  # of text in a box or in a label
_GAP_X = 96
_GAP_Y = 64
_MARGIN = 4
_MARK_RADIUS = 8
_HALF_PAIR = 8  # half the distance between two parallel arrows


@dataclass(frozen=True)
class State:
    """A box, or the mark of the start or the end."""

    name: str
    x: float
    y: float
    half_width: float
    half_height: float

    def border_towards(self, dx: float, dy: float) -> float:
        """Return the distance from the middle to the border along a direction of length 1."""
        if self.name in _MARKS:
            return self.half_width
        return min(half / abs(part) for half, part in ((self.half_width, dx), (self.half_height, dy)) if part)


@dataclass(frozen=True)
class Arrow:
    """A transition: where its line begins and ends, and where its label is."""

    x1: float
    y1: float
    x2: float
    y2: float
    label: list[str]
    paired: bool

    @classmethod
    def between(cls, start: State, end: State, label: str, *, paired: bool) -> Arrow:
        """Return the arrow from the border of one state to the border of another."""
        dx, dy = end.x - start.x, end.y - start.y
        length = hypot(dx, dy)
        dx, dy = dx / length, dy / length
        leave, reach = start.border_towards(dx, dy) + 2, length - end.border_towards(dx, dy) - 3
        # A pair keeps to the right of its direction, so that the way there and the way back do not meet.
        side = _HALF_PAIR if paired else 0
        x, y = start.x - dy * side, start.y + dx * side
        return cls(x + dx * leave, y + dy * leave, x + dx * reach, y + dy * reach, wrap(label, _COLUMNS), paired)

    def label_place(self) -> tuple[float, float, str]:
        """Return the left, middle or right x of the label, the y of its middle line, and which x it is."""
        along = 0.4 if self.paired else 0.5  # labels of a pair keep clear of each other
        x, y = self.x1 + (self.x2 - self.x1) * along, self.y1 + (self.y2 - self.y1) * along
        half_text = len(self.label) * _LINE / 2
        if abs(self.x2 - self.x1) < 1:
            return x + 7, y, "start"
        if abs(self.y2 - self.y1) < 1:
            below = self.paired and self.x2 > self.x1
            return (self.x1 + self.x2) / 2, y + (half_text + 3 if below else -half_text - 3), "middle"
        return x, y, "middle"


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Replace each fence of states by its drawing (a hook of mkdocs)."""
    del page, config, files
    return FENCE.sub(lambda fence: svg(fence["text"]), markdown)


def svg(text: str) -> str:
    """Return the drawing of a fence as one line of HTML.

    Raises:
        ValueError: An arrow is malformed, or names a state that is not in the grid.
    """
    grid, _, rest = text.strip().partition("\n\n")
    states = _placed([[cell.strip() for cell in row.split("|")] for row in grid.splitlines()])
    transitions = [_parsed(line, states) for line in rest.splitlines()]
    ends = {(start, end) for start, end, _ in transitions}
    arrows = [
        Arrow.between(states[start], states[end], label, paired=(end, start) in ends)
        for start, end, label in transitions
    ]
    summary = "; ".join(
        f"{_MARKS.get(start, start)} to {_MARKS.get(end, end)}" + (f", {label}" if label else "")
        for start, end, label in transitions
    )
    right_of_labels = (
        arrow.label_place()[0] + max(map(len, arrow.label)) * _LABEL_CHARACTER
        for arrow in arrows
        if arrow.label and arrow.label_place()[2] == "start"
    )
    width = max([*(state.x + state.half_width for state in states.values()), *right_of_labels]) + _MARGIN
    height = max(state.y + state.half_height for state in states.values()) + _MARGIN
    parts = [part for arrow in arrows for part in _line(arrow)]
    parts += [part for state in states.values() for part in _shape(state)]
    parts += [_text(arrow.label, *arrow.label_place(), "label") for arrow in arrows if arrow.label]
    return (
        f'<div class="diagram"><svg viewBox="0 0 {width:.0f} {height:.0f}" style="max-width: {width:.0f}px" role="img">'
        f"<title>States: {escape(summary)}</title>{''.join(parts)}</svg></div>"
    )


def _parsed(line: str, states: dict[str, State]) -> tuple[str, str, str]:
    found = _ARROW.fullmatch(line)
    if found is None:
        raise ValueError(f"not an arrow: {line}")
    start, end = found["start"] or found["from"], found["end"] or found["to"]
    if unknown := {start, end} - states.keys():
        raise ValueError(f"not in the grid: {', '.join(unknown)}")
    return start, end, found["label"] or ""


def _placed(rows: list[list[str]]) -> dict[str, State]:
    """Return the states by name; a column is as wide and a row as high as its largest cell."""
    columns = max(map(len, rows))
    widths = [max(_half_extents(row[n])[0] for row in rows if n < len(row)) for n in range(columns)]
    states: dict[str, State] = {}
    top = float(_MARGIN)
    for row in rows:
        half_row = max(_half_extents(cell)[1] for cell in row)
        left = float(_MARGIN)
        for cell, half_column in zip(row, widths, strict=False):
            if cell != ".":
                states[cell] = State(cell, left + half_column, top + half_row, *_half_extents(cell))
            left += 2 * half_column + _GAP_X
        top += 2 * half_row + _GAP_Y
    return states


def _half_extents(name: str) -> tuple[float, float]:
    if name in _MARKS:
        return _MARK_RADIUS, _MARK_RADIUS
    lines = wrap(name, _COLUMNS)
    return (max(map(len, lines)) * _CHARACTER / 2 + 9, len(lines) * _LINE / 2 + 9) if name != "." else (0, 0)


def _line(arrow: Arrow) -> Iterator[str]:
    dx, dy = arrow.x2 - arrow.x1, arrow.y2 - arrow.y1
    dx, dy = dx / hypot(dx, dy), dy / hypot(dx, dy)
    back_x, back_y = arrow.x2 - 9 * dx, arrow.y2 - 9 * dy
    yield f'<path class="line" d="M{arrow.x1:.1f} {arrow.y1:.1f}L{back_x:.1f} {back_y:.1f}"/>'
    corners = ((back_x - 4 * dy, back_y + 4 * dx), (back_x + 4 * dy, back_y - 4 * dx))
    yield f'<path class="head" d="M{arrow.x2:.1f} {arrow.y2:.1f}' + "".join(f"L{x:.1f} {y:.1f}" for x, y in corners)
    yield 'Z"/>'


def _shape(state: State) -> Iterator[str]:
    if state.name in _MARKS:
        kind = _MARKS[state.name]
        yield f'<circle class="{kind}" cx="{state.x:.1f}" cy="{state.y:.1f}" r="{_MARK_RADIUS - 1}"/>'
        if kind == "end":
            yield f'<circle class="start" cx="{state.x:.1f}" cy="{state.y:.1f}" r="{_MARK_RADIUS - 5}"/>'
        return
    left, top = state.x - state.half_width, state.y - state.half_height
    size = f'width="{2 * state.half_width:.1f}" height="{2 * state.half_height:.1f}"'
    yield f'<rect class="box" x="{left:.1f}" y="{top:.1f}" {size} rx="5"/>'
    yield _text(wrap(state.name, _COLUMNS), state.x, state.y, "middle", "name")


def _text(lines: list[str], x: float, y: float, anchor: str, kind: str) -> str:
    first = y - (len(lines) - 1) * _LINE / 2 + 4.5  # from the middle of a line down to its baseline
    spans = (f'<tspan x="{x:.1f}" y="{first + n * _LINE:.1f}">{escape(line)}</tspan>' for n, line in enumerate(lines))
    return f'<text class="{kind}" text-anchor="{anchor}">{"".join(spans)}</text>'
