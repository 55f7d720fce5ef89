import sqlite3
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx
import pytest

from momopay.sandbox import Outcome, Sandbox, phone_for
from sandbox.kit import KEY, Receiver, Service, data, transaction_id


def _service(sandbox: Sandbox) -> Service:
    return Service(httpx.Client(base_url=sandbox.base_url, auth=(KEY, ""), trust_env=False))


def test_a_restart_goes_on_where_the_last_run_stopped(tmp_path: Path, receiver: Receiver) -> None:
    state = tmp_path / "state.db"
    with Sandbox(speed=0, state=state) as sandbox:
        service = _service(sandbox)
        sandbox.account(KEY).switches.cancel_ends_as = "FAILED"
        sandbox.account(KEY).fee = Decimal("1.50")
        receiver.answer = lambda _body: 500
        told = service.stk(callbackUrl=receiver.url, phone=phone_for(Outcome.cancelled))
        sandbox.advance(5)
        waiting = service.payout()
        top_up = data(service.top_up("key-1"))
        channel = data(service.channel(name="Kept"))["id"]
        sandbox.ban_stk(KEY)
        before, callbacks, ledger = sandbox.now, sandbox.callbacks, sandbox.ledger
        service.api.close()
    assert KEY.encode() not in state.read_bytes()
    with Sandbox(speed=0, state=state) as sandbox:
        service = _service(sandbox)
        assert sandbox.now >= before
        assert sandbox.callbacks == callbacks
        assert sandbox.ledger == ledger
        assert sandbox.account(KEY).fee == Decimal("1.50")
        assert sandbox.account(KEY).channels[1].id == channel
        assert service.stk().json()["error"]["code"] == "STK_TEMP_BANNED"
        assert service.read(told)["status"] == "FAILED"
        assert data(service.top_up("key-1")) == top_up
        receiver.answer = lambda _body: 200
        sandbox.advance(100)
        assert service.read(waiting)["status"] == "SUCCESS"
        assert [(record.attempt, record.status) for record in sandbox.callbacks] == [(0, 500), (1, 200)]
        assert data(service.api.get("/transactions"))["overview"]["total"] == 3
        service.api.close()
        sandbox.reset()
    with Sandbox(speed=0, state=state) as sandbox:
        assert sandbox.ledger == []
        assert sandbox.callbacks == []
        assert sandbox.account(KEY).fee == 1


def test_a_prompt_that_waits_for_the_hand_waits_after_a_restart(tmp_path: Path) -> None:
    state = tmp_path / "state.db"
    with Sandbox(speed=0, state=str(state)) as sandbox:
        service = _service(sandbox)
        sent = transaction_id(service.stk(phone=phone_for(Outcome.by_hand)))
        service.api.close()
    with Sandbox(speed=0, state=str(state)) as sandbox:
        service = _service(sandbox)
        sandbox.advance(1000)
        sandbox.enter_pin(sent)
        sandbox.advance(30)
        assert data(service.api.get(f"/transactions/{sent}"))["status"] == "SUCCESS"
        service.api.close()


def test_a_file_that_is_no_state_is_left_alone(tmp_path: Path) -> None:
    other = tmp_path / "notes.txt"
    other.write_text("not a database, but long enough to look at " * 50)
    with pytest.raises(ValueError, match=r"notes\.txt is no sandbox state"):
        Sandbox(state=other).start()
    assert other.read_text().startswith("not a database")


def test_a_state_of_another_version_is_refused(tmp_path: Path) -> None:
    state = tmp_path / "state.db"
    with Sandbox(state=state):
        pass
    connection = sqlite3.connect(state)
    with connection:
        connection.execute("update meta set value = '99' where name = 'version'")
    connection.close()
    with pytest.raises(ValueError, match="another version"):
        Sandbox(state=state).start()


def test_a_database_of_another_program_is_left_alone(tmp_path: Path) -> None:
    shop = tmp_path / "shop.db"
    connection = sqlite3.connect(shop)
    with connection:
        connection.execute("create table customers (name text)")
    connection.close()
    before = shop.read_bytes()
    with pytest.raises(ValueError, match="belongs to another program"):
        Sandbox(state=shop).start()
    assert shop.read_bytes() == before


def test_a_path_that_cannot_be_opened_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="cannot be opened"):
        Sandbox(state=tmp_path / "missing" / "state.db").start()


def test_one_state_serves_one_sandbox_at_a_time(tmp_path: Path) -> None:
    state = tmp_path / "state.db"
    with Sandbox(state=state), pytest.raises(ValueError, match="in use by another sandbox"):
        Sandbox(state=state).start()
    with Sandbox(state=state):
        pass


def test_what_a_callback_told_survives_a_kill(tmp_path: Path, receiver: Receiver) -> None:
    state, copy = tmp_path / "state.db", tmp_path / "copy.db"

    def handle(_body: dict[str, Any]) -> int:
        # What the disk holds at this instant is all that a kill would leave.
        copy.write_bytes(state.read_bytes())
        return 200

    receiver.answer = handle
    with Sandbox(speed=0, state=state) as sandbox:
        service = _service(sandbox)
        sent = service.stk(callbackUrl=receiver.url)
        sandbox.advance(35)
        service.api.close()
    with Sandbox(speed=0, state=copy) as sandbox:
        service = _service(sandbox)
        assert service.read(sent)["status"] == "SUCCESS"
        sandbox.advance(0)
        service.api.close()
    told, again = receiver.bodies
    assert told == again


def test_time_a_ban_and_a_pause_survive_a_kill(tmp_path: Path) -> None:
    state, copy = tmp_path / "state.db", tmp_path / "copy.db"
    with Sandbox(speed=0, state=state) as sandbox:
        service = _service(sandbox)
        switches = sandbox.account(KEY).switches
        switches.ban_pushes, switches.ban_window = 1, 3600
        service.stk(phone=phone_for(Outcome.risk_limit))
        sandbox.advance(100)
        assert service.stk().json()["error"]["code"] == "STK_TEMP_BANNED"
        sandbox.block_stk("pk_test_other")
        sandbox.advance(500)
        now = sandbox.now
        copy.write_bytes(state.read_bytes())
        service.api.close()
    with Sandbox(speed=0, state=copy) as sandbox:
        service = _service(sandbox)
        assert sandbox.now == now
        assert service.stk().json()["error"]["details"] == {"retryAfterSeconds": 3100}
        service.api.auth = ("pk_test_other", "")
        assert service.stk().json()["error"]["details"]["retryAfterSeconds"] == 1300
        service.api.close()
