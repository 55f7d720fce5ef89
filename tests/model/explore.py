"""Explore the model: `python tests/model/explore.py [SCENARIO ...] [--deeper] [--without RULE]`.

Without a name it explores every scenario with the bounds of the tests. `--without` turns off a rule or an assumption
and prints the shortest way to a broken property.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from model.machine import Result, explore
from model.rules import ASSUMPTIONS, OF_ORDERS, OF_PAYOUTS, Rules
from model.scenarios import DEEPER, SCENARIOS, Scenario, deeper
from momopay.journal.entries import EntryKind


def explored(scenario: Scenario, without: str | None = None) -> Result | None:
    """Return what an exploration saw, None if the scenario does not have the rule that is to be turned off."""
    is_payout = scenario.world.kind is EntryKind.PAYOUT
    if without is None:
        return explore(scenario.model())
    if is_payout and without in ASSUMPTIONS:
        return explore(scenario.without(without).model())
    if without not in (OF_PAYOUTS if is_payout else OF_ORDERS):
        return None
    off: dict[str, Any] = {without: False}
    return explore(scenario.model(Rules(**off)))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO", help=f"one of: {', '.join(SCENARIOS)}")
    parser.add_argument("--deeper", action="store_true", help="more calls and releases; takes minutes")
    parser.add_argument("--without", metavar="RULE", help="a rule or an assumption of tests/model/rules.py")
    options = parser.parse_args(arguments)
    names: list[str] = options.scenarios or [name for name in SCENARIOS if name in DEEPER or not options.deeper]
    if unknown := set(names) - SCENARIOS.keys():
        parser.error(f"no scenario: {', '.join(unknown)}")
    held = True
    for name in names:
        scenario = deeper(name) if options.deeper else SCENARIOS[name]
        result = explored(scenario, options.without)
        if result is not None:
            bound = f"{scenario.calls} calls, {scenario.releases} releases"
            print(f"{name} ({scenario.meaning}; {bound}):\n{result}", flush=True)  # noqa: T201
            held = held and result.broken is None
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
