from __future__ import annotations

import re
import sqlite3
from pathlib import Path

from examples.runs import Service, Web, run, serving
from momopay.sandbox import Fault, Outcome, phone_for
from patience import until


def buy(web: Web, phone: str = "0712345678") -> str:
    page = web.http.get("/").text
    found = re.search(r'name="order" value="([0-9a-f]{12})"', page)
    assert found is not None, page
    answer = web.http.post("/", data={"order": found[1], "item": "cup", "phone": phone})
    assert (answer.status_code, answer.headers["location"]) == (303, f"/orders/{found[1]}"), answer.text
    return found[1]


def state_of(web: Web, order_id: str) -> str:
    page = web.http.get(f"/orders/{order_id}").text
    found = re.search(r'id="state" class="(\w+)"', page)
    assert found is not None, page
    return found[1]


def parcels(folder: Path) -> list[str]:
    db = sqlite3.connect(folder / "shop.db")
    rows = db.execute("SELECT order_id FROM parcels").fetchall()
    db.close()
    return [row[0] for row in rows]


def test_orders_are_paid_by_callback_or_by_the_sweep_and_shipped_once(service: Service, tmp_path: Path) -> None:
    env = service.env(SHOP_DATABASE=str(tmp_path / "shop.db"))
    with serving("flask_shop.py", tmp_path, env=env) as web:
        service.sandbox.fail_next("POST", "/payments/stk", Fault.callback_duplicate)
        paid = buy(web)
        unheard = buy(web, phone_for(Outcome.callback_lost))
        service.sandbox.fail_next("POST", "/payments/stk", Fault.reset_after_commit)
        unknown = buy(web, phone_for(Outcome.callback_lost))
        waiting = buy(web, phone_for(Outcome.never_answers))
        until(lambda: state_of(web, paid) == "PAID", "the callback")
        service.sandbox.advance(60)
        assert (state_of(web, unheard), state_of(web, unknown)) == ("WAITING", "WAITING")
        swept = run("flask_shop.py", "--sweep", env=env)
        assert swept.stdout == "1 orders are still open\n", swept.stderr
        assert [state_of(web, order) for order in (paid, unheard, unknown, waiting)] == ["PAID"] * 3 + ["WAITING"]
        assert web.http.post("/momo", json={}).status_code == 403
        refused = web.http.post("/", data={"order": "x", "item": "cup", "phone": "12345"})
        assert "Kenyan phone number" in refused.text
    assert sorted(parcels(tmp_path)) == sorted([paid, unheard, unknown])
    assert service.moved("stk") == dict.fromkeys([paid, unheard, unknown], 1)


def test_the_plain_command(tmp_path: Path) -> None:
    with serving("flask_shop.py", tmp_path) as web:
        cancelled = buy(web, phone_for(Outcome.cancelled))
        until(lambda: state_of(web, cancelled) == "FAILED", "the callback")
