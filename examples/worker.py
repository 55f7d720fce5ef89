"""Workers that pay out from a queue in Redis, with one rate budget for all and every reference paid once.

    python examples/worker.py [--workers 2]

A queue sometimes delivers a job twice, and a worker may be killed at any line. `pay_once` and its journal handle both,
so a job is simply retried. Without MOMOPAY_* settings the workers pay on the embedded sandbox, with a redis-server
that the program starts. Add jobs with
`redis-cli RPUSH payouts:todo '{"reference": "WIN-1", "amount": "50", "phone": "0712345678"}'`.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from decimal import Decimal
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

import redis
from redis.backoff import ConstantBackoff
from redis.retry import Retry

from momopay import (
    APIConnectionError,
    APIError,
    BudgetExhaustedError,
    Client,
    DuplicatePayoutError,
    Journal,
    OutcomeUnknownError,
    ServerError,
    ThrottledError,
)
from momopay.redis import RedisRateBudget

TODO, DOING, PAID, REFUSED, UNKNOWN = (f"payouts:{name}" for name in ("todo", "doing", "paid", "refused", "unknown"))
LATER = (APIConnectionError, BudgetExhaustedError, ServerError, ThrottledError)


def connect(redis_url: str, **options: Any) -> redis.Redis:
    """Return a client of the queue."""
    return redis.Redis.from_url(redis_url, decode_responses=True, **options)  # pyright: ignore[reportUnknownMemberType]  not typed in redis-py


def pay(client: Client, journal: Journal, job: str) -> str:
    """Pay one job and return the list that it moves to. With Celery this is the task, and nothing else changes:

        @app.task(acks_late=True, reject_on_worker_lost=True, autoretry_for=LATER, retry_backoff=True)
        def payout(reference: str, amount: str, phone: str) -> str: ...

    Create `client` and `journal` in a handler of `worker_process_init` then, one of each for a process.
    """  # noqa: D415  the sentence introduces the code
    try:
        order = json.loads(job)
        client.payouts.pay_once(
            journal=journal, reference=order["reference"], amount=Decimal(order["amount"]), phone=order["phone"]
        )
    except OutcomeUnknownError:
        return UNKNOWN  # it may be paid: a person decides; never retry with another reference
    except LATER:
        raise  # retry the same job later: the journal knows whether it was paid
    except (DuplicatePayoutError, APIError) as refused:
        print(f"refused: {refused}", flush=True)
        return UNKNOWN if refused.may_have_executed else REFUSED
    except (ValueError, KeyError, TypeError, ArithmeticError) as invalid:
        print(f"invalid job: {invalid!r}", flush=True)
        return REFUSED
    return PAID


def work(number: int, redis_url: str, journal_url: str) -> None:
    """Work until the queue is empty. A job stays in the worker's own list until it has ended."""
    mine = f"{DOING}:{number}"
    with (
        connect(redis_url) as queue,
        Client(budget=RedisRateBudget(redis_url)) as client,
        Journal(journal_url) as journal,
    ):
        print(f"worker {number} is process {os.getpid()}", flush=True)
        while queue.lmove(mine, TODO, "LEFT", "RIGHT"):
            pass  # the job of a killed predecessor
        while isinstance(job := queue.lmove(TODO, mine, "LEFT", "RIGHT"), str):
            try:
                where = pay(client, journal, job)
            except LATER as error:
                time.sleep(min(getattr(error, "retry_after", None) or 1.0, 60.0))
                where = TODO
            queue.rpush(where, job)  # before it is removed: a kill in between repeats the job, which pays nothing
            queue.lrem(mine, 1, job)


def run(workers: int, redis_url: str, journal_url: str) -> int:
    """Run the workers until the queue is empty, replace those that die, and report."""
    processes = multiprocessing.get_context("spawn")

    def start(number: int) -> SpawnProcess:
        process = processes.Process(target=work, args=(number, redis_url, journal_url))
        process.start()
        return process

    pool = {number: start(number) for number in range(workers)}
    while pool:
        for number, process in list(pool.items()):
            process.join(0.05)
            if process.exitcode == 0:
                del pool[number]
            elif process.exitcode is not None:
                print(f"worker {number} died; starting another", flush=True)
                time.sleep(0.5)
                pool[number] = start(number)
    with connect(redis_url) as queue, Client() as client:
        counts = {name: int(queue.llen(name)) for name in (PAID, REFUSED, UNKNOWN)}
        print(", ".join(f"{count} jobs in {name}" for name, count in counts.items()))
        with Journal(journal_url) as journal:
            unknown = [entry for entry in journal.reconcile_all(client) if entry.state == "UNKNOWN"]
    for entry in unknown:
        print(f"needs a person: {entry}")
    return 3 if unknown else 0


@contextmanager
def redis_server(folder: str) -> Generator[str]:
    """Run a redis-server on a socket file and yield its URL."""
    program = shutil.which("redis-server") or shutil.which("valkey-server")
    if program is None:
        sys.exit("Set REDIS_URL, or install redis-server.")
    socket = Path(folder) / "redis.sock"
    url = f"unix://{socket}"
    quiet = ("--port", "0", "--save", "", "--loglevel", "warning", "--dir", folder)
    arguments = [program, "--unixsocket", str(socket), *quiet]
    with subprocess.Popen(arguments, stdout=subprocess.DEVNULL) as server:  # noqa: S603  the program was found above
        try:
            with connect(url, retry=Retry(ConstantBackoff(0.05), 200)) as queue:
                queue.llen(TODO)  # waits until the server listens
            yield url
        finally:
            server.terminate()


def main() -> int:
    """Work on the real service, or demonstrate it on the sandbox."""
    parser = argparse.ArgumentParser(description="Payout workers over a Redis queue.")
    parser.add_argument("--workers", type=int, default=2)
    workers = parser.parse_args().workers
    if "MOMOPAY_BASE_URL" in os.environ:
        journal_url = os.environ.get("JOURNAL_URL", "sqlite:///worker.db")
        return run(workers, os.environ.get("REDIS_URL", "redis://localhost"), journal_url)
    from momopay.sandbox import Sandbox

    with tempfile.TemporaryDirectory() as folder, Sandbox() as sandbox, redis_server(folder) as redis_url:
        os.environ |= {"MOMOPAY_API_KEY": "pk_test_worker", "MOMOPAY_BASE_URL": sandbox.base_url}
        with connect(redis_url) as queue:
            for number in [*range(20), 3, 7]:  # two are delivered twice
                job = {"reference": f"WIN-{number}", "amount": "50", "phone": f"07123450{number:02}"}
                queue.rpush(TODO, json.dumps(job))
        status = run(workers, redis_url, f"sqlite:///{folder}/worker.db")
        payouts = [movement.reference for movement in sandbox.ledger if movement.kind == "payout"]
        print(f"The service paid {len(payouts)} times, {len(set(payouts))} references")
        return status


if __name__ == "__main__":
    sys.exit(main())
