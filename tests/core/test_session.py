"""What calls share: the budget of a key, the pause of prompts, and the offset of the service's clock."""

import os
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime, timedelta, tzinfo
from email.utils import format_datetime
from pathlib import Path
from typing import Self

import pytest

import momopay
from forked import succeeds_in_child
from in_turn import in_turn, some_by_default
from journal.database_kit import in_threads
from momopay import RateBudget
from momopay._core.config import Account
from momopay._core.state import ServiceClock, StkPause, key_state_for
from momopay._core.wiring import ClientJournal, Once


def banned(retry_after: float | None = None) -> momopay.StkTempBannedError:
    return momopay.StkTempBannedError("no", retry_after=retry_after, code="STK_TEMP_BANNED", status_code=429)


def blocked(retry_after: float | None = None) -> momopay.TransactionHealthBlockedError:
    return momopay.TransactionHealthBlockedError("no", retry_after=retry_after, code="X", status_code=429)


@in_turn("url", ["https://API.example/v1", "https://api.example:443/v1", "https://api.example/v1/"])
def test_a_key_has_one_state_however_its_address_is_spelt(url: str) -> None:
    account = Account("pk_test_spelt", "https://api.example/v1")
    assert key_state_for(Account("pk_test_spelt", url)) is key_state_for(account)
    for other in (Account("pk_test_other", url), Account("pk_test_spelt", "https://other.example/v1")):
        assert key_state_for(other) is not key_state_for(account)
    assert "pk_test_spelt" not in account.hash


@in_turn(("refusal", "seconds"), [(banned(), 3600), (blocked(), 1800), (banned(0.0), 0), (blocked(7200.0), 7200)])
def test_a_pause_lasts_as_stated_or_as_documented(refusal: momopay.ThrottledError, seconds: float) -> None:
    pause, stated = StkPause(), refusal.retry_after
    assert pause.refusal(100.0) is None
    pause.begin(100.0, refusal)
    held = pause.refusal(100.0 + seconds - 1)
    assert (type(held), held and held.retry_after, refusal.retry_after) == (type(refusal), 1.0, stated)
    assert pause.refusal(100.0 + seconds) is None


def test_the_longer_of_two_pauses_holds() -> None:
    pause = StkPause()
    pause.begin(0.0, banned(3600.0))
    pause.begin(1.0, blocked(1.0))
    assert isinstance(pause.refusal(3599.0), momopay.StkTempBannedError)
    pause.begin(3599.0, blocked(10.0))
    assert isinstance(pause.refusal(3608.0), momopay.TransactionHealthBlockedError)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="Windows has no fork")
def test_a_fork_while_a_thread_makes_what_is_shared_leaves_no_lock_held(monkeypatch: pytest.MonkeyPatch) -> None:
    made, may_end = threading.Event(), threading.Event()

    def slow_budget() -> RateBudget:
        made.set()
        may_end.wait(30)
        return RateBudget()

    monkeypatch.setattr("momopay._core.state.RateBudget", slow_budget)
    once = Once(slow_budget)
    account = Account("pk_test_slow", "https://api.example/v1")
    threads = [threading.Thread(target=key_state_for, args=[account]), threading.Thread(target=once.get)]
    for thread in threads:
        made.clear()
        thread.start()
        assert made.wait(30)

    def in_child() -> None:
        may_end.set()
        assert key_state_for(Account("pk_test_forked", "https://api.example/v1")) is not None
        assert once.get() is once.get()

    try:
        assert succeeds_in_child(in_child)
    finally:
        may_end.set()
        for thread in threads:
            thread.join()


def test_threads_that_come_together_make_it_once() -> None:
    made = list[int]()

    def make() -> int:
        time.sleep(0.05)
        made.append(7)
        return 7

    assert in_threads(5, Once(make).get) == [7] * 5
    assert made == [7]


def test_a_closed_journal_is_not_opened_and_the_users_own_stays_open(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'payments.db'}"
    journal, opened = ClientJournal(url), ClientJournal(url)
    journal.close()
    with pytest.raises(momopay.ConfigurationError, match="closed"):
        journal.get()
    assert list(tmp_path.iterdir()) == []
    made = opened.get()
    opened.close()
    with pytest.raises(momopay.ConfigurationError, match="this journal is closed"):
        made.unresolved()
    with momopay.Journal(f"sqlite:///{tmp_path / 'own.db'}") as own:
        kept = ClientJournal(own)
        assert kept.get() is own
        kept.close()
        assert own.unresolved() == []  # the user's own stays open


# The service's clock.


def date(seconds: float) -> dict[str, str]:
    """Return the header of a service whose clock is so many seconds behind this machine's."""
    return {"date": format_datetime(datetime.now(UTC) - timedelta(seconds=seconds), usegmt=True)}


@in_turn(("seconds", "ahead"), [(360, 360), (0, 0), (-360, 0)])
def test_the_offset_is_measured_by_the_date(seconds: int, ahead: int) -> None:
    clock = ServiceClock()
    assert (clock.offset, clock.ahead, clock.service_now_if_known()) == (None, 0, None)
    clock.observe(date(seconds))
    assert clock.offset == pytest.approx(seconds, abs=2)
    assert clock.ahead == pytest.approx(ahead, abs=2)


def test_the_offset_follows_a_clock_that_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    class Machine(datetime):
        ahead = 0.0

        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Self:
            return cls.fromtimestamp(1e9 + boot + cls.ahead, tz)

    boot = 10.0
    monkeypatch.setattr("momopay._core.state.datetime", Machine)
    monkeypatch.setattr("momopay._core.state.now", lambda: boot)
    clock = ServiceClock()
    clock.observe({"date": format_datetime(Machine.now(UTC), usegmt=True)})
    assert (clock.offset, clock.service_now_if_known()) == (0, Machine.now(UTC))
    boot, Machine.ahead = 500.0, 3600.0
    assert clock.offset == pytest.approx(3600, abs=1)
    assert clock.service_now_if_known() == Machine.fromtimestamp(1e9 + boot, UTC)


@in_turn("headers", [{}, {"date": "soon"}, {"date": "Mon, 99 Xyz 2026 10:00:00 GMT"}, date(4e8), date(-4e8)])
def test_a_response_without_a_date_says_nothing(headers: dict[str, str]) -> None:
    clock = ServiceClock()
    clock.observe(headers)
    assert clock.offset is None


def test_a_clock_that_is_off_is_logged_once_and_the_virtual_one_of_a_sandbox_never(
    caplog: pytest.LogCaptureFixture,
) -> None:
    sandbox, clock = ServiceClock(on_loopback=True), ServiceClock()
    sandbox.observe(date(-3600))
    assert sandbox.offset == pytest.approx(-3600, abs=2)
    assert caplog.records == []
    for seconds in (59, 61, 62, -90, -91):
        clock.observe(date(seconds))
    assert [record.message.split("clock is ")[1].split(" s ")[1] for record in caplog.records] == [
        "ahead of the service's: set it",
        "behind the service's: set it",
    ]
    assert "is -" not in caplog.text


# The first durable call of an async client

IMPORTS = """
import asyncio, sys, threading
from momopay import AsyncClient
heavy = {"anyio", "anyio._backends._asyncio", "httpx", "psycopg", "pydantic", "sqlalchemy"}
heavy |= {"momopay.journal.queue", "momopay.journal.store"}
seen = {}
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name in heavy:
            seen[name] = threading.current_thread() is threading.main_thread()
sys.meta_path.insert(0, Finder())
async def main():
    client = AsyncClient("pk_test_x", base_url=sys.argv[1], journal=sys.argv[2])
    call = getattr(getattr(client, sys.argv[3]), sys.argv[4])
    assert not seen, seen
    try:
        await call(reference="r", amount=10, phone="0712345678") if sys.argv[4].endswith("once") else await call()
    except Exception as error:
        print(type(error).__name__)
    await client.aclose()
asyncio.run(main())
assert seen.keys() >= heavy - {"psycopg"}, seen
print(sorted(name for name, is_main in seen.items() if is_main))
"""


@pytest.mark.parametrize("call", some_by_default(["payouts.pay_once", "stk.collect_once", "transactions.sweep"]))
def test_the_first_durable_call_of_an_async_client_imports_in_a_thread(tmp_path: Path, call: str) -> None:
    """The event loop goes on meanwhile."""
    assert imported_by_the_loop(IMPORTS, tmp_path, call) == "[]"


@pytest.mark.whole
def test_the_control_imports_where_it_is_made(tmp_path: Path) -> None:
    """A call without a journal."""
    control = IMPORTS.replace("getattr(getattr(client, sys.argv[3]), sys.argv[4])", "client.wallet.balance")
    control = control.replace("    assert not seen, seen\n", "").replace("assert seen.keys()", "seen.keys()")
    assert "pydantic" in imported_by_the_loop(control, tmp_path, "payouts.pay_once")


def imported_by_the_loop(program: str, folder: Path, call: str) -> str:
    command = [sys.executable, "-c", program, "http://127.0.0.1:1/v1", f"sqlite:///{folder / 'payments.db'}"]
    shown = subprocess.run([*command, *call.split(".")], capture_output=True, text=True, check=True).stdout
    return shown.splitlines()[-1]
