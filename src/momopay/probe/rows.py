"""A point that the service page leaves open: how it is asked, what that costs, and which switch it sets."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

Choice: TypeAlias = bool | int | str


class Cost(Enum):
    """What it costs to find something out. The value is the option that allows it."""

    READS = ""
    WRITE = "--write"
    RATE = "--rate"
    SPEND = "--spend"
    OUTSIDE = "cannot be found from outside"


@dataclass(frozen=True)
class Row:
    """One open point.

    Attributes:
        name: The name in a profile; that of a switch, if it has `values` or `is_switch`.
        cost: What it costs.
        asked: How it is asked.
        needs: What it would take, if a run could not tell.
        section: The section of the service page that leaves it open.
        values: What the sandbox's switch can be; empty for a fact.
        is_switch: Whether the sandbox has a switch of this name.
    """

    name: str
    cost: Cost
    asked: str
    needs: str
    section: str
    values: tuple[Choice, ...] = ()
    is_switch: bool = False
