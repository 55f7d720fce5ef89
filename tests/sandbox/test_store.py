"""The state file: restarts, kills, and files that are something else."""

import sqlite3
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from momopay.sandbox import Outcome, Sandbox, phone_for
from momopay.sandbox._store import Store
from sandbox.kit import KEY, Receiver, data, own_sandbox, transaction_id


def test_a_restart_continues_where_the_last_run_stopped(tmp_path: Path, receiver: Receiver) -> None:
    state = tmp_path / "state.db"
    with own_sandbox(speed=0, state=state) as (sandbox, service):
        sandbox.account(KEY).switches.cancel_ends_as = "FAILED"
        sandbox.account(KEY).fee = Decimal("1.50")
        receiver.answer = lambda _body: 500
        cancelled = service.stk(callbackUrl=receiver.url, phone=phone_for(Outcome.cancelled))
        sandbox.advance(5)
        waiting = service.payout()
        prompt = service.stk(phone=phone_for(Outcome.by_hand))
        top_up = data(service.top_up("key-1"))
        channel = data(service.channel(name="Kept"))["id"]
        sandbox.ban_stk(KEY)
        before, callbacks, ledger = sandbox.now, sandbox.callbacks, sandbox.ledger
    assert KEY.encode() not in state.read_bytes()
    with own_sandbox(speed=0, state=state) as (sandbox, service):
        assert sandbox.now >= before
        assert sandbox.callbacks == callbacks
        assert sandbox.ledger == ledger
        assert sandbox.account(KEY).fee == Decimal("1.50")
        assert sandbox.account(KEY).channels[1].id == channel
        assert service.stk().json()["error"]["code"] == "STK_TEMP_BANNED"
        assert service.read(cancelled)["status"] == "FAILED"
        assert data(service.top_up("key-1")) == top_up
        receiver.answer = lambda _body: 200
        sandbox.advance(100)
        assert service.read(waiting)["status"] == "SUCCESS"
        sandbox.enter_pin(transaction_id(prompt))
        sandbox.advance(30)
        assert service.read(prompt)["status"] == "SUCCESS"
        assert [(record.attempt, record.status) for record in sandbox.callbacks] == [(0, 500), (1, 200)]
        assert data(service.api.get("/transactions"))["overview"]["total"] == 4
        sandbox.reset()
    with Sandbox(speed=0, state=state) as sandbox:
        assert sandbox.ledger == []
        assert sandbox.callbacks == []
        assert sandbox.account(KEY).fee == 1


def test_a_file_that_is_not_a_database_is_left_alone(tmp_path: Path) -> None:
    other = tmp_path / "notes.txt"
    other.write_text("not a database, but long enough to look at " * 50)
    before = other.read_bytes()
    with pytest.raises(ValueError, match=r"notes\.txt is no sandbox state"):
        Sandbox(state=other).start()
    assert other.read_bytes() == before


def test_a_database_of_another_program_is_left_alone(tmp_path: Path) -> None:
    shop = tmp_path / "shop.db"
    connection = sqlite3.connect(shop)
    with connection:
        connection.execute("create table customers (name text)")
    connection.close()
    before = shop.read_bytes()
    with pytest.raises(ValueError, match="belongs to another program"):
        Store(shop)
    assert shop.read_bytes() == before


def test_a_state_of_another_version_is_refused(tmp_path: Path) -> None:
    state = tmp_path / "state.db"
    Store(state).close()
    connection = sqlite3.connect(state)
    with connection:
        connection.execute("update meta set value = '99' where name = 'version'")
    connection.close()
    with pytest.raises(ValueError, match="another version"):
        Store(state)


def test_a_path_that_cannot_be_opened_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="cannot be opened"):
        Store(tmp_path / "missing" / "state.db")


def test_one_state_serves_one_sandbox_at_a_time(tmp_path: Path) -> None:
    state = tmp_path / "state.db"
    store = Store(state)
    with pytest.raises(ValueError, match="in use by another sandbox"):
        Store(state)
    store.close()
    Store(state).close()


def test_what_an_answer_said_survives_a_kill(tmp_path: Path) -> None:
    state, copy = tmp_path / "state.db", tmp_path / "copy.db"
    with own_sandbox(speed=0, state=state) as (_, service):
        sent = service.payout()
        copy.write_bytes(state.read_bytes())
    with own_sandbox(speed=0, state=copy) as (sandbox, service):
        assert service.read(sent)["status"] == "PENDING"
        assert len(sandbox.ledger) == 2


def test_what_a_callback_said_survives_a_kill(tmp_path: Path, receiver: Receiver) -> None:
    state, copy = tmp_path / "state.db", tmp_path / "copy.db"

    def handle(_body: dict[str, Any]) -> int:
        # What the disk holds at this instant is all that a kill would leave.
        copy.write_bytes(state.read_bytes())
        return 200

    receiver.answer = handle
    with own_sandbox(speed=0, state=state) as (sandbox, service):
        sent = service.stk(callbackUrl=receiver.url)
        sandbox.advance(35)
    with own_sandbox(speed=0, state=copy) as (sandbox, service):
        assert service.read(sent)["status"] == "SUCCESS"
        sandbox.advance(0)
    first, again = receiver.bodies
    assert first == again


def test_time_a_ban_and_a_pause_survive_a_kill(tmp_path: Path) -> None:
    state, copy = tmp_path / "state.db", tmp_path / "copy.db"
    with own_sandbox(speed=0, state=state) as (sandbox, service):
        switches = sandbox.account(KEY).switches
        switches.ban_pushes, switches.ban_window = 1, 3600
        service.stk(phone=phone_for(Outcome.risk_limit))
        sandbox.advance(100)
        assert service.stk().json()["error"]["code"] == "STK_TEMP_BANNED"
        sandbox.block_stk("pk_test_other")
        sandbox.advance(500)
        now = sandbox.now
        copy.write_bytes(state.read_bytes())
    with own_sandbox(speed=0, state=copy) as (sandbox, service):
        assert sandbox.now == now
        assert service.stk().json()["error"]["details"] == {"retryAfterSeconds": 3100}
        service.api.auth = ("pk_test_other", "")
        assert service.stk().json()["error"]["details"]["retryAfterSeconds"] == 1300
