"""The page by keyboard and by screen reader, and its colours in both schemes. In headless Chromium."""

from itertools import pairwise
from pathlib import Path

import pytest

from momopay.sandbox import Outcome, Sandbox, phone_for
from sandbox.browser import Page
from sandbox.kit import KEY, Receiver, Service

pytestmark = pytest.mark.browser

NEED_A_NAME = {
    "button",
    "checkbox",
    "combobox",
    "dialog",
    "heading",
    "link",
    "region",
    "searchbox",
    "spinbutton",
    "tab",
    "tablist",
    "tabpanel",
    "textbox",
    "timer",
}
ESCAPE, ENTER, TAB, ARROW_RIGHT, ARROW_LEFT = "\ue00c", "\ue007", "\ue004", "\ue014", "\ue012"
DIALOGS = ("openDetail(state.transactions[0].id)", "openSettings(state.accounts[0].tenant_id)", "$('reset').click()")
AUDIT = (Path(__file__).parent / "audit.js").read_text()
AT_REST = "document.getAnimations().every((each) => each.playState !== 'running')"


@pytest.fixture
def busy_page(page: Page, sandbox: Sandbox, service: Service, receiver: Receiver) -> Page:
    """A page with something of everything."""
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
    return page


def test_everything_has_a_role_and_a_name(busy_page: Page) -> None:
    page = busy_page
    for step in ("null", "chooseTab('callbacks')", "chooseTab('requests')", *DIALOGS):
        page.script(step)
        page.script("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
        page.until(lambda step=step: (page.count("dialog[open]") == 1) == (step in DIALOGS))  # type: ignore[misc]
        nodes = page.accessible()
        assert [role for role, name in nodes if role in NEED_A_NAME and not name.strip()] == [], step
        if step in DIALOGS:
            assert page.count("dialog[open]") == 1
            page.script("document.querySelector('dialog[open]').close()")


def test_landmarks_headings_and_live_regions(busy_page: Page) -> None:
    nodes = busy_page.accessible()
    roles = [role for role, _ in nodes]
    assert (roles.count("banner"), roles.count("main")) == (1, 1)
    assert {"Phones", "The customer's phone", "Balances", "How the next payment ends", "Records"} <= {
        name for role, name in nodes if role == "region"
    }
    assert [name for role, name in nodes if role == "tab"] == ["Transactions 5", "Callbacks 4", "Requests 6"]
    levels = busy_page.value(
        "[...document.querySelectorAll('body > :not(dialog) :is(h1, h2, h3)')].map((e) => +e.tagName[1])"
    )
    assert levels[0] == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))
    # The clock ticks four times a second: it must not be read aloud, and what happens must be.
    assert ("timer", "Virtual time") in nodes
    assert "output" not in str(busy_page.value("[...document.querySelectorAll('*')].map((e) => e.localName)"))
    assert busy_page.value("['link', 'toast', 'announce'].map((id) => $(id).role)") == ["status"] * 3


def test_a_prompt_is_announced(page: Page, service: Service) -> None:
    service.stk(amount=12, phone=phone_for(Outcome.by_hand))
    page.until(lambda: "KES 12.00 on 0712 349 945" in page.text("#announce"))


def test_the_tab_key_reaches_everything_shows_where_it_is_and_is_never_trapped(busy_page: Page) -> None:
    page = busy_page
    page.script(f"{AUDIT}; document.activeElement.blur()")
    for _ in range(page.value("focusable().length") + 5):
        page.press(TAB)
        page.script("noteFocus()")
    assert page.value("focusable().filter((each) => !reached.has(each)).map(named)") == []
    assert page.value("unseen") == []


@pytest.mark.parametrize("opener", ["#transactions .open", "#accounts button", "#reset"])
def test_a_dialog_opens_by_enter_closes_by_escape_and_gives_the_focus_back(busy_page: Page, opener: str) -> None:
    page = busy_page
    page.script(f"document.querySelector({opener!r}).focus()")
    page.press(ENTER)
    page.until(lambda: page.count("dialog[open]") == 1)
    assert page.value("document.querySelector('dialog[open]').contains(document.activeElement)") is True
    page.press(ESCAPE)
    page.until(lambda: page.count("dialog[open]") == 0)
    assert page.value(f"document.activeElement === document.querySelector({opener!r})") is True


def test_the_tabs_work_by_arrow_keys(busy_page: Page) -> None:
    page = busy_page
    page.script("$('tab-transactions').focus()")
    for key, chosen in ((ARROW_RIGHT, "callbacks"), (ARROW_LEFT, "transactions"), (ARROW_LEFT, "requests")):
        page.press(key)
        assert page.value("document.activeElement.id") == f"tab-{chosen}"
        assert page.value(f"$('panel-{chosen}').hidden") is False
        assert page.count("[role=tabpanel]:not([hidden])") == 1


def test_forms_are_sent_by_enter_and_the_focus_survives_what_arrives(
    busy_page: Page, sandbox: Sandbox, service: Service
) -> None:
    page = busy_page
    page.fill("#outcome-form [name=times]", "7")
    page.press(ENTER)
    page.until(lambda: "Next 7 times, prompt" in page.text("#outcomes"))
    page.script("document.querySelector('#accounts button').focus()")
    service.payout()
    sandbox.advance(1)
    page.until(lambda: page.text("#n-requests") == "7")
    assert page.value("document.activeElement.closest('#accounts') !== null") is True
    page.script("document.querySelector('#outcomes button').focus()")
    page.press(ENTER)
    page.until(lambda: page.count("#outcomes li") == 1)
    assert page.value("document.activeElement.name") == "kind"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_all_text_has_a_contrast_of_4_5(busy_page: Page, service: Service, scheme: str, width: int) -> None:
    page = busy_page
    page.show(width=width, scheme=scheme)
    page.script(AUDIT)
    page.until(lambda: page.count("#messages li") > 0)
    for step in ("toast('Saved')", "chooseTab('callbacks')", "chooseTab('requests')", *DIALOGS):
        page.script(step)
        page.until(lambda step=step: (page.count("dialog[open]") == 1) == (step in DIALOGS))  # type: ignore[misc]
        check_contrast(page)
        page.script("document.querySelector('dialog[open]')?.close()")
    service.stk(phone=phone_for(Outcome.by_hand))
    page.until(page.shows_prompt)
    check_contrast(page)


def check_contrast(page: Page) -> None:
    page.script("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    page.until(lambda: page.value(AT_REST) is True)
    number, faint = page.value("faintText()")
    assert number > 30
    assert faint == []
