"""The shared rate budget, over a real server: one arithmetic, one log, one clock, and what holds while it is away."""

from __future__ import annotations

import asyncio
import itertools
import logging
import math
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal
from uuid import uuid4

import httpx
import pytest
import trio
from hypothesis import example, given, settings
from hypothesis import strategies as st

from drivers import Driver, unique_key
from momopay import (
    AsyncClient,
    BudgetExhaustedError,
    Client,
    ConfigurationError,
    Lane,
    RateBudget,
    RateLimitExceededError,
    RedisRateBudget,
)
from momopay._core.config import Account
from momopay._core.key_state import hash_of
from momopay._core.operation import run_sync
from momopay._ratelimit.limiter import SlotSource
from momopay._transport.async_backend import AsyncBackend
from momopay._transport.sync_backend import SyncBackend
from momopay.redis import remote_log as shared
from momopay.redis.script import LETTERS, Script, microseconds, rules
from momopay.sandbox import Sandbox
from patience import until
from redis_server import RedisServer, connect, connect_asyncio, need_redis
from virtual import VirtualIO, envelope, refusal

BASE = "https://api.example/v1"
TICK = 1 / 64
"""Seconds; a whole number of microseconds and of binary digits, so that both arithmetics are exact."""


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    need_redis()
    with RedisServer() as running:
        yield running


@pytest.fixture
def own_server() -> Iterator[RedisServer]:
    need_redis()
    with RedisServer() as running:
        yield running


@pytest.fixture
def account() -> Account:
    return Account(unique_key(), BASE)


class Desk:
    """One process's place at a shared budget, in either colour."""

    def __init__(self, colour: str, account: Account, budget: RedisRateBudget) -> None:
        self._runner = asyncio.Runner() if colour == "async" else None
        self._port = SyncBackend() if self._runner is None else AsyncBackend()
        self.slots: SlotSource = budget.slots(self._port, hash_of(account))

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return run_sync(work) if self._runner is None else self._runner.run(work)

    def reserve(self, lane: Lane = Lane.PAYMENT, within: float = math.inf) -> float:
        return float(self._run(self.slots.reserve(self._port.now(), lane, within)))

    def stop(self, seconds: float) -> None:
        now = self._port.now()
        self._run(self.slots.stop(now, now + seconds))

    def stopped(self) -> bool:
        return bool(self._run(self.slots.stopped(self._port.now())))

    def close(self) -> None:
        self._run(self.slots.close())
        if self._runner is not None:
            self._runner.close()


MakeDesk = Callable[..., Desk]


@pytest.fixture
def desk(colour: str, account: Account) -> Iterator[MakeDesk]:
    desks: list[Desk] = []

    def make(given: Any, **options: Any) -> Desk:
        desks.append(Desk(colour, account, RedisRateBudget(given, **options)))
        return desks[-1]

    yield make
    for each in desks:
        each.close()


# One arithmetic.


class Scripted:
    """The script, by a clock of the test's own."""

    def __init__(self, server: RedisServer, requests: int, window: float) -> None:
        self._client = connect(server.url)
        self._script = Script.of("local now = tonumber(ARGV[11])\n" + rules())
        self._fixed = (str(requests), str(microseconds(window)))
        self._key = uuid4().hex

    def _run(self, now: float, operation: str, letter: str, span: float) -> list[bytes]:
        # The hash lives by the server's clock, and the test's clock goes faster.
        told = (operation, "member", "0", "", "0", "0", *self._fixed, letter, str(microseconds(span)))
        reply: Any = self._client.eval(self._script.text, 1, self._key, *told, str(microseconds(now)))
        return list(reply)

    def reserve(self, now: float, lane: Lane, within: float) -> float:
        return int(self._run(now, "reserve", LETTERS[lane], within)[1]) / 1e6

    def stop(self, now: float, until: float) -> None:
        self._run(now, "stop", "P", until - now)

    def close(self) -> None:
        self._client.delete(self._key)
        self._client.close()


@given(seed=st.integers(0, 2**32), requests=st.integers(1, 60), pace=st.integers(1, 9 * 64))
@example(seed=0, requests=58, pace=560)
@settings(max_examples=60, deadline=None)
def test_the_script_hands_out_the_slots_that_the_local_budget_would(
    server: RedisServer, seed: int, requests: int, pace: int
) -> None:
    chance = random.Random(seed)
    window = max(1, requests // 8) * pace * TICK  # polling's pace is whole ticks
    local, scripted, now = RateBudget(requests, window), Scripted(server, requests, window), 1000.0

    def span(longest: float) -> float:
        return chance.randrange(1 + int(longest / TICK)) * TICK

    lanes = chance.choices(list(Lane), [chance.random() for _ in Lane], k=100)
    try:
        for lane in lanes:
            now += chance.choice([0.0, 0.0, 0.0, TICK, span(window / 8), span(2 * window / requests)])
            if chance.random() < 0.04:
                until = now + span(window)
                local.stop(now, until)
                scripted.stop(now, until)
            within = chance.choice([math.inf, math.inf, 0.0, span(2 * window)])
            assert scripted.reserve(now, lane, within) == local.reserve(now, lane, within)
    finally:
        scripted.close()


# One log.


def test_budgets_of_one_account_share_their_slots(desk: MakeDesk, server: RedisServer) -> None:
    one, other = desk(server.url, requests=4, window=30.0), desk(server.url, requests=4, window=30.0)
    assert [each.reserve() for each in (one, other, one, other)] == [0.0] * 4
    assert one.reserve() == pytest.approx(30.0, abs=1.0)
    assert other.reserve() == pytest.approx(30.0, abs=1.0)


def test_a_slot_past_the_patience_is_told_and_not_taken(desk: MakeDesk, server: RedisServer) -> None:
    one = desk(server.url, requests=1, window=30.0)
    assert one.reserve() == 0.0
    delays = [one.reserve(within=10.0) for _ in range(3)]
    assert delays == pytest.approx([30.0] * 3, abs=1.0)
    assert one.reserve() == pytest.approx(30.0, abs=1.0)


def test_polling_leaves_its_reserve_to_the_others(desk: MakeDesk, server: RedisServer) -> None:
    one, other = desk(server.url, requests=8, window=30.0), desk(server.url, requests=8, window=30.0)
    assert [one.reserve(Lane.POLL) for _ in range(6)] == [0.0] * 6
    assert one.reserve(Lane.POLL, within=0.0) > 0
    assert [other.reserve() for _ in range(2)] == [0.0] * 2


def test_each_account_has_a_log_of_its_own(server: RedisServer) -> None:
    budget = RedisRateBudget(server.url, requests=1)
    port = SyncBackend()
    accounts = [Account(unique_key(), base) for base in (BASE, BASE)]
    accounts.append(Account(accounts[0].api_key, "https://other.example/v1"))
    every = [budget.slots(port, hash_of(account)) for account in accounts]
    assert [run_sync(slots.reserve(0.0, Lane.PAYMENT, 0.0)) for slots in every] == [0.0] * 3
    assert run_sync(every[0].reserve(0.0, Lane.PAYMENT, 0.0)) > 0


def test_neither_key_nor_address_shows_in_redis_and_all_of_it_expires(desk: MakeDesk, account: Account) -> None:
    need_redis()
    with RedisServer() as server, connect(server.url, decode_responses=True) as look:
        desk(server.url, requests=2, window=0.2).reserve()
        keys: Any = look.keys()
        assert len(keys) == 1
        assert keys[0].startswith("momopay:budget:")
        assert account.api_key not in repr((keys, look.hgetall(keys[0])))
        assert "example" not in repr((keys, look.hgetall(keys[0])))
        assert 0 < int(str(look.pttl(keys[0]))) <= 400
        until(lambda: not look.keys(), "the log is forgotten")


def test_a_stop_holds_everybody_back_and_takes_their_slots_back(desk: MakeDesk, server: RedisServer) -> None:
    one, other = desk(server.url, requests=2, window=5.0), desk(server.url, requests=2, window=5.0)
    assert [one.reserve(), one.reserve()] == [0.0, 0.0]
    assert one.reserve() == pytest.approx(5.0, abs=1.0)
    other.stop(20.0)
    assert one.stopped()
    assert [one.reserve() for _ in range(3)] == pytest.approx([20.0, 20.0, 25.0], abs=1.0)
    other.stop(1.0)
    assert other.reserve() == pytest.approx(25.0, abs=1.0)


def test_the_servers_clock_counts_and_nobody_elses(server: RedisServer, account: Account) -> None:
    early, late = VirtualIO(lambda _method, _path: (200, {})), VirtualIO(lambda _method, _path: (200, {}))
    late.clock += 1e6
    ends = [
        RedisRateBudget(server.url, requests=2, window=30.0).slots(port, hash_of(account)) for port in (early, late)
    ]
    assert [
        run_sync(end.reserve(end_now, Lane.PAYMENT, math.inf)) for end, end_now in zip(ends, (0, 1e6), strict=True)
    ] == [
        0.0,
        0.0,
    ]
    delays = [run_sync(end.reserve(0.0, Lane.PAYMENT, 0.0)) for end in ends]
    assert delays == pytest.approx([30.0, 30.0], abs=1.0)


def test_threads_and_processes_take_no_slot_twice(server: RedisServer, account: Account) -> None:
    budget = RedisRateBudget(server.url, requests=20, window=60.0)
    slots = budget.slots(SyncBackend(), hash_of(account))
    code = (
        "import sys; from momopay import Lane, RedisRateBudget; from momopay._core.operation import run_sync;"
        "from momopay._transport.sync_backend import SyncBackend; from momopay._core.config import Account; from momopay._core.key_state import hash_of;"
        "slots = RedisRateBudget(sys.argv[1], requests=20, window=60.0).slots(SyncBackend(), hash_of(Account(*sys.argv[2:])));"
        "print(sum(run_sync(slots.reserve(0.0, Lane.PAYMENT, 0.0)) == 0 for _ in range(15)))"
    )
    command = [sys.executable, "-c", code, server.url, account.api_key, account.base_url]
    children = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(2)]
    with ThreadPoolExecutor(10) as threads:
        taken = [threads.submit(run_sync, slots.reserve(0.0, Lane.PAYMENT, 0.0)) for _ in range(10)]
        mine = sum(delay.result() == 0 for delay in taken)
    theirs = [int(child.communicate(timeout=30)[0]) for child in children]
    assert mine + sum(theirs) == 20
    budget.close()


@pytest.mark.parametrize("window", ["fixed", "sliding"])
def test_processes_overrun_the_service_with_budgets_of_their_own_and_not_with_a_shared_one(
    server: RedisServer, window: Literal["fixed", "sliding"]
) -> None:
    code = (
        "import contextlib, sys; from momopay import BudgetExhaustedError, Client, RateLimitExceededError,"
        " RedisRateBudget; key, base_url, *redis = sys.argv[1:];"
        "options = {'budget': RedisRateBudget(*redis)} if redis else {};"
        "client = Client(key, base_url=base_url, deadline=20.0, **options)\n"
        "for _ in range(25):\n"
        "    with contextlib.suppress(BudgetExhaustedError, RateLimitExceededError): client.wallet.balance()"
    )
    with Sandbox() as sandbox:
        for given_redis, key in ([server.url], unique_key()), ([], unique_key()):
            sandbox.account(key).switches.rate_window = window
            before = len(sandbox.requests)
            command = [sys.executable, "-c", code, key, sandbox.base_url, *given_redis]
            children = [subprocess.Popen(command) for _ in range(3)]
            assert [child.wait(timeout=60) for child in children] == [0, 0, 0]
            answers = Counter(request.status for request in sandbox.requests[before:])
            assert answers[200] == (58 if given_redis else 60)
            assert (answers[429] == 0) == bool(given_redis)


def test_a_forks_child_speaks_on_connections_of_its_own(server: RedisServer, account: Account) -> None:
    code = """if True:
        import os, sys
        from momopay import Lane, RedisRateBudget
        from momopay._core.operation import run_sync
        from momopay._transport.sync_backend import SyncBackend
        from momopay._core.config import Account
        from momopay._core.key_state import hash_of
        budget = RedisRateBudget(sys.argv[1], requests=400, window=60.0)
        slots = budget.slots(SyncBackend(), hash_of(Account(*sys.argv[2:])))
        def take(): return [run_sync(slots.reserve(0.0, Lane.PAYMENT, 0.0)) for _ in range(100)]
        assert take() == [0.0] * 100
        child = os.fork()
        assert take() == [0.0] * 100
        if child == 0:
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        assert take() == [0.0] * 100
        assert max(take() + take()) > 0
        assert slots._premises.log(slots._key)._seen.members == 2
    """
    command = [sys.executable, "-W", "error", "-c", code, server.url, account.api_key, account.base_url]
    subprocess.run(command, check=True, timeout=30)


# Both clients, every way in.


class Service:
    """Answers every request with a balance, or with what it was told to; knows when each came."""

    def __init__(self, *answers: tuple[int, Any]) -> None:
        self._answers = list(answers)
        self.came: list[float] = []
        self.transport = httpx.MockTransport(self._answer)

    def _answer(self, _request: httpx.Request) -> httpx.Response:
        self.came.append(time.monotonic())
        if self._answers:
            status, body = self._answers.pop(0)
            return httpx.Response(status, json=body)
        balance = {"walletId": "w", "tenantId": "t", "currency": "KES", "availableBalance": 1, "ledgerBalance": 1}
        return httpx.Response(200, json=envelope({**balance, "updatedAt": "2026-01-05T09:00:00Z"}))


GIVEN: dict[str, Callable[[str], Any]] = {
    "url": str,
    "client": connect,
    "decoding client": lambda url: connect(url, decode_responses=True),
    "asyncio client": connect_asyncio,
    "decoding asyncio client": lambda url: connect_asyncio(url, decode_responses=True),
}


@pytest.mark.parametrize("kind", GIVEN)
def test_every_way_to_redis_serves_the_clients_that_it_can(
    drive: Callable[..., Driver], colour: str, server: RedisServer, kind: str
) -> None:
    service, given_to_it = Service(), GIVEN[kind](server.url)
    budget = RedisRateBudget(given_to_it, requests=2, window=30.0)
    driver = drive(api_key=unique_key(), budget=budget, deadline=5.0, transport=service.transport)
    if "asyncio" in kind and colour == "blocking":
        with pytest.raises(ConfigurationError, match="URL"):
            driver(lambda client: client.wallet.balance())
        assert not service.came
        return
    for _ in range(2):
        driver(lambda client: client.wallet.balance())
    with pytest.raises(BudgetExhaustedError) as caught:
        driver(lambda client: client.wallet.balance())
    assert caught.value.retry_after == pytest.approx(30.0, abs=1.0)
    assert len(service.came) == 2
    if "asyncio" in kind:
        driver(lambda _client: given_to_it.aclose())
    elif kind != "url":
        given_to_it.close()


def test_trio_shares_the_budget_through_a_thread(server: RedisServer) -> None:
    service = Service()
    budget = RedisRateBudget(server.url, requests=1, window=30.0)

    async def work() -> None:
        async with AsyncClient(unique_key(), base_url=BASE, budget=budget, transport=service.transport,
                               deadline=5.0) as client:  # fmt: skip
            await client.wallet.balance()
            with pytest.raises(BudgetExhaustedError):
                await client.wallet.balance()

    trio.run(work)
    assert len(service.came) == 1


def test_one_budget_serves_many_event_loops_and_leaves_nothing_open(server: RedisServer) -> None:
    service, key = Service(), unique_key()
    budget = RedisRateBudget(f"{server.url}?client_name={key}", requests=3, window=30.0)

    def links() -> int:
        return sum(member["name"] == key for member in look.client_list())

    async def work() -> None:
        async with AsyncClient(key, base_url=BASE, budget=budget, transport=service.transport) as client:
            await client.with_options(timeout=3).wallet.balance()
            assert links() >= 1

    with connect(server.url) as look, ThreadPoolExecutor(2) as threads:
        list(threads.map(asyncio.run, (work(), work())))
        asyncio.run(work())
        with Client(key, base_url=BASE, budget=budget, deadline=5.0) as client:
            with pytest.raises(BudgetExhaustedError):
                client.wallet.balance()
            until(lambda: links() == 1)  # the server learns of a closed connection in its own time
        until(lambda: links() == 0)


def test_waiting_for_a_slot_is_part_of_the_deadline(drive: Callable[..., Driver], server: RedisServer) -> None:
    service = Service()
    budget = RedisRateBudget(server.url, requests=1, window=1.0)
    driver = drive(api_key=unique_key(), budget=budget, deadline=5.0, transport=service.transport)
    for _ in range(3):
        driver(lambda client: client.wallet.balance())
    gaps = [later - earlier for earlier, later in itertools.pairwise(service.came)]
    assert all(0.95 <= gap < 2.5 for gap in gaps), gaps


def test_a_429_heard_by_one_client_takes_back_the_slot_that_another_waits_for(server: RedisServer) -> None:
    key, waiting = unique_key(), Service()
    limited = Service((429, refusal("RATE_LIMIT_EXCEEDED", limit=60, remaining=0, resetInSeconds=2)))

    def client(service: Service, requests: int) -> Client:
        budget = RedisRateBudget(server.url, requests=requests, window=1.0)
        return Client(key, base_url=BASE, budget=budget, max_attempts=1, transport=service.transport)

    with client(waiting, 1) as one, client(limited, 2) as other:
        one.wallet.balance()
        thread = threading.Thread(target=one.wallet.balance)
        thread.start()
        time.sleep(0.3)
        with pytest.raises(RateLimitExceededError):
            other.with_options(deadline=1.5).wallet.balance()
        thread.join()
    assert waiting.came[1] - limited.came[0] >= 1.95


def test_a_cancelled_wait_costs_one_slot_at_most(server: RedisServer, account: Account) -> None:
    budget = RedisRateBudget(server.url, requests=4, window=30.0)

    async def work() -> list[float]:
        port = AsyncBackend()
        slots = budget.slots(port, hash_of(account))
        await slots.reserve(0.0, Lane.READ, math.inf)  # a connection is open
        for steps_taken in range(2):
            task = asyncio.create_task(slots.reserve(0.0, Lane.READ, math.inf))
            for _ in range(steps_taken):
                await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        delays = [await slots.reserve(0.0, Lane.PAYMENT, 0.0) for _ in range(4)]
        await slots.close()
        return delays

    assert asyncio.run(work())[:2] == [0.0, 0.0]


# What ails Redis.


def test_a_script_that_redis_forgot_is_sent_again(desk: MakeDesk, server: RedisServer) -> None:
    one = desk(server.url, requests=3, window=30.0)
    with connect(server.url) as admin:
        for _ in range(3):
            assert one.reserve() == 0.0
            admin.script_flush()
    assert one.reserve(within=0.0) > 0


def _refuse_connections(server: RedisServer) -> None:
    server.kill()


def _hang(server: RedisServer) -> None:
    os.kill(server.pid, signal.SIGSTOP)


def _be_a_replica(server: RedisServer) -> None:
    with connect(server.url) as admin:
        admin.execute_command("REPLICAOF", "127.0.0.1", "1")


def _be_full(server: RedisServer) -> None:
    with connect(server.url) as admin:
        admin.config_set("maxmemory", 1)


def _ask_for_a_password(server: RedisServer) -> None:
    with connect(server.url) as admin:
        admin.config_set("requirepass", "another")
        admin.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")


AILMENTS = [_refuse_connections, _hang, _be_a_replica, _be_full, _ask_for_a_password]


@pytest.mark.parametrize("ail", AILMENTS)
def test_while_redis_is_away_a_static_share_goes_out_without_delay(
    desk: MakeDesk, own_server: RedisServer, ail: Callable[[RedisServer], None], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "momopay")
    one = desk(own_server.url, requests=12, window=60.0, sharers=3, timeout=0.2)
    assert [one.reserve(), one.reserve()] == [0.0, 0.0]
    ail(own_server)
    begun = time.monotonic()
    delays = [one.reserve(within=0.0) for _ in range(12)]
    assert time.monotonic() - begun < 2.0
    # Two of the twelve were taken, and a third of the ten that are left is three whole slots.
    assert delays.count(0.0) == 3
    one.stop(30.0)
    assert one.stopped()
    assert one.reserve(within=0.0) >= 29.0
    told = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(told) == 1
    assert "4 of 12 requests in 60 s" in told[0]


def test_a_process_that_never_met_redis_takes_an_eighth(desk: MakeDesk, own_server: RedisServer) -> None:
    own_server.kill()
    one = desk(own_server.url, requests=58, window=60.0)
    assert [one.reserve(within=0.0) for _ in range(20)].count(0.0) == 7


@pytest.fixture
def _quick_return(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared, "RETRY", 0.1)
    monkeypatch.setattr(shared, "SETTLE", 0.3)


@pytest.mark.usefixtures("_quick_return")
def test_a_log_that_redis_lost_is_told_anew_with_what_was_taken_alone(
    desk: MakeDesk, own_server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "momopay")
    one, other = (desk(own_server.url, requests=12, window=60.0, sharers=2) for _ in range(2))
    taken = [each.reserve() for each in (one, other, one, other)]
    own_server.kill()
    # Eight are left, four for each.
    for each in (one, other):
        taken += [delay for delay in (each.reserve(within=0.0) for _ in range(6)) if delay == 0]
    count = len(taken)
    assert 10 <= count <= 12  # one more each may have been taken unseen
    own_server.start()
    time.sleep(0.15)
    end = time.monotonic() + 1.0
    while time.monotonic() < end:
        taken += [delay for delay in (each.reserve(within=0.0) for each in (one, other)) if delay == 0]
        time.sleep(0.02)
    assert taken == [0.0] * len(taken)
    assert len(taken) <= 12
    assert one.reserve() == pytest.approx(60.0, abs=5.0)
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING", "INFO", "INFO"]


@pytest.mark.usefixtures("_quick_return")
def test_a_log_that_was_flushed_unnoticed_is_told_anew(desk: MakeDesk, own_server: RedisServer) -> None:
    one, other = (desk(own_server.url, requests=4, window=60.0, sharers=2) for _ in range(2))
    assert [each.reserve() for each in (one, other, one, other)] == [0.0] * 4
    with connect(own_server.url) as admin:
        admin.flushall()
    everyone = (one, other, desk(own_server.url, requests=4, window=60.0, sharers=2))
    end = time.monotonic() + 0.8
    while time.monotonic() < end:
        assert all(each.reserve(within=0.0) > 0 for each in everyone)
        time.sleep(0.02)


@pytest.mark.usefixtures("_quick_return")
def test_once_redis_is_back_the_whole_budget_is_shared_again(desk: MakeDesk, own_server: RedisServer) -> None:
    one, other = (desk(own_server.url, requests=12, window=2.0, sharers=2) for _ in range(2))
    other.reserve()
    one.reserve()
    own_server.kill()
    assert [one.reserve(within=0.0) for _ in range(12)].count(0.0) < 7
    own_server.start()
    time.sleep(2.1)  # what was taken has run out
    one.reserve()
    time.sleep(2.1)
    assert [one.reserve(within=0.0) for _ in range(13)].count(0.0) == 12
    assert other.reserve(within=0.0) > 0


# Before anything is sent.


@pytest.mark.parametrize(
    "options",
    [{"requests": 0}, {"window": 0.0}, {"window": math.inf}, {"sharers": 0}, {"timeout": 0.0}, {"timeout": math.nan}],
)
def test_a_senseless_budget_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        RedisRateBudget("redis://127.0.0.1:1", **options)


@pytest.mark.parametrize("given_instead", ["http://127.0.0.1", "", "redis://h?socket_timeout=soon", 42, None, object()])
def test_what_leads_to_no_redis_is_refused(given_instead: Any) -> None:
    with pytest.raises(ConfigurationError):
        RedisRateBudget(given_instead)


def test_the_password_shows_nowhere(desk: MakeDesk, caplog: pytest.LogCaptureFixture) -> None:
    url = "redis://user:topsecret@127.0.0.1:1/0"
    assert "topsecret" not in repr(RedisRateBudget(url))
    with pytest.raises(ConfigurationError) as caught:
        RedisRateBudget(url.replace("redis:", "http:"))
    assert "topsecret" not in repr(caught.value) + repr(caught.value.__cause__)
    need_redis()
    with RedisServer("--requirepass", "another") as locked:
        assert desk(locked.url.replace("//", "//:topsecret@")).reserve() == 0.0
    assert len(caplog.records) == 1
    assert "AuthenticationError" in caplog.text
    assert "topsecret" not in caplog.text


def test_without_redis_py_the_remedy_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "redis", None)
    with pytest.raises(ConfigurationError, match=r"momopay\[redis\]"):
        RedisRateBudget("redis://127.0.0.1:1")


def test_a_client_without_a_shared_budget_loads_no_redis() -> None:
    code = (
        "import sys, momopay; momopay.Client('pk_test_x', base_url='http://127.0.0.1:1/v1').wallet;"
        "from momopay import RedisRateBudget; assert 'redis' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
