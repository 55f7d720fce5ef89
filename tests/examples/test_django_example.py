import re
from pathlib import Path

import pytest
from chromium import Tab

from examples.runs import Merchant, Web, free_port, run, serving
from momopay.sandbox import Outcome, phone_for
from patience import until
from sandbox.browser import Page


def pay(web: Web, phone: str = "0712345678", page: str = "/") -> str:
    sent = dict(re.findall(r'name="(csrfmiddlewaretoken|order)" value="([^"]+)"', web.http.get(page).text))
    answer = web.http.post("/pay", data={**sent, "phone": phone})
    assert (answer.status_code, answer.headers["location"]) == (302, f"/orders/{sent['order']}"), answer.text
    return str(sent["order"])


def state_of(web: Web, order: str) -> str:
    page = web.http.get(f"/orders/{order}").text
    found = re.search(r'id="state">([\w ]+)<', page)
    assert found is not None, page + web.log.read_text()
    return found[1]


def reaches(web: Web, order: str, state: str) -> None:
    until(lambda: state_of(web, order) == state, f"{order} is {state}")


def test_orders_are_paid_once_and_paid_back_once(merchant: Merchant, tmp_path: Path) -> None:
    port = free_port()
    env = merchant.env(SHOP_URL=f"http://127.0.0.1:{port}", DJANGO_SECRET_KEY="only-for-this-test-0123")

    def refund(order: str, **given: object) -> None:
        call = f"client.payouts.refund(**{ {'of': order, **given} })"
        twice = f"from momopay.integrations.django import client; [{call} for _ in '12']"
        run("django_shop.py", "shell", "--no-imports", "-c", twice, env=env, cwd=tmp_path)
        merchant.sandbox.advance(60)

    with serving("django_shop.py", tmp_path, port=port, env=env) as web:
        cancelled = pay(web, phone_for(Outcome.cancelled))
        reaches(web, cancelled, "NOT PAID")
        assert pay(web, "0723000001", f"/orders/{cancelled}") == cancelled
        unheard = pay(web, phone_for(Outcome.callback_lost))
        reaches(web, cancelled, "PAID")
        merchant.sandbox.advance(60)
        assert state_of(web, unheard) == "WAITING"
        run("django_shop.py", "momopay_sweep", env=env, cwd=tmp_path)
        assert state_of(web, unheard) == "PAID"
        assert web.http.post("/momopay/callback", json={}).status_code == 403
        refund(cancelled, amount=40)
        run("django_shop.py", "momopay_sweep", env=env, cwd=tmp_path)
        assert state_of(web, cancelled) == "PAID"
        refund(cancelled, reference=f"{cancelled}-R2")
        reaches(web, cancelled, "REFUNDED")
        merchant.sandbox.end_next("reversed", kind="payout")
        refund(unheard)
        run("django_shop.py", "momopay_sweep", env=env, cwd=tmp_path)
        assert state_of(web, unheard) == "REFUND CAME BACK"
    assert merchant.moved("stk") == {cancelled: 1, unheard: 1}
    assert merchant.moved("payout") == {f"{cancelled}-R1": 1, f"{cancelled}-R2": 1, f"{unheard}-R1": 1}


def test_the_plain_command(tmp_path: Path) -> None:
    with serving("django_shop.py", tmp_path) as web:
        order = pay(web, phone_for(Outcome.callback_lost))
        reaches(web, order, "PAID")  # by its own sweep
        assert web.http.get("/admin/login/").status_code == 200


@pytest.mark.browser
def test_the_admin_fits_on_a_phone_and_on_a_screen(tab: Tab, tmp_path: Path) -> None:
    with serving("django_shop.py", tmp_path) as web:
        order = pay(web)
        reaches(web, order, "PAID")
        password = re.search(r"Admin .*, admin, (\w+)", web.log.read_text())
        assert password is not None
        page, address = Page(tab), str(web.http.base_url.join("/admin/momopay/payment/"))
        tab.open(f"{web.http.base_url}/admin/login/?next=/admin/momopay/payment/")
        page.fill("#id_username", "admin")
        page.fill("#id_password", password[1])
        page.click("[type=submit]", then=lambda: page.count("#result_list") > 0)
        root, heads = "document.documentElement", "[...document.querySelectorAll('#result_list th')]"
        for width, hidden in ((390, ["created", "kind", "phone", "receipt", "state"]), (1280, [])):
            page.show(width=width, scheme="dark")
            for path in ("", f"COLLECTION_3A{order}/change/", "activity/"):
                tab.open(address + path)
                assert page.value(f"{root}.scrollWidth - {root}.clientWidth") == 0, path
                assert page.count(".momopay-chart svg") == (2 if path == "activity/" else 0)
                absent = page.value(f"{heads}.filter(each => !each.offsetWidth).map(each => each.textContent)")
                assert sorted(each.strip().lower() for each in absent) == ([] if path else hidden)
