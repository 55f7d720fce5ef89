"""The campaign over real sockets: `python tests/campaign/run.py --payouts 500 --seconds 60 --seed 1`.

This process runs the service and is the only witness's keeper; worker processes pay, and are killed and frozen. The
seed chooses orders, faults, kills and luck; what meets what is up to the machine. Where it may, the campaign runs in a
network namespace of its own, whose loopback link it can set down. `--orders 300` collects instead of paying out.
"""

import argparse
import logging
import os
import pickle
import socket
import sys
import tempfile
import threading
import traceback
from contextlib import ExitStack
from pathlib import Path
from typing import Literal

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from campaign import controls, worker
from campaign.collect import Collections, Till
from campaign.parent import STORM, Parent
from campaign.settings import LANES, Plan, Result, Settings
from campaign.storm import Storm, Witness, service_in_storm
from namespaces import enter_namespace
from postgresql import running_postgresql

PACE = 0.1
"""The longest mean pause between two calls of one thread or task, seconds."""
FREEZES, DIES, CUTS = 0.004, 0.012, 0.01
"""How likely a worker stops at each of four points of a payout, is killed at each of two, and loses the network."""


def campaign(plan: Plan, *, network: bool) -> Result:
    pays = plan.what == "payouts"
    pause = STORM * plan.seconds * LANES / plan.size
    with ExitStack() as stack:
        server = None if plan.database == "sqlite" else stack.enter_context(running_postgresql())
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="momopay-campaign-")))
        storm = Storm(plan.seed, plan.kind, fierce=plan.control is not None, late=plan.late)
        service = stack.enter_context(service_in_storm(storm, Witness if pays else Till))
        service.use_keys(plan.keys)
        dead = stack.enter_context(socket.socket())  # bound, and nobody listens: it refuses connections
        dead.bind(("127.0.0.1", 0))
        with socket.create_server(("127.0.0.1", 0)) as free:  # the receiver takes the same port each time it starts
            hook_port = free.getsockname()[1]
        stack.enter_context(controls.broken(plan.control))
        settings = Settings(
            plan=plan,
            folder=folder,
            database=f"sqlite:///{folder}/payments.db" if server is None else server.new_database(),
            base_url=service.base_url,
            hook_port=hook_port,
            dead_port=dead.getsockname()[1],
            pace=min(PACE, 0.4 * pause) if pays else pause / (2 * worker.ROUNDS),
            epoch=service.epoch,
            # A storm of late payouts is shorter than a person waits for a process that stopped.
            freezes=0.0 if plan.late else FREEZES,
            dies=DIES,
            cuts=CUTS if network else 0.0,
        )
        if isinstance(service, Till):
            return Collections(settings, service, server).run()
        return Parent(settings, service, server).run()


def _break(failure: threading.ExceptHookArgs) -> None:
    """End with status 3: a thread of the campaign itself failed, so what it finds means nothing."""
    traceback.print_exception(failure.exc_type, failure.exc_value, failure.exc_traceback)
    os._exit(3)


def main() -> int:
    parser = argparse.ArgumentParser(description="Fault campaigns over real sockets.")
    parser.add_argument("--payouts", type=int, default=500)
    parser.add_argument("--orders", type=int, help="collect so many orders, instead of paying out")
    parser.add_argument("--late", action="store_true", help="execute many payouts late, while they are released")
    parser.add_argument("--control", help="break one safety on purpose")
    parser.add_argument("--seconds", type=float, default=60.0, help="about how long it may take")
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(3)), help="printed, to be given again")
    parser.add_argument("--database", choices=("sqlite", "postgresql"), default="sqlite")
    parser.add_argument("--keys", choices=("ignored", "honoured", "forgotten"), default="ignored")
    parser.add_argument("--result", type=Path, help="a file for the result, pickled")
    options = parser.parse_args()
    if options.late and options.orders:
        parser.error("--late is for payouts")
    known = controls.OF_COLLECTIONS if options.orders else controls.OF_LATE
    if options.control not in {None, *known}:
        parser.error(f"no control of this campaign; it has {', '.join(sorted(known))}")
    threading.excepthook = _break
    logging.getLogger("momopay").setLevel(logging.CRITICAL + 1)
    obstacle = enter_namespace(keeps_rights=True)
    what: Literal["payouts", "orders"] = "orders" if options.orders else "payouts"
    size = options.orders or options.payouts
    given = (options.database, options.late, options.control, options.keys)
    plan = Plan(what, size, options.seconds, options.seed, *given)
    result = campaign(plan, network=obstacle is None)
    network = "the network loses packets" if obstacle is None else f"the network does not fail: {obstacle}"
    report = result.report(" ".join(["python", *plan.command]), network)
    sys.stdout.write(report + "\n")
    if options.result is not None:
        options.result.write_bytes(pickle.dumps((result, report)))
    return 0 if result.verdict.holds else 1


if __name__ == "__main__":
    sys.exit(main())
