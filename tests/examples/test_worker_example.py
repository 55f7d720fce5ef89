"""The Celery application with real workers, Redis and PostgreSQL: they are killed, and every reference is paid once."""

import os
import random
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Generator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from celery import Celery

from examples.runs import EXAMPLES, LONGEST, Merchant, run
from momopay import Journal, JournalState
from momopay.sandbox import Fault
from patience import until
from postgresql import PostgresqlServer
from redis_server import RedisServer, connect, need_redis


@pytest.fixture(autouse=True, scope="module")
def _needs_redis() -> None:
    need_redis()


class Workers:
    """Processes of the application, each with its pool in a process group of its own."""

    def __init__(self, environment: dict[str, str], folder: Path) -> None:
        self._environment = environment
        self.log = folder / "celery.log"
        self._running: list[subprocess.Popen[bytes]] = []

    def start(self, *command: str) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as written:
            process = subprocess.Popen(
                [sys.executable, "-m", "celery", "-A", "worker", *command, "--loglevel", "INFO"],
                env=self._environment,
                cwd=EXAMPLES,
                stdout=written,
                stderr=written,
                start_new_session=True,
            )
        self._running.append(process)
        return process

    def start_worker(self) -> subprocess.Popen[bytes]:
        return self.start("worker", "--concurrency", "2", "--pool", "prefork")

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        """Kill a worker with its pool, as a machine that loses its power."""
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def end(self) -> None:
        for process in self._running:
            self.kill(process)


@contextmanager
def application(merchant: Merchant, journal_url: str, folder: Path) -> Generator[tuple[Workers, Celery, Any]]:
    """Yield the workers, with beat running, the application as a producer uses it, and its Redis."""
    with RedisServer() as server, connect(server.url, decode_responses=True) as redis:
        settings = {"REDIS_URL": server.url, "JOURNAL_URL": journal_url}
        seconds = {"WORKER_SWEEP_SECONDS": "4", "WORKER_VISIBILITY_SECONDS": "3"}
        workers = Workers(merchant.env(**settings, **seconds), folder)
        workers.start("beat", "--schedule", str(folder / "beat"))
        try:
            with closing(Celery("producer", broker=server.url)) as producer:
                yield workers, producer, redis
        finally:
            workers.end()


def children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_killed_workers_pay_everybody_once(
    merchant: Merchant, postgresql: PostgresqlServer, tmp_path: Path, dice: random.Random
) -> None:
    merchant.account.rate_limit = 60
    references = [f"WIN-{number}" for number in range(24)]
    begun = len(merchant.sandbox.requests)
    journal_url = postgresql.new_schema()
    with (
        application(merchant, journal_url, tmp_path) as (workers, producer, redis),
        Journal(journal_url) as journal,
    ):
        valid = [(reference, "50", "0712345678") for reference in [*references, *dice.sample(references, 6)]]
        for given in (*valid, ("X", "x", "0712345678"), ("Y", "1", "0712345678"), ("Z",)):
            producer.send_task("worker.payout", args=given)
        # The first payout is made, and its answer never comes.
        merchant.sandbox.fail_next("POST", "/b2c/payouts", Fault.hang_after_commit)
        first = workers.start_worker()
        until(lambda: merchant.moved("payout").total() >= 1, "the first payout is made")
        workers.kill(first)
        second = workers.start_worker()
        enough = dice.randrange(4, 20)
        until(lambda: merchant.moved("payout").total() >= enough, "the second worker pays")
        os.kill(dice.choice(children(second.pid)), signal.SIGKILL)

        def ended() -> bool:
            entries = [journal.get(reference) for reference in references]
            under_way = redis.llen("celery") + redis.hlen("unacked")
            return under_way == 0 and all(e is not None and e.state is not JournalState.SENDING for e in entries)

        def told() -> Counter[str]:
            return Counter(re.findall(r"(WIN-\d+) ended: SUCCESS", workers.log.read_text()))

        def unresolved() -> set[str]:
            return {entry.reference for entry in journal.unresolved()}

        until(ended, "every task has ended", LONGEST)
        until(lambda: told().keys() | unresolved() == set(references), "the sweep has handed on every end", LONGEST)
        left = unresolved()
        log = workers.log.read_text()
        assert log.count("raised unexpected") == 3, "what is invalid fails, and is not tried again"
        assert told() == {reference: 1 for reference in references if reference not in left}
        assert redis.keys("*momopay*"), "the log of the shared budget is in Redis"
    assert len(left) <= 2, "only what a killed process was about to send needs a person, and two were killed"
    paid = merchant.moved("payout")
    assert max(paid.values()) == 1, log
    assert set(references) - paid.keys() == left - paid.keys(), log
    assert {request.status for request in merchant.sandbox.requests[begun:]} <= {200, None}, "no response was 429"


def test_the_plain_command(tmp_path: Path) -> None:
    ended = run("worker.py", cwd=tmp_path)
    assert "20 SUCCESS" in ended.stdout
    assert "The service paid 20 times, 20 references" in ended.stdout
