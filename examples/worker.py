"""Payouts as Celery tasks: Redis as the broker, PostgreSQL for the journal, one rate budget for all, a sweep by beat.

    celery -A worker worker --concurrency 4
    celery -A worker beat
    celery -A worker call worker.payout --args '["WIN-1", "50", "0712345678"]'

Celery sometimes delivers a task twice, and a worker may be killed at any line. `pay_once` and its journal handle both,
so a task is simply delivered again. Run this file without MOMOPAY_* settings, `python examples/worker.py`, to see it
work on the embedded sandbox, with servers that it starts.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from decimal import Decimal
from pathlib import Path

from celery import Celery
from celery.signals import worker_process_init, worker_process_shutdown
from celery.utils.log import get_task_logger

from momopay import (
    APIConnectionError,
    BudgetExhaustedError,
    Client,
    Journal,
    JournalEntry,
    JournalError,
    OutcomeUnknownError,
    Payment,
    RedisRateBudget,
    ServerError,
    ThrottledError,
)

REDIS_URL = os.environ.get("REDIS_URL", "redis://localhost")
JOURNAL_URL = os.environ.get("JOURNAL_URL", "postgresql+psycopg:///momopay")
SWEEP_SECONDS = float(os.environ.get("WORKER_SWEEP_SECONDS", "60"))
LONGEST_PAUSE = 120  # seconds before a retry
# Seconds after which Redis gives the tasks of a worker that died to another one. A call takes at most its deadline of
# 90 s; a retry waits in a worker, too.
VISIBILITY = float(os.environ.get("WORKER_VISIBILITY_SECONDS", LONGEST_PAUSE + 90 + 30))
LATER = (APIConnectionError, BudgetExhaustedError, JournalError, ServerError, ThrottledError)
"""Errors that pass. The journal knows whether the payout was made, so the same task is tried again."""

app = Celery("worker", broker=REDIS_URL.replace("unix://", "redis+socket://"))
app.conf.update(
    beat_schedule={"sweep": {"task": "worker.sweep", "schedule": SWEEP_SECONDS, "options": {"expires": SWEEP_SECONDS}}},
    broker_transport_options={"visibility_timeout": VISIBILITY, "unacked_restore_throttle": 1},
    task_ignore_result=True,  # the journal has the results
    worker_prefetch_multiplier=1,  # a worker that waits for the budget holds no tasks that another could do
)
logger = get_task_logger(__name__)


class Account:
    """The client of a worker process."""

    client: Client


account = Account()


@worker_process_init.connect
def set_up(**_: object) -> None:
    """Open it after the fork: two processes must not share a client."""
    account.client = Client(journal=JOURNAL_URL, budget=RedisRateBudget(REDIS_URL))


@worker_process_shutdown.connect
def tear_down(**_: object) -> None:
    """Close it, and its journal, when the process ends in order."""
    account.client.close()


@app.task(
    name="worker.payout",
    acks_late=True,  # a task whose worker died is delivered again
    reject_on_worker_lost=True,
    autoretry_for=LATER,
    retry_backoff=5,
    retry_backoff_max=LONGEST_PAUSE,
    max_retries=None,  # for ever: a refusal is no error that passes, and fails the task
)
def payout(reference: str, amount: str, phone: str) -> None:
    """Pay once. The amount is text, exact to the cent; the reference names what is paid, never the task."""
    try:
        account.client.payouts.pay_once(reference=reference, amount=Decimal(amount), phone=phone)
    except OutcomeUnknownError as error:
        # Not again: the sweep looks for it, and what it does not find needs a person.
        logger.warning("%s may have been paid: %s", reference, error)


@app.task(name="worker.sweep")
def sweep() -> None:
    """Look for the payouts whose outcome is unknown, and hand each settled end to `on_end`, once."""
    report = account.client.transactions.sweep(handler=on_end)
    if report.unknown:
        logger.warning("%d payouts are unresolved: `momopay payouts status`", report.unknown)


def on_end(payment: Payment) -> None:
    """Act on an end: tell the winner, or pay what was sent back under a new reference. A callback may use it too."""
    logger.warning("%s ended: %s", payment.reference, payment.status)


def demonstrate() -> int:
    """Pay some winners on the sandbox, two of them twice by mistake; return the exit status."""
    from servers import postgresql_server, redis_server

    from momopay.sandbox import Sandbox

    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        redis_url = stack.enter_context(redis_server(Path(folder, "redis")))
        journal_url = (
            stack.enter_context(postgresql_server(Path(folder, "postgresql"))) or f"sqlite:///{folder}/worker.db"
        )
        sandbox = stack.enter_context(Sandbox(speed=5))
        print(f"The journal is in {journal_url.partition(':')[0]}")
        environment = os.environ | {
            "MOMOPAY_API_KEY": "pk_test_worker",
            "MOMOPAY_BASE_URL": sandbox.base_url,
            "REDIS_URL": redis_url,
            "JOURNAL_URL": journal_url,
            "WORKER_SWEEP_SECONDS": "2",
        }
        celery = [sys.executable, "-m", "celery", "--quiet", "--workdir", str(Path(__file__).parent), "-A", "worker"]
        for command in (["worker", "--concurrency", "2"], ["beat", "--schedule", f"{folder}/beat"]):
            process = subprocess.Popen([*celery, *command, "--loglevel", "WARNING"], env=environment)  # noqa: S603  our own
            stack.callback(process.wait)
            stack.callback(process.terminate)
        app.conf.update(broker_url=redis_url.replace("unix://", "redis+socket://"))
        winners = [f"WIN-{number}" for number in range(20)]
        for reference in [*winners, "WIN-3", "WIN-7"]:
            payout.delay(reference, "50", "0712345678")
        journal = stack.enter_context(Journal(journal_url))
        entries = list[JournalEntry]()
        while len(entries) < len(winners) or not all(entry.has_settled for entry in entries):
            time.sleep(0.5)
            entries = [entry for entry in map(journal.get, winners) if entry is not None]
        ends = Counter(str(entry.status) for entry in entries)
        print("In the journal:", ", ".join(f"{count} {status}" for status, count in ends.items()))
        paid = [movement.reference for movement in sandbox.ledger if movement.kind == "payout"]
        print(f"The service paid {len(paid)} times, {len(set(paid))} references")
    return 0 if sorted(paid) == sorted(winners) else 3


if __name__ == "__main__":
    if "MOMOPAY_BASE_URL" in os.environ:
        sys.exit("With settings, run the workers themselves: see the first lines of this file.")
    sys.exit(demonstrate())
