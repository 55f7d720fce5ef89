from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

from examples.runs import EXAMPLES, LONGEST, Service, Web, environment, free_port, run, serving
from momopay.sandbox import Fault, Outcome, phone_for
from patience import until


def buy(web: Web, phone: str = "0712345678") -> str:
    page = web.http.get("/").text
    sent = dict(re.findall(r'name="(csrfmiddlewaretoken|order)" value="([^"]+)"', page))
    answer = web.http.post("/", data={**sent, "phone": phone})
    assert (answer.status_code, answer.headers["location"]) == (302, f"/orders/{sent['order']}"), answer.text
    return str(sent["order"])


def state_of(web: Web, order_id: str) -> str:
    page = web.http.get(f"/orders/{order_id}").text
    found = re.search(r'id="state">(\w+)<', page)
    assert found is not None, page
    return found[1]


def test_an_order_is_paid_and_refunded_once(service: Service, tmp_path: Path) -> None:
    port = free_port()
    env = service.env(
        SHOP_DATABASE=str(tmp_path / "shop.db"),
        SHOP_URL=f"http://127.0.0.1:{port}",
        DJANGO_SECRET_KEY="only-for-this-test-0123",
    )
    with serving("django_shop.py", tmp_path, port=port, env=env) as web:
        unpaid = buy(web, phone_for(Outcome.never_answers))
        assert run("django_shop.py", "refund", unpaid, env=env).returncode == 1
        order_id = buy(web)
        until(lambda: state_of(web, order_id) == "PAID", "the callback")
        service.sandbox.fail_next("POST", "/b2c/payouts", Fault.reset_after_commit)
        lost = run("django_shop.py", "refund", order_id, env=env)
        assert (lost.returncode, "Run the same command again" in lost.stderr) == (1, True), lost.stderr
        until(lambda: state_of(web, order_id) == "REFUNDED", "the callback of the refund")
        assert run("django_shop.py", "refund", order_id, env=env).returncode == 1
        assert web.http.post("/momo", json={}).status_code == 403
        unheard = buy(web, phone_for(Outcome.callback_lost))
        service.sandbox.advance(60)
        assert state_of(web, unheard) == "WAITING"
        swept = run("django_shop.py", "sweep", env=env)
        assert swept.stdout == "1 handled, 1 open, 0 unresolved\n", swept.stderr
        assert state_of(web, unheard) == "PAID"
    assert service.moved("payout") == {f"REFUND-{order_id}": 1}
    assert service.moved("stk") == {order_id: 1, unheard: 1}


def test_the_plain_command_and_the_refund_that_it_prints(tmp_path: Path) -> None:
    with serving("django_shop.py", tmp_path) as web:
        order_id = buy(web)
        until(lambda: state_of(web, order_id) == "PAID", "the callback")
        log = web.log.read_text()
        found = re.search(r"To refund: (.+) python (\S+) refund ORDER", log)
        assert found is not None, log
        settings = dict(setting.split("=", 1) for setting in shlex.split(found[1]))
        assert os.path.samefile(found[2], EXAMPLES / "django_shop.py")  # noqa: PTH121  a printed path
        refund = [sys.executable, found[2], "refund", order_id]
        subprocess.run(refund, env=environment(**settings), check=True, timeout=LONGEST, capture_output=True)
        until(lambda: state_of(web, order_id) == "REFUNDED", "the callback of the refund")
