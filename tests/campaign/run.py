"""The campaign over real sockets: `python tests/campaign/run.py --payouts 500 --seconds 60 --seed 1`.

This process runs the service and is the only witness's keeper; worker processes pay, and are killed and frozen. The
seed chooses orders, faults, kills and luck; what meets what is up to the machine. Where it may, the campaign runs in a
network namespace of its own, whose loopback link it can set down. `--orders 300` collects instead of paying out.
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
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from math import ceil
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from campaign import controls, worker
from campaign.collect import Shop
from campaign.herd import dead_port, free_port
from campaign.parent import STORM
from campaign.plan import Plan, Result
from campaign.round import Round
from campaign.settings import LANES, Settings
from campaign.storm import KEY, SPEED, Service, Storm, service_in_storm
from campaign.till import PromptStorm, Till
from campaign.troubles import enter_namespace
from postgresql import PostgresqlServer, running_postgresql

ROUND = 500
"""Payouts of one account and one journal: a search walks the account's whole list of these minutes."""
PACE = 0.1
"""The longest mean pause between two calls of one thread or task, seconds."""
FREEZES, DIES, CUTS = 0.004, 0.012, 0.01
"""How likely a worker stops at each of four points of a payout, is killed at each of two, and loses the network."""
FAULTS = ("late", "restored", "struck")
MORE, MUCH_MORE = 5, 30
"""How much more likely these are in a control of payouts, and in one of freezing."""


def campaign(plan: Plan) -> Result:
    total = Result()
    rounds = ceil(plan.size / ROUND)
    with nullcontext() if plan.database == "sqlite" else running_postgresql() as server:
        for number in range(rounds):
            size = plan.size // rounds + (number < plan.size % rounds)
            begun = replace(plan, size=size, seconds=plan.seconds / rounds, seed=plan.seed * 1000 + number)
            total.add(_round(begun, server))
            if rounds > 1:
                held = "holds" if total.verdict.holds else f"has found {', '.join(total.verdict.found)}"
                sys.stderr.write(f"round {number + 1} of {rounds}: the campaign {held}\n")
    return total


def _round(plan: Plan, server: PostgresqlServer | None) -> Result:
    """Run the service in its storm, with one safety off if the plan says so, and the campaign's parent."""
    pays, fierce = plan.what == "payouts", plan.control is not None
    if pays:
        pace = min(PACE, 0.4 * STORM * plan.seconds * LANES / plan.size)
        freezes, dies, cuts = FREEZES * _more_freezes(plan), DIES * (MORE if fierce else 1), CUTS
        cuts *= MUCH_MORE if plan.control == "late_arrival" else 1
    else:
        pace = STORM * plan.seconds * LANES / plan.size / (2 * worker.ROUNDS)
        freezes, dies, cuts = FREEZES, DIES, CUTS
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="momopay-campaign-"))
        service: Service
        if pays:
            storm = Storm(plan.seed, fierce=fierce, late=plan.fault == "late")
            service = stack.enter_context(service_in_storm(storm, Service))
        else:
            service = stack.enter_context(service_in_storm(PromptStorm(plan.seed, fierce=fierce), Till))
        dead = stack.enter_context(dead_port())
        stack.enter_context(controls.broken(plan.control) if plan.control else nullcontext())
        settings = Settings(
            name="parent",
            kind=plan.kind,
            client_kind=plan.client_kind,
            seed=plan.seed,
            orders=plan.size,
            database=f"sqlite:///{folder}/payments.db" if server is None else server.new_database(),
            base_url=service.base_url,
            key=KEY,
            hook_port=free_port(),
            dead_port=dead.getsockname()[1],
            pace=pace,
            epoch=service.epoch,
            speed=SPEED,
            skew=0.0,
            freezes=freezes,
            dies=dies,
            cuts=cuts if plan.network else 0.0,
            log=f"{folder}/log.jsonl",
            control=plan.control,
            fault=plan.fault,
        )
        if isinstance(service, Till):
            return Shop(plan, settings, service, server).run()
        return Round(plan, settings, service, server).run()


def _more_freezes(plan: Plan) -> int:
    if plan.fault is not None:  # a person waits for as long as a whole storm of these lasts
        return 0
    return 1 if plan.control is None else MUCH_MORE if plan.control in controls.OF_FREEZING else MORE


def _break(failure: threading.ExceptHookArgs) -> None:
    """End with status 3: a thread of the campaign itself failed, so what it finds means nothing."""
    traceback.print_exception(failure.exc_type, failure.exc_value, failure.exc_traceback)
    os._exit(3)


def main() -> int:
    """Run a campaign as the command line says; 0 if it holds, 1 if it does not."""
    parser = argparse.ArgumentParser(description="Fault campaigns over real sockets.")
    parser.add_argument("--payouts", type=int, default=500)
    parser.add_argument("--orders", type=int, help="collect so many orders, instead of paying out")
    parser.add_argument("--client", choices=("both", "blocking", "async"), default="both")
    parser.add_argument("--fault", choices=FAULTS, help="one that storms of payouts have only on demand")
    parser.add_argument("--control", choices=sorted(controls.CONTROLS), help="break one safety on purpose")
    parser.add_argument("--seconds", type=float, default=60.0, help="about how long it may take")
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(3)), help="printed, to be given again")
    parser.add_argument("--database", choices=("sqlite", "postgresql"), default="sqlite")
    parser.add_argument("--result", type=Path, help="a file for the result, pickled")
    options = parser.parse_args()
    if options.fault and options.orders:
        parser.error("--fault is for payouts")
    if options.fault == "restored" and options.database != "sqlite":
        parser.error("a file is restored: --fault restored is for SQLite")
    known = controls.OF_COLLECTIONS if options.orders else controls.CONTROLS.keys() - controls.OF_ORDERS
    if options.control not in {None, *known}:
        parser.error(f"no control of this campaign; it has {', '.join(sorted(known))}")
    threading.excepthook = _break
    logging.getLogger("momopay").setLevel(logging.CRITICAL + 1)
    obstacle = enter_namespace()
    plan = Plan(
        "orders" if options.orders else "payouts",
        options.orders or options.payouts,
        options.seconds,
        options.seed,
        options.client,
        options.database,
        options.fault,
        options.control,
        network=obstacle is None,
    )
    result = campaign(plan)
    network = "the network loses packets" if obstacle is None else f"the network does not fail: {obstacle}"
    report = result.report(" ".join(["python", "tests/campaign/run.py", *plan.arguments]), network)
    sys.stdout.write(report + "\n")
    if options.result is not None:
        options.result.write_bytes(pickle.dumps((result, report)))
    return 0 if result.verdict.holds else 1


if __name__ == "__main__":
    sys.exit(main())
