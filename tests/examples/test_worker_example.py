from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
from pathlib import Path

import pytest

from examples.runs import LONGEST, Service, command, run
from momopay import Journal
from patience import until
from redis_server import RedisServer, connect, need_redis


@pytest.fixture(autouse=True, scope="module")
def _needs_redis() -> None:
    need_redis()


def test_a_worker_is_killed_and_jobs_come_twice_and_nobody_is_paid_twice(
    service: Service, tmp_path: Path, dice: random.Random
) -> None:
    service.account.rate_limit = 60
    jobs = [f"WIN-{number}" for number in range(24)]
    twice = dice.sample(jobs, 6)
    journal = f"sqlite:///{tmp_path / 'worker.db'}"
    log = tmp_path / "log"
    begun = len(service.sandbox.requests)
    with RedisServer() as server, connect(server.url, decode_responses=True) as queue, log.open("w") as written:
        for reference in [*jobs, *twice]:
            queue.rpush("payouts:todo", json.dumps({"reference": reference, "amount": "50", "phone": "0712345678"}))
        for invalid in ("no json", '{"reference": "X"}', '{"reference": "Y", "amount": "x", "phone": "0712345678"}'):
            queue.lpush("payouts:todo", invalid)
        env = service.env(REDIS_URL=server.url, JOURNAL_URL=journal)
        with subprocess.Popen(
            command("worker.py", "--workers", "2"), env=env, stdout=written, stderr=written
        ) as process:
            enough = dice.randrange(2, 12)
            until(lambda: service.moved("payout").total() >= enough, "some are paid")
            victim = dice.choice(re.findall(r"is process (\d+)", log.read_text()))
            os.kill(int(victim), signal.SIGKILL)
            status = process.wait(LONGEST)
        assert "died; starting another" in log.read_text()
        paid = service.moved("payout")
        with Journal(journal) as opened:
            unknown = {entry.reference for entry in opened.unresolved()}
        assert len(unknown) <= 1, "only the job of the killed worker"
        assert status == (3 if unknown else 0), log.read_text()
        assert paid == {reference: 1 for reference in jobs if reference not in unknown or paid[reference]}
        assert queue.llen("payouts:refused") == 3
        assert queue.exists("payouts:todo", "payouts:doing:0", "payouts:doing:1") == 0
        lists = queue.exists("payouts:paid", "payouts:refused", "payouts:unknown")
        assert queue.dbsize() > lists, "the log of the shared budget is in Redis too"
    assert {request.status for request in service.sandbox.requests[begun:]} <= {200, None}, "no response was 429"


def test_the_plain_command() -> None:
    ended = run("worker.py")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "The service paid 20 times, 20 references" in ended.stdout
    assert "22 jobs in payouts:paid" in ended.stdout
