from __future__ import annotations

import re
import shutil
import signal
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from examples.runs import EXAMPLES, Service, Web, free_port, serving
from momopay import CallbackSigner
from momopay.sandbox import Fault, Outcome, phone_for
from patience import until

APP = Path("checkout") / "app.py"
SECRET = "only-for-this-test-0123"


def settings(service: Service) -> dict[str, str]:
    return service.env(SHOP_SECRET=SECRET, SHOP_DATABASE="orders.db")


def order_of(web: Web) -> str:
    page = web.http.get("/").text
    found = re.search(r'name="order" value="([0-9a-f]{12})"', page)
    assert found is not None, page
    return found[1]


def buy(web: Web, phone: str = "0712 345 678", amount: str = "250") -> str:
    order_id = order_of(web)
    answer = web.http.post("/", data={"order": order_id, "phone": phone, "amount": amount})
    assert (answer.status_code, answer.headers["location"]) == (303, f"/orders/{order_id}"), answer.text
    return order_id


def state_of(web: Web, order_id: str) -> str:
    page = web.http.get(f"/orders/{order_id}").text
    found = re.search(r'<section class="(\w+)">', page)
    assert found is not None, page
    return found[1]


def shipped_and_paid(service: Service, folder: Path, order_id: str) -> str:
    return f"{parcels(folder, order_id)} parcels, paid {service.moved('stk')[order_id]} times"


def ends(web: Web, order_id: str, state: str) -> None:
    until(lambda: state_of(web, order_id) != "WAITING", f"{order_id} ends")
    assert state_of(web, order_id) == state


def parcels(folder: Path, order_id: str) -> int:
    with sqlite3.connect(folder / "orders.db") as db:
        count: int = db.execute("SELECT count(*) FROM parcels WHERE order_id = ?", (order_id,)).fetchone()[0]
    db.close()
    return count


def callbacks(service: Service, order_id: str) -> list[int | None]:
    records = (record for record in service.sandbox.callbacks if record.tenant_id == service.account.tenant_id)
    found: list[tuple[Any, int | None]] = [(record.payload["transaction"], record.status) for record in records]
    return [status for transaction, status in found if transaction["external_reference"] == order_id]


@pytest.fixture
def web(service: Service, tmp_path: Path) -> Iterator[Web]:
    with serving(APP, tmp_path, env=settings(service)) as web:
        yield web


def test_a_callback_that_comes_twice_ships_one_parcel(web: Web, service: Service, tmp_path: Path) -> None:
    service.sandbox.fail_next("POST", "/payments/stk", Fault.callback_duplicate)
    order_id = buy(web, phone_for(Outcome.by_hand))
    again = web.http.post("/", data={"order": order_id, "phone": "0712345678", "amount": "250"})
    assert again.status_code == 303
    assert service.moved("fee")[order_id] == 1, "a form sent twice is one prompt"
    waiting = web.http.get(f"/orders/{order_id}").text
    assert '<noscript><meta http-equiv="refresh"' in waiting
    assert "712345" not in waiting
    with web.http.stream("GET", f"/orders/{order_id}/events") as live:
        events = (line for line in live.iter_lines() if line)
        assert "WAITING" in next(events)
        (prompt,) = (movement.transaction_id for movement in service.sandbox.ledger if movement.reference == order_id)
        service.sandbox.enter_pin(prompt)
        assert "PAID" in next(events)
        assert list(events) == [], "the stream ends with the order"
    until(lambda: len(callbacks(service, order_id)) == 2, "the callback came twice")
    assert callbacks(service, order_id) == [200, 200]
    assert state_of(web, order_id) == "PAID"
    assert shipped_and_paid(service, tmp_path, order_id) == "1 parcels, paid 1 times"


def test_a_lost_callback_is_made_up_for_by_the_sweep(service: Service, tmp_path: Path) -> None:
    with serving(APP, tmp_path, env=settings(service) | {"SHOP_SWEEP_SECONDS": "0.2"}) as web:
        unheard = buy(web, phone_for(Outcome.callback_lost))
        service.sandbox.fail_next("POST", "/payments/stk", Fault.reset_after_commit)
        neither = buy(web, phone_for(Outcome.callback_lost))
        service.sandbox.advance(600)
        ends(web, unheard, "PAID")
        ends(web, neither, "PAID")
    assert {each: parcels(tmp_path, each) for each in (unheard, neither)} == {unheard: 1, neither: 1}


def test_without_either_guard_it_would_ship_twice(service: Service, tmp_path: Path) -> None:
    """The journal hands each end to one, and the condition on the state is the second line."""
    shutil.copytree(EXAMPLES / "checkout", tmp_path / "checkout")
    for name, guard in [("shop.py", " AND state IN ('WAITING', ?)"), ("app.py", ", journal=shop.journal")]:
        file = tmp_path / "checkout" / name
        careless = (
            file.read_text().replace(guard, "").replace("(state, note, order_id, before)", "(state, note, order_id)")
        )
        assert careless != file.read_text()
        file.write_text(careless)
    service.sandbox.fail_next("POST", "/payments/stk", Fault.callback_duplicate)
    with serving(tmp_path / APP, tmp_path, env=settings(service)) as web:
        order_id = buy(web)
        until(lambda: parcels(tmp_path, order_id) > 1, "the second parcel")


def test_a_prompt_whose_response_is_lost_is_paid_and_shipped(web: Web, service: Service, tmp_path: Path) -> None:
    service.sandbox.fail_next("POST", "/payments/stk", Fault.reset_after_commit)
    order_id = buy(web)
    ends(web, order_id, "PAID")
    assert shipped_and_paid(service, tmp_path, order_id) == "1 parcels, paid 1 times"


def test_a_callback_that_arrives_while_the_shop_is_down_is_not_lost(service: Service, tmp_path: Path) -> None:
    port = free_port()
    with serving(APP, tmp_path, port=port, env=settings(service)) as web:
        order_id = buy(web, phone_for(Outcome.by_hand))
        web.process.send_signal(signal.SIGKILL)
        web.process.wait()
    (prompt,) = (movement.transaction_id for movement in service.sandbox.ledger if movement.reference == order_id)
    service.sandbox.enter_pin(prompt)
    until(lambda: callbacks(service, order_id) != [], "a callback that nobody receives")
    with serving(APP, tmp_path, port=port, env=settings(service)) as web:
        service.sandbox.advance(600)
        ends(web, order_id, "PAID")
    assert parcels(tmp_path, order_id) == 1


def test_forged_callbacks_ship_nothing(web: Web, service: Service, tmp_path: Path) -> None:
    order_id = buy(web)
    ends(web, order_id, "PAID")
    until(lambda: callbacks(service, order_id) == [200], "the callback is acknowledged")
    (genuine,) = (record for record in service.sandbox.callbacks if record.tenant_id == service.account.tenant_id)
    signed = httpx.URL(genuine.url).raw_path.decode()
    unpaid = buy(web, phone_for(Outcome.by_hand))
    payload: Any = genuine.payload
    forged = {**payload, "transaction": {**payload["transaction"], "external_reference": unpaid}}
    before = len(service.sandbox.requests)
    assert web.http.post("/momo", json=genuine.payload).status_code == 403
    assert web.http.post(signed, json=forged).status_code == 403
    assert web.http.post(signed, content=b"garbage").status_code == 400
    assert len(service.sandbox.requests) == before, "none of these sends a request to the service"
    assert web.http.post(signed, json=genuine.payload).status_code == 200
    leaked = CallbackSigner(SECRET).url("http://shop/momo", reference=unpaid).removeprefix("http://shop")
    assert web.http.post(leaked, json=forged).status_code == 503, "the service's own record says otherwise"
    assert {each: parcels(tmp_path, each) for each in (order_id, unpaid)} == {order_id: 1, unpaid: 0}


def test_a_refused_form_says_why(web: Web, service: Service) -> None:
    for sent, said in [
        ({"order": "0123456789ab", "phone": "12345", "amount": "250"}, "The phone number must be a Kenyan phone"),
        ({"order": "0123456789ab", "phone": "0712345678", "amount": "<b>"}, "The amount is a whole number"),
        ({"order": "'; --", "phone": "0712345678", "amount": "1"}, "Please send the form again"),
        ({}, "Please send the form again"),
    ]:
        answer = web.http.post("/", data=sent)
        assert answer.status_code == 422, sent
        assert said in answer.text
        assert "<b>" not in answer.text
    assert web.http.get("/orders/nowhere").status_code == 404
    service.account.service_balance = service.account.service_balance * 0
    assert state_of(web, buy(web)) == "FAILED"


def test_the_plain_command_and_its_wait_when_the_callback_is_lost(tmp_path: Path) -> None:
    with serving(APP, tmp_path) as web:
        paid = buy(web, phone_for(Outcome.callback_lost))
        cancelled = buy(web, phone_for(Outcome.cancelled))
        ends(web, cancelled, "FAILED")
        assert "Request cancelled by user" in web.http.get(f"/orders/{cancelled}").text
        ends(web, paid, "PAID")
        log = web.log.read_text()
        found = re.search(r"Phone (http://\S+)", log)
        assert found is not None, log
        ledger: list[dict[str, str]] = httpx.get(f"{found[1]}/sandbox/ledger", trust_env=False).json()["data"]
        assert [movement["reference"] for movement in ledger if movement["kind"] == "stk"] == [paid]
