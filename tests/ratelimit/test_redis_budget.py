"""`RedisRateBudget` over a real server: one log for all, and what holds while the server or the log is away."""

import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import uuid4

import httpx
import pytest
import redis
import redis.asyncio

from drivers import unique_key
from momopay import Client, ConfigurationError, ProtocolError, RedisRateBudget
from momopay.types import Lane
from patience import until
from ratelimit.kit import BASE, Caller
from redis_server import RedisServer, connect

MakeCaller = Callable[..., Caller]
RETRY = 2.0  # seconds for which Redis is left alone after it did not answer


# One log.


@pytest.mark.parametrize("is_async", [False, True])
def test_processes_share_their_slots(caller: MakeCaller, server: RedisServer, *, is_async: bool) -> None:
    one, other = (caller(server.url, requests=4, window=30.0, is_async=is_async) for _ in range(2))
    other.ahead = 1e6  # the server's clock counts
    assert [each.reserve() for each in (one, other, one, other)] == [0.0] * 4
    assert [each.reserve() for each in (one, other)] == pytest.approx([30.0] * 2, abs=1.0)


def test_a_payment_that_waits_in_one_process_goes_before_reads_of_another(
    caller: MakeCaller, server: RedisServer
) -> None:
    one, other = (caller(server.url, requests=1, window=0.5) for _ in range(2))
    order = list[str]()

    def wait(each: Caller, lane: Lane) -> None:
        assert each.reserve(lane, within=30.0) == 0.0
        order.append(lane.value)

    assert one.reserve(Lane.READ) == 0.0
    threads = [threading.Thread(target=wait, args=args) for args in ((other, Lane.READ), (one, Lane.PAYMENT))]
    for thread in threads:
        thread.start()
        time.sleep(0.1)
    for thread in threads:
        thread.join()
    assert order == ["payment", "read"]


def test_a_stop_holds_everybody_back(caller: MakeCaller, own_server: RedisServer) -> None:
    """Also once Redis is away."""
    one, other = (caller(own_server.url, requests=2, window=5.0) for _ in range(2))
    assert one.at_once(2) == 2
    other.stop(20.0)
    assert [each.reserve() for each in (one, other)] == pytest.approx([20.0, 20.0], abs=1.0)
    other.stop(1.0)
    assert one.reserve() == pytest.approx(20.0, abs=1.0)
    own_server.kill()
    assert one.reserve() == pytest.approx(20.0, abs=1.0)


def test_what_an_answer_shows_lowers_the_budget_of_everybody(caller: MakeCaller, server: RedisServer) -> None:
    one, other = caller(server.url, requests=9), caller(server.url, requests=9)
    one.reserve()
    for remaining in (2, 1, 8):  # answers may come in any order
        one.note_remaining(remaining, 30.0)
    assert one.at_once(3) == 1
    assert other.at_once(3) == 0
    assert other.reserve() == pytest.approx(30, abs=2)


def test_redis_holds_neither_key_nor_address(own_server: RedisServer) -> None:
    key = unique_key()
    transport = httpx.MockTransport(lambda _request: httpx.Response(200))
    options: dict[str, Any] = {"base_url": BASE, "transport": transport, "max_attempts": 1}
    with Client(key, budget=RedisRateBudget(own_server.url), **options) as client, pytest.raises(ProtocolError):
        client.wallet.balance()
    with connect(own_server.url, decode_responses=True) as admin:
        (name,) = admin.keys()
        stored = f"{name} {admin.get(name)}"
    assert name.startswith("momopay:budget:")
    assert key not in stored
    assert "example" not in stored


def test_each_account_has_its_own_log(server: RedisServer) -> None:
    budget = RedisRateBudget(server.url, requests=1)
    one, other = (Caller(budget, uuid4().hex) for _ in range(2))
    assert [each.at_once(2) for each in (one, other)] == [1, 1]
    budget.close()


def test_a_log_that_others_change_is_read_anew_and_in_the_end_hands_out_nothing(
    caller: MakeCaller, server: RedisServer
) -> None:
    other = caller(server.url, requests=1000)

    class Contended(redis.Redis):
        """So many times, another process takes a slot between a read and its write."""

        rivals = 19

        def eval(self, script: str, numkeys: int, *keys_and_args: Any) -> Any:
            if self.rivals:
                self.rivals -= 1
                other.reserve()
            return super().eval(script, numkeys, *keys_and_args)

    with Contended(port=server.port) as client:
        one = caller(client, requests=1000)
        assert (one.reserve(), client.rivals) == (0.0, 0)
        client.rivals = 1000
        assert 0 < one.reserve() <= 0.25  # seconds until it would ask again


# The ways to Redis.


@pytest.mark.parametrize("is_async", [False, True])
def test_a_client_of_redis_py_serves_both_clients_and_stays_open(server: RedisServer, *, is_async: bool) -> None:
    for options in ({}, {"decode_responses": True}):
        server_side: Any = connect(server.url, **options)
        one = Caller(RedisRateBudget(server_side, requests=2, window=30.0), uuid4().hex, is_async=is_async)
        assert one.at_once(3) == 2
        connection = server_side.client_id()
        one.close()
        assert server_side.client_id() == connection  # whoever made it closes it
        server_side.close()


def test_a_process_holds_one_connection_for_each_account_which_its_clients_close(server: RedisServer) -> None:
    name = uuid4().hex
    budget = RedisRateBudget(f"{server.url}?client_name={name}", requests=100)
    one, other = Caller(budget), Caller(budget, is_async=True)

    def open_connections() -> int:
        return sum(member["name"] == name for member in admin.client_list())

    with connect(server.url) as admin, ThreadPoolExecutor(30) as threads:
        admin.client_pause(200)  # so that all of them are under way at the same time
        assert sum(threads.map(one.at_once, [1] * 30)) == 30
        assert other.reserve() == 0.0
        assert open_connections() == 1
        other.close()
        until(lambda: open_connections() == 0)  # the server notices in its own time
        assert one.reserve() == 0.0  # it opens again
        one.close()
        until(lambda: open_connections() == 0)


@pytest.mark.parametrize("is_async", [False, True])
def test_a_connection_that_broke_while_idle_is_no_outage(
    caller: MakeCaller, server: RedisServer, caplog: pytest.LogCaptureFixture, *, is_async: bool
) -> None:
    one = caller(server.url, is_async=is_async, requests=3, window=30.0)
    one.reserve()
    with connect(server.url) as admin:
        admin.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        assert one.reserve() == 0.0
    assert not caplog.records


@pytest.mark.parametrize(
    "given",
    [
        *("http://127.0.0.1", "", "redis://h?socket_timeout=soon", "redis://:topsecret/x@h"),
        *(42, None, object(), redis.asyncio.Redis()),
    ],
)
def test_what_leads_to_no_redis_is_refused(given: Any) -> None:
    with pytest.raises(ConfigurationError) as caught:
        RedisRateBudget(given)
    assert "topsecret" not in f"{caught.value!r}{caught.value.__cause__!r}"
    accepted = RedisRateBudget("redis://user:topsecret@127.0.0.1:1/0")
    assert repr(accepted) == "RedisRateBudget(requests=58, window=61.0)"


def test_without_redis_py_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "redis", None)
    with pytest.raises(ConfigurationError, match=r"momopay\[redis\]"):
        RedisRateBudget("redis://127.0.0.1:1")


# Without Redis.


def hang(server: RedisServer) -> None:
    os.kill(server.pid, signal.SIGSTOP)


def be_full(server: RedisServer) -> None:
    with connect(server.url) as admin:
        admin.config_set("maxmemory", 1)


def change_the_type(server: RedisServer) -> None:
    with connect(server.url) as admin:
        (name,) = admin.keys()
        admin.delete(name)
        admin.lpush(name, "garbage")


def change_the_password(server: RedisServer) -> None:
    with connect(server.url) as admin:
        admin.config_set("requirepass", "another")
        admin.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")


@pytest.mark.parametrize(
    ("break_it", "is_async"),
    [
        *((RedisServer.kill, False), (hang, False), (hang, True), (be_full, False)),
        *((change_the_password, True), (change_the_type, False)),
    ],
)
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
    begun = time.monotonic()
    assert one.at_once(12) == 4  # a third of the slots
    assert time.monotonic() - begun < 4.0  # by the timeout above, and not by redis-py's own
    one.ahead = RETRY  # it asks Redis again, in vain
    assert one.at_once(3) == 0
    one.stop(30.0)
    assert one.reserve() >= 29.0
    warnings = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(warnings) == 1
    assert "4 of 12 requests in 60 s" in warnings[0]
    assert ("(ResponseError: WRONGTYPE Operation against a key" in warnings[0]) == (break_it is change_the_type)
    assert ("(ConnectionError: Error 111 connecting to " in warnings[0]) == (break_it is RedisServer.kill)
    assert ("does not heal by itself" in warnings[0]) == (break_it is change_the_password)


SECURED = {
    "no rights": ("redis://eve:topsecret@", "NoPermissionError", "no permissions", "the rights to the commands"),
    "no command": ("redis://ann:topsecret@", "NoPermissionError", "'eval' command", "the rights to the commands"),
    "no such user": ("redis://bob:topsecret@", "AuthenticationError", "invalid username-password pair", "the user"),
    "wrong password": ("redis://ann:wrong@", "AuthenticationError", "invalid username-password pair", "the password"),
    "no host": ("redis://ann:topsecret@.", "Unicode", "label", "the name of the host"),
    "no tls": ("rediss://", "TimeoutError", "Timeout connecting", "the server has no TLS there"),
}


@pytest.mark.parametrize("case", SECURED)
def test_what_only_a_person_can_correct_is_an_error_with_the_servers_words(
    caller: MakeCaller, own_server: RedisServer, case: str, caplog: pytest.LogCaptureFixture
) -> None:
    with connect(own_server.url) as admin:
        admin.acl_setuser("eve", enabled=True, passwords=["+topsecret"], keys=["other:*"], commands=["+@all"])
        admin.acl_setuser("ann", enabled=True, passwords=["+topsecret"], keys=["*"], commands=["+get", "+time"])
    begin, kind, words, remedy = SECURED[case]
    one = caller(own_server.url.replace("redis://", begin), requests=12, window=60.0, sharers=3, timeout=0.2)
    assert one.at_once(12) == 4
    one.ahead = RETRY
    one.reserve()
    (told,) = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert told.levelno == logging.ERROR
    for text in (f"is refused ({kind}", words, "4 of 12 requests in 60 s", "does not heal by itself: ", remedy):
        assert text in told.getMessage()
    assert "topsecret" not in caplog.text


def test_a_server_with_tls_that_is_silent_is_away(caller: MakeCaller, caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"rediss://127.0.0.1:{silent.getsockname()[1]}/0"
        assert caller(url, requests=12, timeout=0.1).reserve() == 0.0
    assert [record.levelno for record in caplog.records] == [logging.WARNING]


def test_an_outage_that_ends_with_a_refusal_is_told_as_such(
    caller: MakeCaller, own_server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    one = caller(own_server.url.replace("//", "//:wrong@"), requests=12)
    own_server.kill()
    one.reserve()
    own_server.start()
    with connect(own_server.url) as admin:
        admin.config_set("requirepass", "another")
    one.ahead = RETRY
    one.reserve()
    assert [record.levelno for record in caplog.records] == [logging.WARNING, logging.ERROR]


def test_a_process_that_never_met_redis_takes_an_eighth(caller: MakeCaller) -> None:
    assert caller("redis://127.0.0.1:1/0", requests=58, window=60.0).at_once(20) == 7


def test_while_redis_is_away_one_request_in_two_seconds_asks_it(
    caller: MakeCaller, own_server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "momopay")
    one = caller(own_server.url, requests=12, window=60.0, sharers=2)
    one.reserve()
    own_server.kill()
    for one.ahead in (0.0, RETRY):
        one.reserve()
    own_server.start()
    assert one.at_once(12) == 4
    one.ahead = 2 * RETRY
    assert one.reserve() > 0
    levels = [record.levelname for record in caplog.records]
    assert levels == ["WARNING", "WARNING", "INFO"]  # away, the log was lost, back


def test_an_exception_of_a_signal_handler_is_not_taken_for_an_outage(
    caller: MakeCaller, own_server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    class SoftTimeLimitError(Exception):
        pass

    def end(*_: object) -> None:
        raise SoftTimeLimitError

    one = caller(own_server.url, requests=12, window=60.0, timeout=10.0)
    one.reserve()
    before = signal.signal(signal.SIGALRM, end)
    os.kill(own_server.pid, signal.SIGSTOP)
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    try:
        with pytest.raises(SoftTimeLimitError):
            one.reserve()
    finally:
        signal.signal(signal.SIGALRM, before)
        os.kill(own_server.pid, signal.SIGCONT)
    assert one.at_once(12) in (10, 11)  # the request that was interrupted may have taken one
    assert not caplog.records


# What Redis has lost.


def flush(server: RedisServer) -> None:
    with connect(server.url) as admin:
        admin.flushall()


def damage(server: RedisServer) -> None:
    with connect(server.url) as admin:
        admin.set(admin.keys()[0], "garbage")


def restart(server: RedisServer) -> None:
    server.kill()
    server.start()


@pytest.mark.parametrize("is_new", [False, True])
@pytest.mark.parametrize("lose", [flush, damage, restart])
def test_a_log_that_redis_has_lost_counts_as_full(
    caller: MakeCaller,
    own_server: RedisServer,
    lose: Callable[[RedisServer], None],
    caplog: pytest.LogCaptureFixture,
    *,
    is_new: bool,
) -> None:
    size: dict[str, Any] = {"requests": 6, "window": 0.8}
    one = caller(own_server.url, **size)
    assert one.at_once(5) == 5
    lose(own_server)
    first = caller(own_server.url, **size) if is_new else one
    if is_new and lose is not damage:
        assert first.at_once(12) == 6  # what nobody can know: nothing shows that the budget was ever used
        return
    begun = time.monotonic()
    assert first.reserve() == pytest.approx(0.8, abs=0.3)
    assert one.reserve(within=10.0) == 0.0
    assert time.monotonic() - begun >= 0.7
    assert one.at_once(6) + first.at_once(6) == 5
    warnings = [record.getMessage() for record in caplog.records if "has lost" in record.getMessage()]
    assert warnings == ["Redis has lost the log of the rate budget: no request for 0.8 s"]
