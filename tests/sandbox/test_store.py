"""The state file: restarts, kills, and files that are something else."""

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from momopay.sandbox import Outcome, Sandbox, phone_for
from momopay.sandbox._engine import Store
from sandbox.kit import KEY, Receiver, data, execute, own_sandbox, transaction_id


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
        assert (sandbox.callbacks, sandbox.ledger) == (callbacks, ledger)
        assert (sandbox.account(KEY).fee, sandbox.account(KEY).channels[1].id) == (Decimal("1.50"), channel)
        assert service.stk().json()["error"]["code"] == "STK_TEMP_BANNED"
        assert (service.read(cancelled)["status"], data(service.top_up("key-1"))) == ("FAILED", top_up)
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
        assert (sandbox.ledger, sandbox.callbacks) == ([], [])
        assert sandbox.account(KEY).fee == 1


def test_a_file_of_something_else_is_left_alone(tmp_path: Path) -> None:
    notes, shop, state = tmp_path / "notes.txt", tmp_path / "shop.db", tmp_path / "state.db"
    notes.write_text("not a database, but long enough to look at " * 50)
    execute(shop, "create table customers (name text)")
    for other, reason in ((notes, r"notes\.txt is no sandbox state"), (shop, "belongs to another program")):
        before = other.read_bytes()
        with pytest.raises(ValueError, match=reason):
            Sandbox(state=other).start()
        assert other.read_bytes() == before
    store = Store(state)
    with pytest.raises(ValueError, match="in use by another sandbox"):
        Store(state)
    store.close()
    execute(state, "pragma application_id = 99")
    for path, reason in ((state, "another version"), (tmp_path / "missing" / "state.db", "cannot be opened")):
        with pytest.raises(ValueError, match=reason):
            Store(path)


def test_what_a_callback_or_an_answer_said_survives_a_kill(tmp_path: Path, receiver: Receiver) -> None:
    state, called, answered = (tmp_path / name for name in ("state.db", "called.db", "answered.db"))

    def handle(_body: dict[str, Any]) -> int:
        # What the disk holds at this instant is all that a kill would leave.
        called.write_bytes(state.read_bytes())
        return 200

    receiver.answer = handle
    with own_sandbox(speed=0, state=state) as (sandbox, service):
        paid = service.stk(callbackUrl=receiver.url)
        sandbox.advance(500)
        sandbox.ban_stk(KEY)
        sandbox.block_stk("pk_test_other")
        sandbox.advance(500)
        sent = service.payout()
        now = sandbox.now
        answered.write_bytes(state.read_bytes())
    with own_sandbox(speed=0, state=called) as (sandbox, service):
        assert service.read(paid)["status"] == "SUCCESS"
        sandbox.advance(0)
    first, again = receiver.bodies
    assert first == again
    with own_sandbox(speed=0, state=answered) as (sandbox, service):
        assert (sandbox.now, service.read(sent)["status"]) == (now, "PENDING")
        assert service.stk().json()["error"]["details"] == {"retryAfterSeconds": 3100}
        service.api.auth = ("pk_test_other", "")
        assert service.stk().json()["error"]["details"]["retryAfterSeconds"] == 1300
