"""`RedisRateBudget` over a real server: one log for all, and each process's share while the server is away."""

from __future__ import annotations

import logging
import math
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from drivers import unique_key
from momopay import (
    BudgetExhaustedError,
    Client,
    ConfigurationError,
    Lane,
    ProtocolError,
    RateLimitExceededError,
    RedisRateBudget,
)
from momopay._core.operation import run_sync
from momopay._ratelimit.lane import ALONE, Place
from momopay._transport.sync_backend import SyncBackend
from momopay.redis.remote_log import RETRY
from momopay.sandbox import Sandbox
from patience import until
from redis_server import Caller, RedisServer, connect

MakeCaller = Callable[..., Caller]
BASE = "https://api.example/v1"


# One log.


@pytest.mark.parametrize("is_async", [False, True])
def test_processes_share_their_slots(caller: MakeCaller, server: RedisServer, *, is_async: bool) -> None:
    one, other = (caller(server.url, requests=4, window=30.0, is_async=is_async) for _ in range(2))
    assert [each.reserve() for each in (one, other, one, other)] == [0.0] * 4
    assert [each.reserve() for each in (one, other)] == pytest.approx([30.0] * 2, abs=1.0)


def test_lanes_hold_across_processes(caller: MakeCaller, server: RedisServer) -> None:
    one, other = (caller(server.url, requests=8, window=30.0) for _ in range(2))
    assert other.reserve(Lane.PAYMENT) == 0.0
    assert [one.reserve(Lane.POLL) for _ in range(5)] == [0.0] * 5
    assert one.reserve(Lane.POLL) > 0
    assert other.at_once(3) == 2


def test_a_payment_that_waits_in_one_process_goes_before_reads_of_another(
    caller: MakeCaller, server: RedisServer
) -> None:
    one, other = (caller(server.url, requests=1, window=1.0) for _ in range(2))
    assert one.reserve(Lane.READ) == 0.0
    delay = one.reserve(Lane.PAYMENT, Place(queued=True, payments=1))
    time.sleep(delay)
    assert other.reserve(Lane.READ) > 0.5
    assert one.reserve(Lane.PAYMENT, Place(queued=True, payments=1)) == 0.0


def test_a_stop_holds_everybody_back(caller: MakeCaller, server: RedisServer) -> None:
    one, other = (caller(server.url, requests=2, window=5.0) for _ in range(2))
    assert one.at_once(2) == 2
    other.stop(20.0)
    assert [each.reserve() for each in (one, other)] == pytest.approx([20.0, 20.0], abs=1.0)
    other.stop(1.0)
    assert one.reserve() == pytest.approx(20.0, abs=1.0)


def test_the_servers_clock_counts(caller: MakeCaller, server: RedisServer) -> None:
    one, other = (caller(server.url, requests=2, window=30.0) for _ in range(2))
    other.ahead = 1e6
    assert [one.reserve(), other.reserve()] == [0.0, 0.0]
    assert [each.reserve() for each in (one, other)] == pytest.approx([30.0, 30.0], abs=1.0)


def test_each_account_has_its_own_log_which_expires(server: RedisServer) -> None:
    budget = RedisRateBudget(server.url, requests=1, window=0.2)
    names = [unique_key() for _ in range(2)]
    slots = [budget.slots(SyncBackend(), name) for name in names]
    assert [run_sync(each.reserve_now(0.0, Lane.PAYMENT, ALONE)) for each in slots] == [0.0, 0.0]
    keys = [f"momopay:budget:{name}" for name in names]
    with connect(server.url) as admin:
        assert admin.exists(*keys) <= 2
        until(lambda: not admin.exists(*keys), "the logs expire")
    budget.close()


def test_redis_holds_neither_key_nor_address(own_server: RedisServer) -> None:
    key = unique_key()
    transport = httpx.MockTransport(lambda _request: httpx.Response(200))
    options: dict[str, Any] = {"base_url": BASE, "transport": transport, "max_attempts": 1}
    with Client(key, budget=RedisRateBudget(own_server.url), **options) as client, pytest.raises(ProtocolError):
        client.wallet.balance()
    with connect(own_server.url, decode_responses=True) as admin:
        (name,) = admin.keys()
        stored = f"{name} {admin.hgetall(name)}"
    assert name.startswith("momopay:budget:")
    assert key not in stored
    assert "example" not in stored


def test_threads_and_processes_take_no_slot_twice(server: RedisServer, account_hash: str) -> None:
    code = """if True:
        import sys
        from momopay import Lane, RedisRateBudget
        from momopay._ratelimit.lane import ALONE
        from momopay._core.operation import run_sync
        from momopay._transport.sync_backend import SyncBackend
        slots = RedisRateBudget(sys.argv[1], requests=20, window=60.0).slots(SyncBackend(), sys.argv[2])
        print(sum(run_sync(slots.reserve_now(0.0, Lane.PAYMENT, ALONE)) == 0 for _ in range(15)))
    """
    budget = RedisRateBudget(server.url, requests=20, window=60.0)
    slots = budget.slots(SyncBackend(), account_hash)
    command = [sys.executable, "-c", code, server.url, account_hash]
    children = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(2)]
    with ThreadPoolExecutor(10) as threads:
        mine = list(threads.map(run_sync, [slots.reserve_now(0.0, Lane.PAYMENT, ALONE) for _ in range(10)])).count(0.0)
    theirs = [int(child.communicate(timeout=30)[0]) for child in children]
    assert mine + sum(theirs) == 20
    budget.close()


def test_processes_that_share_a_budget_do_not_overrun_the_service(server: RedisServer) -> None:
    """That they do without one, tests/ratelimit/test_file_budget.py shows."""
    code = """if True:
        import contextlib, sys
        from momopay import BudgetExhaustedError, Client, RateLimitExceededError, RedisRateBudget
        key, base_url, url = sys.argv[1:]
        client = Client(key, base_url=base_url, deadline=20.0, budget=RedisRateBudget(url))
        for _ in range(35):
            with contextlib.suppress(BudgetExhaustedError, RateLimitExceededError):
                client.wallet.balance()
    """
    with Sandbox() as sandbox:
        key = unique_key()
        sandbox.account(key).switches.rate_window = "sliding"
        command = [sys.executable, "-c", code, key, sandbox.base_url, server.url]
        children = [subprocess.Popen(command) for _ in range(2)]
        assert [child.wait(timeout=60) for child in children] == [0, 0]
        assert [request.status for request in sandbox.requests] == [200] * 58


def test_the_child_of_a_fork_is_another_process(server: RedisServer, account_hash: str) -> None:
    code = """if True:
        import os, sys
        from momopay import Lane, RedisRateBudget
        from momopay._ratelimit.lane import ALONE
        from momopay._core.operation import run_sync
        from momopay._transport.sync_backend import SyncBackend
        budget = RedisRateBudget(sys.argv[1], requests=40, window=60.0)
        slots = budget.slots(SyncBackend(), sys.argv[2])
        def take(): return [run_sync(slots.reserve_now(0.0, Lane.PAYMENT, ALONE)) for _ in range(10)]
        assert take() == [0.0] * 10
        child = os.fork()
        assert take() == [0.0] * 10
        if child == 0:
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        assert take() == [0.0] * 10
        assert max(take() + take()) > 0
    """
    command = [sys.executable, "-W", "error", "-c", code, server.url, account_hash]
    subprocess.run(command, check=True, timeout=30)
    with connect(server.url, decode_responses=True) as admin:
        assert len(admin.hget(f"momopay:budget:{account_hash}", "members").split()) == 2


# Clients.


def balance(_request: httpx.Request) -> httpx.Response:
    data = {"walletId": "w", "tenantId": "t", "currency": "KES", "availableBalance": 1, "ledgerBalance": 1}
    data["updatedAt"] = "2026-01-05T09:00:00Z"
    return httpx.Response(200, json={"success": True, "data": data, "requestId": "r"})


def refusal(_request: httpx.Request) -> httpx.Response:
    details = {"limit": 60, "remaining": 0, "resetInSeconds": 2}
    error = {"code": "RATE_LIMIT_EXCEEDED", "message": "no", "details": details}
    return httpx.Response(429, json={"success": False, "error": error, "requestId": "r"})


def test_a_call_without_a_slot_in_time_is_not_sent(server: RedisServer) -> None:
    came: list[httpx.Request] = []

    def handler(request: httpx.Request) -> httpx.Response:
        came.append(request)
        return balance(request)

    transport = httpx.MockTransport(handler)
    budget = RedisRateBudget(server.url, requests=2, window=30.0)
    with Client(unique_key(), base_url=BASE, budget=budget, deadline=5.0, transport=transport) as client:
        for _ in range(2):
            client.wallet.balance()
        with pytest.raises(BudgetExhaustedError) as caught:
            client.wallet.balance()
    assert caught.value.retry_after == pytest.approx(30.0, abs=1.0)
    assert len(came) == 2


def test_a_429_of_one_client_revokes_the_slot_that_another_waits_for(server: RedisServer) -> None:
    key, times = unique_key(), dict[str, float]()

    def client(name: str, requests: int, answer: Callable[[httpx.Request], httpx.Response]) -> Client:
        def handler(request: httpx.Request) -> httpx.Response:
            times[name] = time.monotonic()
            return answer(request)

        budget = RedisRateBudget(server.url, requests=requests, window=1.0)
        transport = httpx.MockTransport(handler)
        return Client(key, base_url=BASE, budget=budget, max_attempts=1, transport=transport)

    with client("waiting", 1, balance) as one, client("limited", 2, refusal) as other:
        one.wallet.balance()
        thread = threading.Thread(target=one.wallet.balance)
        thread.start()
        time.sleep(0.3)
        with pytest.raises(RateLimitExceededError):
            other.wallet.balance()
        thread.join()
    assert times["waiting"] - times["limited"] >= 1.95


# Without Redis.


def refuse_connections(server: RedisServer) -> None:
    server.kill()


def hang(server: RedisServer) -> None:
    os.kill(server.pid, signal.SIGSTOP)


def become_a_replica(server: RedisServer) -> None:
    with connect(server.url) as admin:
        admin.execute_command("REPLICAOF", "127.0.0.1", "1")


def be_full(server: RedisServer) -> None:
    with connect(server.url) as admin:
        admin.config_set("maxmemory", 1)


def change_the_password(server: RedisServer) -> None:
    with connect(server.url) as admin:
        admin.config_set("requirepass", "another")
        admin.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("break_it", [refuse_connections, hang, become_a_replica, be_full, change_the_password])
def test_while_redis_is_away_the_process_keeps_to_its_share(
    caller: MakeCaller,
    own_server: RedisServer,
    break_it: Callable[[RedisServer], None],
    caplog: pytest.LogCaptureFixture,
    *,
    is_async: bool,
) -> None:
    one = caller(own_server.url, is_async=is_async, requests=12, window=60.0, sharers=3, timeout=0.2)
    assert one.at_once(2) == 2
    break_it(own_server)
    # A third of the slots, of which it has used one: of the log's first two, the first comes back to it.
    assert one.at_once(12) == 3
    one.stop(30.0)
    assert one.reserve() >= 29.0
    warnings = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(warnings) == 1
    assert "4 of 12 requests in 60 s" in warnings[0]


def test_a_process_that_never_met_redis_takes_an_eighth(caller: MakeCaller) -> None:
    assert caller("redis://127.0.0.1:1/0", requests=58, window=60.0).at_once(20) == 7


def test_once_redis_is_back_the_whole_budget_is_shared_again(
    caller: MakeCaller, own_server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "momopay")
    one, other = (caller(own_server.url, requests=12, window=60.0, sharers=2) for _ in range(2))
    assert [one.reserve(), other.reserve()] == [0.0, 0.0]
    own_server.kill()
    assert sum(each.at_once(12) for each in (one, other)) == 10
    own_server.start()  # with an empty log
    for each in (one, other):
        each.ahead = RETRY
        each.stop(0.0)  # this asks Redis again
        assert each.at_once(12) == 0  # it keeps to its share for a window
    for each in (one, other):
        each.ahead = RETRY + 60.0
    assert one.at_once(9) == 9
    assert other.at_once(12) == 3
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING", "INFO", "INFO"]


def test_a_log_that_was_lost_unnoticed_is_not_sent_again_as_a_burst(
    caller: MakeCaller, own_server: RedisServer
) -> None:
    one, other = (caller(own_server.url, requests=12, window=60.0, sharers=2) for _ in range(2))
    assert [each.reserve() for each in (one, other) * 6] == [0.0] * 12
    with connect(own_server.url) as admin:
        admin.flushall()
    assert all(each.at_once(6) <= 2 for each in (one, other))
    own_server.kill()
    own_server.start()
    assert [each.at_once(6) for each in (one, other)] == [0, 0]


# Before anything is sent.


@pytest.mark.parametrize(
    "options",
    [
        *({"requests": wrong} for wrong in (0, 58.5, True)),
        *({"window": wrong} for wrong in (0.0, math.inf, "61")),
        *({"sharers": wrong} for wrong in (0, 2.5, True)),
        *({"timeout": wrong} for wrong in (0.0, math.nan, math.inf, "1")),
    ],
)
def test_an_argument_out_of_range_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        RedisRateBudget("redis://127.0.0.1:1", **options)


def test_the_password_is_shown_nowhere(caller: MakeCaller, caplog: pytest.LogCaptureFixture) -> None:
    url = "redis://user:topsecret@127.0.0.1:1/0"
    assert repr(RedisRateBudget(url)) == "RedisRateBudget(requests=58, window=61.0)"
    with RedisServer("--requirepass", "another") as locked:
        assert caller(locked.url.replace("//", "//:topsecret@")).reserve() == 0.0
    assert "AuthenticationError" in caplog.text
    assert "topsecret" not in caplog.text


def test_a_client_without_a_shared_budget_loads_no_redis() -> None:
    code = (
        "import sys, momopay; momopay.Client('pk_test_x', base_url='http://127.0.0.1:1/v1').wallet;"
        "from momopay import RedisRateBudget; assert 'redis' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
