"""The page, end to end in headless Chromium: prompt, PIN, transactions, callbacks."""

import json
from decimal import Decimal

import httpx
import pytest

from momopay.sandbox import Outcome, Sandbox, phone_for
from sandbox.browser import Page
from sandbox.kit import KEY, Receiver, Service, data, transaction_id

pytestmark = pytest.mark.browser

# Words of letters, digits and _ that are on more than one line.
BROKEN_WORDS = """(() => {
  const broken = [], walker = document.createTreeWalker(document.getElementById("operations"), NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) for (const found of walker.currentNode.data.matchAll(/\\w+/g)) {
    const range = document.createRange();
    range.setStart(walker.currentNode, found.index);
    range.setEnd(walker.currentNode, found.index + found[0].length);
    if (new Set([...range.getClientRects()].map((box) => Math.round(box.top))).size > 1) broken.push(found[0]);
  }
  return broken;
})()"""


def test_a_payment_from_prompt_to_callback(page: Page, sandbox: Sandbox, service: Service, receiver: Receiver) -> None:
    assert not page.shows_prompt()
    sent = service.stk(
        amount=1250.5, phone=phone_for(Outcome.by_hand), transactionDesc="Basket", callbackUrl=receiver.url
    )
    page.until(page.shows_prompt)
    prompt = page.text("#prompt")
    for shown in ("1,250.50", "600100", "INV-42", "Basket", "0712 349 945"):
        assert shown in prompt
    assert "PENDING" in page.text("#transactions")
    page.click("#pin")
    page.until(lambda: "PROCESSING" in page.text("#transactions"))
    page.until(lambda: not page.shows_prompt())
    page.click('[data-seconds="60"]')
    page.until(lambda: "SUCCESS" in page.text("#transactions"))
    assert service.read(sent)["status"] == "SUCCESS"
    page.until(lambda: "transaction.success" in page.text("#callbacks"))
    page.click("#tab-callbacks")
    page.unfold("#callbacks > li:first-child")
    payload = page.text("#callbacks pre")
    assert transaction_id(sent) in payload
    assert "200\nok" in page.text("#callbacks .payload > div:last-child pre")
    assert "confirmed" in page.text("#messages")
    assert sandbox.callbacks[0].acknowledged


@pytest.mark.parametrize(("button", "status"), [("#cancel", "CANCELLED"), ("#ignore", "EXPIRED")])
def test_the_other_buttons_by_keyboard(
    page: Page, sandbox: Sandbox, service: Service, button: str, status: str
) -> None:
    sent = service.stk(phone=phone_for(Outcome.by_hand))
    page.until(page.shows_prompt)
    page.script(f"document.querySelector({button!r}).focus()")
    page.driver.switch_to.active_element.send_keys("\ue007")
    page.until(lambda: not page.shows_prompt())
    sandbox.advance(60)
    page.until(lambda: status in page.text("#transactions"))
    assert service.read(sent)["status"] == status


def test_what_callers_send_is_shown_as_text(page: Page, service: Service) -> None:
    service.payout(reference="<img src=x onerror=alert(1)>", description="<b>bold</b>")
    page.until(lambda: "<b>bold</b>" in page.text("#transactions"))
    assert page.script("return document.querySelectorAll('#transactions img, #transactions b').length") == 0


def test_the_newest_prompt_of_all_accounts_is_shown_and_arrows_lead_to_the_others(
    page: Page, sandbox: Sandbox, service: Service
) -> None:
    service.stk(amount=11, phone=phone_for(Outcome.by_hand))
    with httpx.Client(base_url=sandbox.base_url, auth=("pk_test_second", ""), trust_env=False) as api:
        newer = Service(api).stk(amount=12, phone=phone_for(Outcome.by_hand))
        page.until(lambda: page.text("#prompt-count") == "1 of 2")
        assert (page.text("#prompt-amount"), page.text("#prompt-account")) == ("12.00", "pk_test_…cond")
        page.click("#older")
        assert (page.text("#prompt-amount"), page.text("#prompt-count")) == ("11.00", "2 of 2")
        page.click("#newer")
        page.click("#pin")
        page.until(lambda: page.text("#prompt-amount") == "11.00")
        assert Service(api).read(newer)["status"] == "PROCESSING"
    page.choose("#account", sandbox.account("pk_test_second").tenant_id)
    page.until(lambda: not page.shows_prompt())
    assert page.text("#n-transactions") == "1"
    assert KEY not in page.text("#accounts")


def test_twenty_accounts_leave_the_rest_of_the_page_in_sight(page: Page, sandbox: Sandbox) -> None:
    for number in range(20):
        with httpx.Client(base_url=sandbox.base_url, auth=(f"pk_test_shop{number:02}", ""), trust_env=False) as api:
            data(Service(api).payout())
    page.until(lambda: "pk_test_…op19" in page.text("#accounts tr"))
    assert page.count("#accounts tr") >= 20
    assert page.value("document.getElementById('transactions').getBoundingClientRect().top < innerHeight") is True


def test_a_prompt_may_be_sent_from_the_page(page: Page, sandbox: Sandbox) -> None:
    page.click("#try")
    page.until(page.shows_prompt)
    assert page.text("#prompt-amount") == "50.00"
    assert len(sandbox.requests) == 1


def test_no_width_scrolls_sideways_and_nothing_is_complained_of(page: Page, sandbox: Sandbox, service: Service) -> None:
    service.payout(reference="R" * 400, callbackUrl=f"https://{'long.' * 40}example/momo")
    sandbox.advance(40)
    service.stk(accountReference="W" * 12, phone=phone_for(Outcome.by_hand))
    sandbox.end_next("insufficient_funds", times=500)
    sandbox.fail_next("PATCH", "/payment-wallet/channels/{id}", "refused_after_commit", times=500)
    page.until(page.shows_prompt)
    for width in (320, 390, 768, 1280):
        page.show(width=width)
        for tab in ("transactions", "callbacks", "requests"):
            page.script(f"chooseTab({tab!r})")
            page.script("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
            assert page.value("document.documentElement.scrollWidth <= innerWidth") is True, (width, tab)
        for opened in ("openDetail(state.transactions[0].id)", "openSettings(state.accounts[0].tenant_id)"):
            page.script(opened)
            page.until(lambda: page.count("dialog[open]") == 1)
            dialog = "document.querySelector('dialog[open]')"
            assert page.value(f"{dialog}.scrollWidth <= {dialog}.clientWidth") is True, (width, opened)
            page.script(f"{dialog}.close()")
    assert page.driver.get_log("browser") == []


def test_the_description_of_the_api_is_the_accounts_and_breaks_no_word(page: Page, sandbox: Sandbox) -> None:
    account = sandbox.account(KEY)
    account.switches.created_status = 201
    page.driver.get(f"{sandbox.url}/docs?account={account.tenant_id}")
    page.until(lambda: page.count("#operations > details") == 11)
    page.script("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    shown = page.text("#operations")
    for text in ("/v1/payments/stk", "accountReference", "201", "400 CHANNEL_NOT_FOUND"):
        assert text in shown
    for width in (390, 1280):
        page.show(width=width)
        assert page.value(BROKEN_WORDS) == []
        assert page.value("document.documentElement.scrollWidth <= innerWidth") is True
    assert page.driver.get_log("browser") == []


def test_a_page_of_another_origin_changes_nothing(page: Page, sandbox: Sandbox, service: Service) -> None:
    sent = transaction_id(service.stk(phone=phone_for(Outcome.by_hand)))
    bodies = {
        "reset": {},
        "enter_pin": {"id": sent},
        "end_next": {"outcome": "cancelled"},
        "fail_next": {"method": "POST", "path": "/payments/stk", "fault": "html_502"},
        "account": {"key": KEY, "change": {"fee": 7}},
        "advance": {"seconds": 60},
    }
    before = sandbox.now
    port = sandbox.url.rpartition(":")[2]
    # Another port of this machine, as any other program's page has; and a foreign name that leads to the sandbox.
    with Sandbox() as other:
        for home in (f"{other.url}/docs", f"http://evil.example:{port}/"):
            page.driver.get(home)
            for target in (sandbox.url, f"http://evil.example:{port}"):
                for name, body in bodies.items():
                    page.driver.execute_async_script(
                        "const [url, body, done] = arguments;"
                        "fetch(url, {method: 'POST', mode: 'no-cors', body}).then(() => done(), () => done())",
                        f"{target}/sandbox/{name}",
                        json.dumps(body),
                    )
            page.driver.get_log("browser")
        assert "FORBIDDEN" in page.text("body")
    assert service.api.get(f"/transactions/{sent}").json()["data"]["status"] == "PENDING"
    assert sandbox.now == before
    assert sandbox.account(KEY).fee == Decimal(1)
    assert service.stk().status_code == 200
