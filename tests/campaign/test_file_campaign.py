"""The campaign for the budget in a file in short: forked workers, commands and a crash loop, and a control."""

from __future__ import annotations

from typing import Literal

import pytest

from campaign.file_budget import run

pytestmark = pytest.mark.campaign


@pytest.mark.parametrize("limiting", ["fixed", "sliding"])
def test_the_processes_of_a_machine_meet_no_limit(limiting: Literal["fixed", "sliding"]) -> None:
    result = run(30.0, limiting)
    assert result.keeps_the_promise, result
    assert result.payments > 20
    assert result.commands > 5
    assert result.crashes > 2


def test_budgets_that_are_not_shared_break_the_promise() -> None:
    result = run(20.0, "sliding", shared=False)
    assert not result.keeps_the_promise, result
