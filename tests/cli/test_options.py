"""The options that commands share."""

from __future__ import annotations

import inspect
from decimal import Decimal

import pytest
import typer

from momopay import PollSchedule
from momopay.cli.collect import collect
from momopay.cli.options import amount
from momopay.cli.transactions import wait


@pytest.mark.parametrize(("text", "value"), [("100", "100"), ("99.50", "99.50"), ("1e3", "1000"), ("9.500", "9.5")])
def test_an_amount(text: str, value: str) -> None:
    assert amount(text) == Decimal(value)


@pytest.mark.parametrize(
    "text", ["", "x", "1,000", "1_000", "nan", "inf", "1e400000000000000000000", "1e999999999", "\u0661\u0662"]
)
def test_what_is_not_an_amount(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="must be an amount in KES"):
        amount(text)


@pytest.mark.parametrize(("text", "count"), [("10.005", "three"), ("0.123456", "six"), ("1e-9", "9")])
def test_more_decimals_than_cents_are_named(text: str, count: str) -> None:
    with pytest.raises(typer.BadParameter, match=f"^{text} has {count} decimals; KES has two$"):
        amount(text)


def test_the_defaults_of_a_wait_are_the_librarys() -> None:
    for command in (collect, wait):
        defaults = [inspect.signature(command).parameters[name].default for name in ("every", "timeout")]
        assert defaults == [PollSchedule().every, PollSchedule().limit]
