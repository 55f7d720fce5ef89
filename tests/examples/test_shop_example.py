import re
import secrets
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from examples.runs import EXAMPLES, Merchant, Web, free_port, run, serving
from momopay import CallbackSigner
from momopay.sandbox import CallbackRecord, Fault, Outcome, phone_for
from patience import until

SECRET = "only-for-this-test-0123"


@contextmanager
def shop(merchant: Merchant, folder: Path, script: str | Path = "shop.py", **more: str) -> Generator[Web]:
    """Run the shop, or a changed one, for this merchant."""
    port = free_port()
    env = merchant.env(MOMOPAY_CALLBACK_SECRET=SECRET, SHOP_URL=f"http://127.0.0.1:{port}", **more)
    with serving(script, folder, port=port, env=env) as web:
        yield web


def pay(web: Web, phone: str = "0712345678", order: str = "") -> str:
    order = order or secrets.token_hex(6)
    answer = web.http.post("/pay", json={"order": order, "phone": phone})
    assert answer.status_code == 200, answer.text
    return order


def state_of(web: Web, order: str) -> str:
    return str(web.http.get(f"/orders/{order}").json()["state"])


def times_paid(web: Web, order: str) -> int:
    return web.log.read_text().count(f"order {order}: PAID")


def ends(merchant: Merchant, order: str) -> list[CallbackRecord]:
    """Return the callbacks about the ends of an order's payments."""

    def is_end(shown: Any) -> bool:
        return bool(shown["external_reference"] == order and shown["status"] != "PROCESSING")

    return [record for record in merchant.sandbox.callbacks if is_end(record.payload["transaction"])]


def callbacks(merchant: Merchant, order: str) -> list[int | None]:
    return [record.status for record in ends(merchant, order)]


@pytest.fixture
def web(merchant: Merchant, tmp_path: Path) -> Iterator[Web]:
    with shop(merchant, tmp_path) as web:
        yield web


def test_two_clicks_and_a_callback_that_comes_twice_are_one_payment(web: Web, merchant: Merchant) -> None:
    merchant.sandbox.fail_next("POST", "/payments/stk", Fault.callback_duplicate)
    order = re.findall(r'order = "([0-9a-f]{12})"', web.http.get("/").text)[0]
    pay(web, order=order)
    pay(web, order=order)
    until(lambda: callbacks(merchant, order) == [200, 200], "the callback came twice")
    assert (state_of(web, order), times_paid(web, order)) == ("PAID", 1)
    assert merchant.moved("fee")[order] == merchant.moved("stk")[order] == 1


def test_without_either_guard_it_would_be_paid_twice(merchant: Merchant, tmp_path: Path) -> None:
    """The journal hands each end to one, and the condition on the state is the second line."""
    careless = (EXAMPLES / "shop.py").read_text()
    for guard, instead in [
        ("AND state IN (", "OR id IN ("),
        ("if not payment.in_journal:", "if False:"),
        ("client = Client(journal=journal)", "client = Client(journal=journal)\nforgetful = Client()"),
        ("callback_endpoint(on_end, client=client", "callback_endpoint(on_end, client=forgetful"),
    ]:
        assert guard in careless
        careless = careless.replace(guard, instead)
    (tmp_path / "careless.py").write_text(careless)
    merchant.sandbox.fail_next("POST", "/payments/stk", Fault.callback_duplicate)
    with shop(merchant, tmp_path, tmp_path / "careless.py") as web:
        order = pay(web)
        until(lambda: times_paid(web, order) > 1, "it is paid twice")


def test_the_sweep_makes_up_for_a_lost_callback_and_a_lost_answer(merchant: Merchant, tmp_path: Path) -> None:
    with shop(merchant, tmp_path, SHOP_SWEEP_SECONDS="0.2") as web:
        unheard = pay(web, phone_for(Outcome.callback_lost))
        merchant.sandbox.fail_next("POST", "/payments/stk", Fault.reset_after_commit)
        neither = pay(web, phone_for(Outcome.callback_lost))
        merchant.sandbox.advance(600)
        # The shop prints after it has stored the state.
        until(lambda: times_paid(web, unheard) > 0 and times_paid(web, neither) > 0, "both are paid")
        time.sleep(0.5)  # two more sweeps
        for order in (unheard, neither):
            assert times_paid(web, order) == merchant.moved("stk")[order] == 1


def test_forged_callbacks_pay_nothing(web: Web, merchant: Merchant) -> None:
    paid, unpaid = pay(web), pay(web, phone_for(Outcome.by_hand))
    until(lambda: callbacks(merchant, paid) == [200], "the callback is acknowledged")
    (genuine,) = ends(merchant, paid)
    signed = httpx.URL(genuine.url).raw_path.decode()
    payload: Any = genuine.payload
    forged = {**payload, "transaction": {**payload["transaction"], "external_reference": unpaid}}
    before = len(merchant.sandbox.requests)
    assert web.http.post("/momo", json=genuine.payload).status_code == 403
    assert web.http.post(signed, json=forged).status_code == 403
    assert web.http.post(signed, content=b"garbage").status_code == 400
    assert len(merchant.sandbox.requests) == before, "none of these sends a request to the service"
    leaked = CallbackSigner(SECRET).url("http://shop/momo", reference=unpaid).removeprefix("http://shop")
    assert web.http.post(leaked, json=forged).status_code == 403, "the service's own record says otherwise"
    assert (state_of(web, paid), state_of(web, unpaid)) == ("PAID", "WAITING")


def test_what_the_customer_hears_when_no_prompt_is_sent(web: Web, merchant: Merchant) -> None:
    order = pay(web, phone_for(Outcome.by_hand))
    for sent, status, said in [
        ({"order": order, "phone": "0723000001"}, 409, "on the other phone"),
        ({"order": "0123456789ab", "phone": "12345"}, 422, "must be a Kenyan phone"),
        ({"order": "'; --", "phone": "0712345678"}, 422, "pattern"),
    ]:
        answer = web.http.post("/pay", json=sent)
        assert (answer.status_code, said in answer.text) == (status, True), answer.text
    assert (state_of(web, order), state_of(web, "0123456789ab")) == ("WAITING", "NOT PAID")
    assert web.http.get("/orders/nowhere").status_code == 404
    assert merchant.moved("fee").total() == 1


def test_the_plain_command_plays_every_step(tmp_path: Path) -> None:
    ended = run("shop.py", cwd=tmp_path)
    first, second, third = dict.fromkeys(re.findall(r"order (\w{12}): PAID", ended.stdout))
    moved = ended.stdout.split("ledger:\n")[1].split("\n")
    assert [line.strip() for line in moved if line] == [
        *(f"stk {order}" for order in (first, second, third)),
        *(f"payout {first}-R1", f"payout {first}-R2"),
        *(f"payout {third}-R1", f"reversal {third}-R1", f"payout {third}-R2"),
    ]
    assert list(tmp_path.iterdir()) == []
