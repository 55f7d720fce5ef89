"""The campaign over real sockets: `python tests/campaign/run.py --payouts 500 --seconds 60 --seed 1`.

This process runs the service and is the only witness's keeper; worker processes pay, and are killed and frozen. The
seed chooses orders, faults, kills and luck; what meets what is up to the machine. Where it may, the campaign runs in a
network namespace of its own, whose loopback link it can set down.
"""

from __future__ import annotations

import argparse
import logging
import os
import pickle
import sys
import tempfile
import threading
import traceback
from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from math import ceil
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from campaign import controls
from campaign.herd import dead_port, free_port
from campaign.judge import Verdict
from campaign.network import enter_namespace
from campaign.plan import Plan, Result
from campaign.round import STORM, Round
from campaign.settings import LANES, Settings
from campaign.storm import KEY, SPEED, Service, Storm, service_in_storm
from postgresql import PostgresqlServer, running_postgresql

ROUND = 500
"""Payouts of one account and one journal: a search walks the account's whole list of these minutes."""
PACE = 0.1
"""The longest mean pause between two calls of one thread or task, seconds."""
FREEZES, DIES, CUTS = 0.004, 0.012, 0.01
"""How likely a worker stops at each of four points of a payout, is killed at each of two, and loses the network."""
FAULTS = ("late", "restored", "struck")
MORE, MUCH_MORE = 5, 30
"""How much more likely these are in a control, and in one of freezing."""


def campaign(plan: Plan) -> Result[Verdict]:
    """Run a campaign, in as many rounds as it takes."""
    logging.getLogger("momopay").setLevel(logging.CRITICAL + 1)
    total = Result(Verdict(0, 0, 0, 0), Counter(), {})
    rounds = ceil(plan.size / ROUND)
    with _server(plan) as server:
        for number in range(rounds):
            size = plan.size // rounds + (number < plan.size % rounds)
            begun = replace(plan, size=size, seconds=plan.seconds / rounds, seed=plan.seed * 1000 + number)
            _add(total, _round(begun, server))
            if rounds > 1:
                held = "holds" if total.verdict.holds else f"has found {', '.join(total.verdict.found)}"
                sys.stderr.write(f"round {number + 1} of {rounds}: the campaign {held}\n")
    return total


def _add(total: Result[Verdict], other: Result[Verdict]) -> None:
    total.verdict.add(other.verdict)
    total.details.update(other.details)
    for name, counts in other.counts.items():
        total.counts.setdefault(name, Counter()).update(counts)


@contextmanager
def _server(plan: Plan) -> Generator[PostgresqlServer | None]:
    if plan.database == "sqlite":
        yield None
    else:
        with running_postgresql() as server:
            yield server


def _round(plan: Plan, server: PostgresqlServer | None) -> Result[Verdict]:
    storm = Storm(plan.seed, fierce=plan.control is not None, late=plan.fault == "late")
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="momopay-campaign-"))
        service = stack.enter_context(service_in_storm(storm, Service))
        dead = stack.enter_context(dead_port())
        if plan.control is not None:
            stack.enter_context(controls.broken(plan.control))
        settings = Settings(
            name="parent",
            client_kind=plan.client_kind,
            seed=plan.seed,
            orders=plan.size,
            database=f"sqlite:///{folder}/payouts.db" if server is None else server.new_database(),
            base_url=service.base_url,
            key=KEY,
            hook_port=free_port(),
            dead_port=dead.getsockname()[1],
            pace=min(PACE, 0.4 * STORM * plan.seconds * LANES / plan.size),
            epoch=service.epoch,
            speed=SPEED,
            skew=0.0,
            freezes=FREEZES * _more_freezes(plan),
            dies=DIES * (MORE if plan.control else 1),
            cuts=0.0 if not plan.network else CUTS * (MUCH_MORE if plan.control == "late_arrival" else 1),
            log=f"{folder}/log.jsonl",
            control=plan.control,
            fault=plan.fault,
        )
        return Round(plan, settings, service, server).run()


def _more_freezes(plan: Plan) -> int:
    if plan.fault is not None:  # a person waits for as long as a whole storm of these lasts
        return 0
    return 1 if plan.control is None else MUCH_MORE if plan.control in controls.OF_FREEZING else MORE


def _break(failure: threading.ExceptHookArgs) -> None:
    """End with status 3: a thread of the campaign itself failed, so what it finds means nothing."""
    traceback.print_exception(failure.exc_type, failure.exc_value, failure.exc_traceback)
    os._exit(3)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a campaign; 0 if it holds, 1 if it does not."""
    parser = argparse.ArgumentParser(description="Fault campaigns over real sockets.")
    parser.add_argument("--payouts", dest="size", type=int, default=500)
    parser.add_argument("--seconds", type=float, default=60.0, help="about how long it may take")
    parser.add_argument("--seed", type=int, default=None, help="printed, so that it can be given again")
    parser.add_argument("--client", dest="client_kind", choices=("both", "blocking", "async"), default="both")
    parser.add_argument("--database", choices=("sqlite", "postgresql"), default="sqlite")
    parser.add_argument("--fault", choices=FAULTS, help="one that storms have only on demand")
    parser.add_argument(
        "--control", choices=sorted(controls.CONTROLS.keys() - controls.OF_ORDERS), help="break one safety on purpose"
    )
    parser.add_argument("--result", type=Path, help="a file for the result, pickled")
    options = vars(parser.parse_args(arguments))
    path = options.pop("result")
    if options["fault"] == "restored" and options["database"] != "sqlite":
        parser.error("a file is restored: --fault restored is for SQLite")
    if options["seed"] is None:
        options["seed"] = int.from_bytes(os.urandom(3))
    threading.excepthook = _break
    obstacle = enter_namespace()
    plan = Plan("payouts", **options, network=obstacle is None)
    result = campaign(plan)
    report = result.report(plan, "loses packets" if obstacle is None else f"does not fail: {obstacle}")
    sys.stdout.write(report + "\n")
    if path is not None:
        path.write_bytes(pickle.dumps((result, report)))
    return 0 if result.verdict.holds else 1


if __name__ == "__main__":
    sys.exit(main())
