"""Diagrams of states: what a fence must hold, and what its drawing has."""

from __future__ import annotations

import re
from typing import Any
from xml.etree import ElementTree as ET

import diagrams
import pytest

FENCE = """\
[*] | .
PENDING | FAILED or EXPIRED

[*] -> PENDING: accepted & sent
PENDING -> FAILED or EXPIRED: no PIN
FAILED or EXPIRED -> PENDING
"""
NOTHING: Any = None


def drawing(text: str) -> ET.Element:
    return ET.fromstring(diagrams.svg(text))


def test_every_state_and_label_is_drawn_inside_the_picture() -> None:
    picture = drawing(FENCE)
    assert len(picture.findall(".//rect")) == 2
    assert len(picture.findall(".//path[@class='line']")) == len(picture.findall(".//path[@class='head']")) == 3
    texts = ["".join(each.itertext()) for each in picture.findall(".//text")]
    assert texts == ["PENDING", "FAILED orEXPIRED", "accepted &sent", "no PIN"]
    (svg,) = picture
    _, _, width, height = map(float, svg.attrib["viewBox"].split())
    for box in picture.findall(".//rect"):
        x, y, w, h = (float(box.attrib[name]) for name in ("x", "y", "width", "height"))
        assert 0 <= x < x + w <= width
        assert 0 <= y < y + h <= height


def test_a_label_beside_the_last_column_is_inside_the_picture() -> None:
    (svg,) = picture = drawing("A\nB\n\nA -> B: a long label")
    label = picture.find(".//text[@text-anchor='start']/tspan")
    assert label is not None
    assert float(label.attrib["x"]) + len("a long label") * 6 <= float(svg.attrib["viewBox"].split()[2])


def test_the_title_says_what_the_drawing_shows() -> None:
    title = drawing(FENCE).findtext(".//title")
    assert title == (
        "States: start to PENDING, accepted & sent; PENDING to FAILED or EXPIRED, no PIN; FAILED or EXPIRED to PENDING"
    )


def test_colours_come_from_the_theme_alone() -> None:
    assert re.findall(r"(?:fill|stroke|color)=|#[0-9a-f]{3}", diagrams.svg(FENCE)) == []


def test_arrows_there_and_back_do_not_share_a_line() -> None:
    there, back = (each.attrib["d"] for each in drawing(FENCE).findall(".//path[@class='line']")[1:])
    assert re.findall(r"M\S+ (\S+)L", there) != re.findall(r"M\S+ (\S+)L", back)


@pytest.mark.parametrize("text", ["A | B\n\nA -> C: x", "A | B\n\nA to B"])
def test_a_fence_with_a_mistake_fails_the_build(text: str) -> None:
    with pytest.raises(ValueError, match=r"not in the grid|not an arrow"):
        diagrams.svg(text)


def test_only_fences_of_states_are_replaced() -> None:
    page = "```python\nx = 1\n```\n\n```states\nA | B\n\nA -> B\n```\n"
    assert re.fullmatch(
        r"```python\nx = 1\n```\n\n<div class=\"diagram\">.*</div>\n",
        diagrams.on_page_markdown(page, NOTHING, NOTHING, NOTHING),
    )
