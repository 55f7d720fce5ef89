"""What the page does beside taking PINs: plans, records, code to copy, settings. In headless Chromium."""

import os
import shutil
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx
import pytest

import momopay.sandbox
from momopay.sandbox import Sandbox, Switches
from sandbox.browser import Page
from sandbox.kit import KEY, Receiver, Service, client, refusal, transaction_id

pytestmark = pytest.mark.browser

SOURCE = Path(momopay.sandbox.__file__).parents[2]


def test_the_next_payment_of_a_phone_ends_as_it_was_picked(page: Page, sandbox: Sandbox, service: Service) -> None:
    page.fill("#outcome-form [name=phone]", "0712 345 678")
    page.choose("#outcome-form [name=outcome]", "cancelled")
    assert "1032" in page.text("#outcome-text")
    page.press("\ue007")  # Enter, in the select
    page.click("#outcome-form .primary")
    page.until(lambda: "Next time, prompt of 0712 345 678: Cancelled" in page.text("#outcomes"))
    other, sent = service.stk(phone="0722000111"), service.stk()
    page.until(lambda: page.text("#outcomes") == "")
    sandbox.advance(40)
    assert [service.read(each)["status"] for each in (other, sent)] == ["SUCCESS", "CANCELLED"]


def test_faults_are_planned_shown_counted_and_cleared(page: Page, service: Service) -> None:
    page.choose("#fault-form [name=route]", "POST /b2c/payouts")
    page.choose("#fault-form [name=fault]", "refused_after_commit")
    page.fill("#fault-form [name=times]", "3")
    page.fill("#fault-form [name=status]", "418")
    page.click("#fault-form .primary")
    page.until(lambda: "Next 3 times, paying out: Refused, but executed" in page.text("#faults"))
    assert refusal(service.payout()) == (418, "REQUEST_CONFLICT")
    page.until(lambda: "Next 2 times" in page.text("#faults"))
    page.click("#faults button")
    page.until(lambda: page.text("#faults") == "")
    assert service.payout().status_code == 200
    page.choose("#fault-form [name=route]", "GET /wallets/service/balance")
    assert "callback_lost" not in page.value(
        "[...document.querySelectorAll('[name=fault] option')].map((e) => e.value)"
    )


def test_what_cannot_be_planned_is_said(page: Page) -> None:
    page.fill("#outcome-form [name=phone]", "12")
    page.click("#outcome-form .primary")
    page.until(lambda: "phone number" in page.text("#toast"))


def test_one_phone_for_each_number_with_its_history(page: Page, sandbox: Sandbox, service: Service) -> None:
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


def test_a_transaction_in_full_with_its_callbacks_one_of_them_sent_again(
    page: Page, sandbox: Sandbox, service: Service, receiver: Receiver
) -> None:
    receiver.answer = lambda _body: 503
    sent = transaction_id(service.payout(reference="PAY-9", callbackUrl=receiver.url))
    sandbox.advance(50)
    page.until(lambda: page.text("#n-callbacks") == "2")
    page.click("#transactions .open")
    page.until(lambda: page.count("#detail[open]") == 1)
    shown = page.text("#detail")
    for text in (sent, "PAY-9", "SUCCESS", "KES 250.50", "Paid from", "retry 1", "The next attempt", "503", "fee"):
        assert text in shown
    receiver.answer = lambda _body: 200
    page.unfold("#detail-callbacks > li:first-child")
    page.click("#detail-callbacks .buttons button")
    page.until(lambda: page.count("#detail-callbacks .pill.good") == 1)
    assert len(receiver.bodies) == 3
    page.press("\ue00c")  # Escape
    page.until(lambda: page.count("#detail[open]") == 0)


def test_a_request_can_be_copied_as_code_that_sends_it_again(
    page: Page, sandbox: Sandbox, service: Service, tmp_path: Path
) -> None:
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
        ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)
        assert ran.returncode == 0, ran.stderr
        again = sandbox.requests[before]
        original = next(each for each in sandbox.requests if (each.method, each.path) == (again.method, again.path))
        assert again.status == 200
        assert httpx.QueryParams(again.query) == httpx.QueryParams(original.query)
        assert _comparable(again.json) == _comparable(original.json)
        assert again.headers.get("idempotency-key") == original.headers.get("idempotency-key")
    references = {each.reference for each in sandbox.ledger if each.kind == "payout"}
    assert references == {body["reference"]}


def _comparable(value: Any) -> Any:
    """Without what momopay adds or writes as the service does: the currency, and the form of a phone number."""
    return None if value is None else {**value, "phone": str(value["phone"])[-9:], "currency": "KES"}


def test_an_account_is_changed_and_only_what_was_changed(page: Page, sandbox: Sandbox, service: Service) -> None:
    account, _other = sandbox.account(KEY), sandbox.account("pk_test_another")  # of one there is no choice
    service.api.get("/transactions")
    with client(sandbox.base_url, "pk_test_second") as api:
        api.get("/transactions")
    page.choose("#account", account.tenant_id)
    page.until(lambda: page.count("#accounts button") == 1)
    page.click("#accounts button")
    page.script("document.querySelectorAll('.group').forEach((each) => { each.open = true; })")
    # Everything has words of its own: no name of a field is shown.
    labels = page.value("[...document.querySelectorAll('#settings label')].map((each) => each.innerText)")
    assert len(labels) == 5 + len(Switches.model_fields)
    assert not any(name.replace("_", " ") in label for name in Switches.model_fields for label in labels)
    page.click("[name=kyc_approved]")
    page.fill("[name=service_balance]", "12.50")
    page.choose("[name=naming]", "snake_case")
    page.choose("[name=created_status]", "201")
    page.fill("[name=ban_pushes]", "5")
    # A payment meanwhile changes another balance, which must not be set back.
    account.kyc_approved = True
    service.payout(amount=100)
    page.press("\ue007")
    page.until(lambda: page.count("#settings[open]") == 0)
    assert (account.kyc_approved, account.service_balance, account.b2c_balance) == (
        False,
        Decimal("12.5"),
        Decimal(999_900),
    )
    switches = account.switches
    assert (switches.naming, switches.created_status, switches.ban_pushes) == ("snake_case", 201, 5)
    page.until(lambda: "no payouts" in page.text("#accounts"))


def test_what_an_account_cannot_have_is_said_and_changes_nothing(
    page: Page, sandbox: Sandbox, service: Service
) -> None:
    service.api.get("/transactions")
    page.until(lambda: page.count("#accounts button") > 0)
    page.script(f"openSettings({sandbox.account(KEY).tenant_id!r})")
    page.fill("[name=fee]", "1.005")
    page.click("[name=late_pin]")
    page.click("#settings .primary")
    page.until(lambda: "Fee of each payment" in page.text("#settings-fault"))
    assert (sandbox.account(KEY).fee, sandbox.account(KEY).switches.late_pin) == (Decimal(1), False)


def test_a_reset_asks_first(page: Page, service: Service, sandbox: Sandbox) -> None:
    service.payout()
    page.until(lambda: page.count("#transactions .open") == 1)
    page.click("#reset")
    page.click("#confirm [data-close]")
    assert len(sandbox.ledger) == 2
    page.click("#reset")
    page.click("#confirm .danger")
    page.until(lambda: page.count("#transactions .open") == 0)
    assert sandbox.ledger == []
