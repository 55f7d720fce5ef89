import sqlite3
from decimal import Decimal
from pathlib import Path

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
