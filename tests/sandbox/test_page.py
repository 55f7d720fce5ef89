"""The page, end to end in headless Chromium: prompt, PIN, transactions, callbacks."""

import os
import shutil
import sys
from collections.abc import Iterator
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest

import momopay.sandbox
from momopay.sandbox import Outcome, Sandbox, Switches, phone_for
from patience import run_program
from sandbox.browser import Page
from sandbox.kit import KEY, Receiver, Routes, client, data, error_of, transaction_id

pytestmark = pytest.mark.browser

UNFOLD = "document.querySelectorAll('details').forEach((each) => { each.open = true; })"
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


def test_a_payment_from_prompt_to_callback(page: Page, sandbox: Sandbox, service: Routes, receiver: Receiver) -> None:
    assert not page.shows_prompt()
    order: dict[str, Any] = {"amount": 1250.5, "transactionDesc": "Basket", "callbackUrl": receiver.url}
    sent = service.stk(phone=phone_for(Outcome.by_hand), **order)
    page.until(page.shows_prompt)
    assert page.shows("#prompt", "1,250.50", "600100", "INV-42", "Basket", "0712 349 945")
    assert page.shows("#transactions", "PENDING")
    page.click("#pin", then=lambda: "PROCESSING" in page.text("#transactions"))
    page.until(lambda: not page.shows_prompt())
    page.click('[data-seconds="60"]', then=lambda: "SUCCESS" in page.text("#transactions"))
    assert service.read(sent)["status"] == "SUCCESS"
    page.until(lambda: "transaction.success" in page.text("#callbacks"))
    page.click("#tab-callbacks")
    page.unfold("#callbacks > li:first-child")
    assert transaction_id(sent) in page.text("#callbacks pre")
    assert "200\nok" in page.text("#callbacks .payload > div:last-child pre")
    assert "confirmed" in page.text("#messages")
    assert sandbox.callbacks[0].acknowledged


@pytest.mark.parametrize(("button", "status"), [("#cancel", "CANCELLED"), ("#ignore", "EXPIRED")])
def test_other_buttons_by_keyboard(page: Page, sandbox: Sandbox, service: Routes, button: str, status: str) -> None:
    sent = service.stk(phone=phone_for(Outcome.by_hand))
    page.until(page.shows_prompt)
    page.run(f"document.querySelector({button!r}).focus()")
    page.press("Enter")
    page.until(lambda: not page.shows_prompt())
    sandbox.advance(60)
    page.until(lambda: status in page.text("#transactions"))
    assert service.read(sent)["status"] == status


def test_the_newest_prompt_is_first_and_arrows_lead_to_others(page: Page, sandbox: Sandbox, service: Routes) -> None:
    service.stk(amount=11, phone=phone_for(Outcome.by_hand))
    with client(sandbox.base_url, "pk_test_second") as api:
        newer = Routes(api).stk(amount=12, phone=phone_for(Outcome.by_hand))
        page.until(lambda: page.text("#prompt-count") == "1 of 2")
        assert (page.text("#prompt-amount"), page.text("#prompt-account")) == ("12.00", "pk_test_…cond")
        page.click("#older")
        assert (page.text("#prompt-amount"), page.text("#prompt-count")) == ("11.00", "2 of 2")
        page.click("#newer")
        page.click("#pin", then=lambda: page.text("#prompt-amount") == "11.00")
        assert Routes(api).read(newer)["status"] == "PROCESSING"
    page.choose("#account", sandbox.account("pk_test_second").tenant_id)
    page.until(lambda: not page.shows_prompt())
    assert (page.text("#n-transactions"), KEY in page.text("#accounts")) == ("1", False)


def test_twenty_accounts_leave_the_rest_of_the_page_in_sight(page: Page, sandbox: Sandbox) -> None:
    for number in range(20):
        with client(sandbox.base_url, f"pk_test_shop{number:02}") as api:
            data(Routes(api).payout())
    page.until(lambda: "pk_test_…op19" in page.text("#accounts tr"))
    assert page.count("#accounts tr") >= 20
    assert page.value("document.getElementById('transactions').getBoundingClientRect().top < innerHeight") is True


def test_a_prompt_may_be_sent_from_the_page(page: Page, sandbox: Sandbox) -> None:
    page.click("#try", then=page.shows_prompt)
    page.until(lambda: "KES 50.00 on" in page.text("#announce"))
    assert page.text("#prompt-amount") == "50.00"
    assert len(sandbox.requests) == 1


def test_no_width_scrolls_sideways_and_nothing_is_complained_of(page: Page, sandbox: Sandbox, service: Routes) -> None:
    service.payout(reference="<img src=x onerror=alert(1)>", description="<b>bold</b>")
    service.payout(reference="R" * 400, callbackUrl=f"https://{'long.' * 40}example/momo")
    sandbox.advance(40)
    service.stk(accountReference="W" * 12, phone=phone_for(Outcome.by_hand))
    sandbox.end_next("insufficient_funds", times=500)
    sandbox.fail_next("PATCH", "/payment-wallet/channels/{id}", "refused_after_commit", times=500)
    page.until(page.shows_prompt)
    assert "<b>bold</b>" in page.text("#transactions")  # what callers send is shown as text
    assert page.count("#transactions img, #transactions b") == 0
    for width in (320, 390, 768, 1280):
        page.show(width=width)
        for tab in ("transactions", "callbacks", "requests"):
            page.run(f"chooseTab({tab!r})")
            page.run(UNFOLD)
            assert page.value("document.documentElement.scrollWidth <= innerWidth") is True, (width, tab)
        for opened in ("openDetail(state.transactions[0].id)", "openSettings(state.accounts[0].tenant_id)"):
            page.run(opened)
            page.until(lambda: page.count("dialog[open]") == 1)
            dialog = "document.querySelector('dialog[open]')"
            assert page.value(f"{dialog}.scrollWidth <= {dialog}.clientWidth") is True, (width, opened)
            page.run(f"{dialog}.close()")
    assert page.tab.faults == []


def test_the_description_of_the_api_is_the_accounts_and_breaks_no_word(page: Page, sandbox: Sandbox) -> None:
    account = sandbox.account(KEY)
    account.switches.created_status = 201
    page.tab.open(f"{sandbox.url}/docs?account={account.tenant_id}")
    page.until(lambda: page.count("#operations > details") == 11)
    page.run(UNFOLD)
    assert page.shows("#operations", "/v1/payments/stk", "accountReference", "201", "400 CHANNEL_NOT_FOUND")
    for width in (390, 1280):
        page.show(width=width)
        assert page.value(BROKEN_WORDS) == []
        assert page.value("document.documentElement.scrollWidth <= innerWidth") is True
    assert page.tab.faults == []


NEED_A_NAME = {
    *("button", "checkbox", "combobox", "dialog", "heading", "link", "region"),
    *("searchbox", "spinbutton", "tab", "tablist", "tabpanel", "textbox", "timer"),
}
DIALOGS = ("openDetail(state.transactions[0].id)", "openSettings(state.accounts[0].tenant_id)", "$('reset').click()")
AUDIT = f"{{ {(Path(__file__).parent / 'audit.js').read_text()} }}"
AT_REST = "document.getAnimations().every((each) => each.playState !== 'running')"


@pytest.fixture
def busy(page: Page, sandbox: Sandbox, service: Routes, receiver: Receiver) -> None:
    """Put something of everything on the page."""
    receiver.answer = lambda _body: 503
    service.stk(callbackUrl=receiver.url)
    service.payout(phone=phone_for(Outcome.reversed), callbackUrl="https://shop.example/momo")
    service.stk(phone=phone_for(Outcome.cancelled))
    sandbox.advance(60)
    service.payout()
    sandbox.advance(6)
    service.top_up()
    service.api.get("/transactions/x")
    sandbox.account(KEY).kyc_approved = False
    sandbox.end_next("cancelled", phone="0722000111")
    sandbox.fail_next("GET", "/transactions", "html_502", 3)
    page.until(lambda: page.count("#transactions > li") == 5 and page.text("#faults") != "")


def views(page: Page) -> Iterator[str]:
    """Show each tab and each dialog of the page, with everything unfolded."""
    for step in ("toast('Saved')", "chooseTab('callbacks')", "chooseTab('requests')", *DIALOGS):
        page.run(step)
        page.until(lambda step=step: (page.count("dialog[open]") == 1) == (step in DIALOGS))  # type: ignore[misc]
        page.run(UNFOLD)
        yield step
        page.run("document.querySelector('dialog[open]')?.close()")


def test_everything_has_a_role_and_a_name(page: Page, busy: None) -> None:
    for step in views(page):
        assert [role for role, name in page.accessible() if role in NEED_A_NAME and not name.strip()] == [], step


def test_landmarks_headings_and_live_regions(page: Page, busy: None) -> None:
    nodes = page.accessible()
    roles = [role for role, _ in nodes]
    assert (roles.count("banner"), roles.count("main")) == (1, 1)
    regions = {name for role, name in nodes if role == "region"}
    assert {"Phones", "The customer's phone", "Balances", "How the next payment ends", "Records"} <= regions
    assert [name for role, name in nodes if role == "tab"] == ["Transactions 5", "Callbacks 4", "Requests 6"]
    headings = "[...document.querySelectorAll('body > :not(dialog) :is(h1, h2, h3)')]"
    levels = page.value(f"{headings}.map((e) => +e.tagName[1])")
    assert levels[0] == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))
    # The clock ticks four times a second: it must not be read aloud, and what happens must be.
    assert ("timer", "Virtual time") in nodes
    assert "output" not in str(page.value("[...document.querySelectorAll('*')].map((e) => e.localName)"))
    assert page.value("['link', 'toast', 'announce'].map((id) => $(id).role)") == ["status"] * 3


def test_the_tab_key_reaches_everything_shows_where_it_is_and_is_never_trapped(page: Page, busy: None) -> None:
    page.run(f"{AUDIT}; document.activeElement.blur()")
    for _ in range(page.value("focusable().length") + 5):
        page.press("Tab")
        page.run("noteFocus()")
    assert page.value("focusable().filter((each) => !reached.has(each)).map(named)") == []
    assert page.value("unseen") == []


@pytest.mark.parametrize("opener", ["#transactions .open", "#accounts button", "#reset"])
def test_a_dialog_opens_by_enter_closes_by_escape_and_gives_the_focus_back(page: Page, busy: None, opener: str) -> None:
    page.run(f"document.querySelector({opener!r}).focus()")
    page.press("Enter")
    page.until(lambda: page.count("dialog[open]") == 1)
    assert page.value("document.querySelector('dialog[open]').contains(document.activeElement)") is True
    page.press("Escape")
    page.until(lambda: page.count("dialog[open]") == 0)
    assert page.value(f"document.activeElement === document.querySelector({opener!r})") is True


def test_the_tabs_work_by_arrow_keys(page: Page, busy: None) -> None:
    page.run("$('tab-transactions').focus()")
    for key, chosen in (("ArrowRight", "callbacks"), ("ArrowLeft", "transactions"), ("ArrowLeft", "requests")):
        page.press(key)
        assert page.value("document.activeElement.id") == f"tab-{chosen}"
        assert (page.value(f"$('panel-{chosen}').hidden"), page.count("[role=tabpanel]:not([hidden])")) == (False, 1)


@pytest.mark.usefixtures("busy")
def test_enter_sends_forms_and_focus_survives_updates(page: Page, sandbox: Sandbox, service: Routes) -> None:
    page.fill("#outcome-form [name=times]", "7")
    page.press("Enter")
    page.until(lambda: "Next 7 times, prompt" in page.text("#outcomes"))
    page.run("document.querySelector('#accounts button').focus()")
    service.payout()
    sandbox.advance(1)
    page.until(lambda: page.text("#n-requests") == "7")
    assert page.value("document.activeElement.closest('#accounts') !== null") is True
    page.run("document.querySelector('#outcomes button').focus()")
    page.press("Enter")
    page.until(lambda: page.count("#outcomes li") == 1)
    assert page.value("document.activeElement.name") == "kind"


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_all_text_has_a_contrast_of_4_5(page: Page, busy: None, service: Routes, scheme: str, width: int) -> None:
    page.show(width=width, scheme=scheme)
    page.run(AUDIT)
    page.until(lambda: page.count("#messages li") > 0)
    for _step in views(page):
        check_contrast(page)
    service.stk(phone=phone_for(Outcome.by_hand))
    page.until(page.shows_prompt)
    check_contrast(page)


def check_contrast(page: Page) -> None:
    page.until(lambda: page.value(AT_REST) is True)
    number, faint = page.value("faintText()")
    assert number > 30
    assert faint == []


SOURCE = Path(momopay.sandbox.__file__).parents[2]


def test_the_next_payment_of_a_phone_ends_as_it_was_picked(page: Page, sandbox: Sandbox, service: Routes) -> None:
    page.fill("#outcome-form [name=phone]", "12")
    page.click("#outcome-form .primary", then=lambda: "phone number" in page.text("#toast"))
    page.fill("#outcome-form [name=phone]", "0712 345 678")
    page.choose("#outcome-form [name=outcome]", "cancelled")
    assert "1032" in page.text("#outcome-text")
    page.press("Enter")  # in the select
    page.click("#outcome-form .primary")
    page.until(lambda: "Next time, prompt of 0712 345 678: Cancelled" in page.text("#outcomes"))
    other, sent = service.stk(phone="0722000111"), service.stk()
    page.until(lambda: page.text("#outcomes") == "")
    sandbox.advance(40)
    assert [service.read(each)["status"] for each in (other, sent)] == ["SUCCESS", "CANCELLED"]


def test_faults_are_planned_shown_counted_and_cleared(page: Page, service: Routes) -> None:
    page.choose("#fault-form [name=route]", "POST /b2c/payouts")
    page.choose("#fault-form [name=fault]", "refused_after_commit")
    page.fill("#fault-form [name=times]", "3")
    page.fill("#fault-form [name=status]", "418")
    page.click("#fault-form .primary")
    page.until(lambda: "Next 3 times, initiate a payout: Refused, but executed" in page.text("#faults"))
    assert error_of(service.payout()) == (418, "REQUEST_CONFLICT")
    page.until(lambda: "Next 2 times" in page.text("#faults"))
    page.click("#faults button", then=lambda: page.text("#faults") == "")
    assert service.payout().status_code == 200
    page.choose("#fault-form [name=route]", "GET /wallets/service/balance")
    offered = page.value("[...document.querySelectorAll('[name=fault] option')].map((e) => e.value)")
    assert "callback_lost" not in offered


def test_one_phone_for_each_number_with_its_history(page: Page, sandbox: Sandbox, service: Routes) -> None:
    service.stk(phone="0722000111", accountReference="MINE")
    service.stk(phone="0733000222", accountReference="HERS")
    sandbox.advance(40)
    service.stk(phone="0733009945")
    page.until(page.shows_prompt)
    page.choose("#number", "254722000111")
    page.until(lambda: not page.shows_prompt())
    page.until(lambda: "MINE" in page.text("#messages"))
    assert "HERS" not in page.text("#messages")
    assert "0733 009 945 (1 open)" in page.text("#number")
    page.choose("#number", "254733009945")
    page.until(page.shows_prompt)


def test_a_transaction_in_full_and_a_resend(page: Page, sandbox: Sandbox, service: Routes, receiver: Receiver) -> None:
    receiver.answer = lambda _body: 503
    sent = transaction_id(service.payout(reference="PAY-9", callbackUrl=receiver.url))
    sandbox.advance(50)
    page.until(lambda: page.text("#n-callbacks") == "2")
    page.click("#transactions .open", then=lambda: page.count("#detail[open]") == 1)
    assert page.shows("#detail", sent, "PAY-9", "SUCCESS", "KES 250.50", "Paid from", "retry 1")
    assert page.shows("#detail", "The next attempt", "503", "fee")
    receiver.answer = lambda _body: 200
    page.unfold("#detail-callbacks > li:first-child")
    page.click("#detail-callbacks .buttons button", then=lambda: page.count("#detail-callbacks .pill.good") == 1)
    assert len(receiver.bodies) == 3
    page.press("Escape")
    page.until(lambda: page.count("#detail[open]") == 0)


def test_the_code_of_a_request_repeats_it(page: Page, sandbox: Sandbox, service: Routes, tmp_path: Path) -> None:
    body = {"amount": 1250.5, "reference": 'it\'s "1" & $HOME', "description": "\u2028`ls`", "phone": "0712345678"}
    service.payout(**body)
    service.top_up(key="top-'1")
    service.api.get("/transactions", params={"limit": 5, "amountMin": "10.50", "from": "2026-01-01", "q": "it's"})
    page.until(lambda: page.count("#requests > li") == 3)
    page.click("#tab-requests")
    code: dict[str, list[str]] = {"curl": [], "Python": []}
    for number in (1, 2, 3):
        page.unfold(f"#requests > li:nth-child({number})")
        for place, language in enumerate(code, 1):
            page.click(f"#requests > li:nth-child({number}) .buttons button:nth-child({place})")
            shown = f"#requests > li:nth-child({number}) pre.code"
            start = "curl -X" if language == "curl" else "import Client"
            page.until(lambda shown=shown, start=start: start in page.text(shown))  # type: ignore[misc]
            code[language].append(str(page.value(f"document.querySelector({shown!r}).textContent")))
    environment = os.environ | {"MOMOPAY_API_KEY": KEY, "PYTHONPATH": str(SOURCE), "NO_PROXY": "*"}
    commands = [[sys.executable, "-W", "error", "-c", text] for text in code["Python"]]
    if shutil.which("curl"):
        commands += [["sh", "-c", text] for text in code["curl"]]
    for command in commands:
        before = len(sandbox.requests)
        run_program(command, env=environment)
        again = sandbox.requests[before]
        original = next(each for each in sandbox.requests if (each.method, each.path) == (again.method, again.path))
        assert again.status == 200
        assert httpx.QueryParams(again.query) == httpx.QueryParams(original.query)
        assert _comparable(again.json) == _comparable(original.json)
        assert again.headers.get("idempotency-key") == original.headers.get("idempotency-key")
    assert {each.reference for each in sandbox.ledger if each.kind == "payout"} == {body["reference"]}


def _comparable(value: Any) -> Any:
    """Without what momopay adds or writes as the service does: the currency, and the form of a phone number."""
    return None if value is None else {**value, "phone": str(value["phone"])[-9:], "currency": "KES"}


def test_an_account_is_changed_and_only_what_was_changed(page: Page, sandbox: Sandbox, service: Routes) -> None:
    account, _other = sandbox.account(KEY), sandbox.account("pk_test_another")  # of one there is no choice
    service.api.get("/transactions")
    with client(sandbox.base_url, "pk_test_second") as api:
        api.get("/transactions")
    page.choose("#account", account.tenant_id)
    page.until(lambda: page.count("#accounts button") == 1)
    page.click("#accounts button")
    page.run("document.querySelectorAll('.group').forEach((each) => { each.open = true; })")
    # Everything has words of its own: no name of a field is shown.
    labels = page.value("[...document.querySelectorAll('#settings label')].map((each) => each.innerText)")
    assert len(labels) == 5 + len(Switches.model_fields)
    assert not any(name.replace("_", " ") in label for name in Switches.model_fields for label in labels)
    page.click("[name=kyc_approved]")
    page.fill("[name=service_balance]", "12.50")
    page.choose("[name=naming]", "snake_case")
    page.choose("[name=created_status]", "201")
    page.fill("[name=ban_pushes]", "5")
    page.fill("[name=fee]", "1.005")
    page.click("#settings .primary", then=lambda: "Fee of each payment" in page.text("#settings-fault"))
    assert (account.kyc_approved, account.switches.ban_pushes) == (True, None)
    page.fill("[name=fee]", "1")
    # A payment meanwhile changes another balance, which must not be set back.
    account.kyc_approved = True
    service.payout(amount=100)
    page.press("Enter")
    page.until(lambda: page.count("#settings[open]") == 0)
    assert (account.kyc_approved, account.service_balance) == (False, Decimal("12.5"))
    assert account.b2c_balance == 999_900
    switches = account.switches
    assert (switches.naming, switches.created_status, switches.ban_pushes) == ("snake_case", 201, 5)
    page.until(lambda: "no payouts" in page.text("#accounts"))


def test_a_reset_asks_first(page: Page, service: Routes, sandbox: Sandbox) -> None:
    service.payout()
    page.until(lambda: page.count("#transactions .open") == 1)
    page.click("#reset")
    page.click("#confirm [data-close]")
    assert len(sandbox.ledger) == 2
    page.click("#reset")
    page.click("#confirm .danger", then=lambda: page.count("#transactions .open") == 0)
    assert sandbox.ledger == []
