"""The shops of the examples, and so of the pages, with an exception after each line of their own code in turn."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from examples.runs import environment
from patience import run_program

pytestmark = pytest.mark.whole
PROGRAM = Path(__file__).with_name("crashes.py")


def outcome(*arguments: str) -> dict[str, Any]:
    env = environment(PYTHONPATH=str(PROGRAM.parents[1]))
    found: dict[str, Any] = json.loads(run_program([sys.executable, PROGRAM, *arguments], env=env).stdout)
    return found


@pytest.mark.parametrize("shop", ["shop", "django_shop"])
def test_after_each_line_no_payment_is_lost_and_each_order_can_be_paid_and_refunded(shop: str) -> None:
    found = outcome(shop)
    assert found.pop("functions") == ["move", "on_end", "paid", "pay"]
    assert found.pop("crashes") > 40
    assert found == {
        "lost": [],
        "twice": [],
        "unpaid": [],
        "unrefunded": [],
        "without a journal": ["NOT PAID", "1 logged", "PAID"],
    }


def test_in_a_transaction_that_rolls_back_the_order_would_be_lost() -> None:
    found = outcome("django_shop", "careless")["lost"]
    assert found != []
    assert all("there is no such order" in each for each in found)
