"""The app's view and signal: each settled end once, whether a callback or a sweep brings it."""

import signal
import threading
from io import StringIO
from threading import Timer
from typing import Any

import pytest
from django.conf import settings
from django.core.management import call_command, execute_from_command_line
from django.core.management.base import CommandError
from django.db import connection
from django.test import Client as Browser
from django.test import override_settings

from integrations.django.conftest import Project, collect
from momopay import EntryKind, Payment
from momopay.integrations.django import client, payment_ended, status_url
from momopay.integrations.django.apps import check_settings
from momopay.sandbox import Outcome, phone_for

LONG = "an order of 2026-11-23"


@pytest.mark.parametrize("first", ["callback", "sweep"])
@pytest.mark.parametrize("engine", ["sqlite", "postgresql"], indirect=True)
def test_an_end_is_signalled_once_whoever_brings_it(project: Project, first: str) -> None:
    collect(reference=LONG, metadata={"cart": 7})
    project.sandbox.advance(60)
    if first == "sweep":
        project.sweep()
    assert [project.deliver(), project.deliver()] == [200, 200]
    project.sweep()
    (payment,) = project.ended
    assert [payment.is_paid, payment.reference, payment.amount] == [True, LONG, 100]
    assert (payment.kind, payment.metadata) == (EntryKind.COLLECTION, {"cart": 7})
    assert (payment.receipt is None) == (first == "sweep")  # only a callback has it
    assert client.journal is not None
    entry = client.journal.get(LONG)
    assert entry is not None
    assert entry.receipt == project.stated("momo_receipt")


@pytest.mark.parametrize("again", ["callback", "sweep"])
def test_a_receiver_that_raises_is_called_again(project: Project, monkeypatch: pytest.MonkeyPatch, again: str) -> None:
    troubles = [RuntimeError("the shop's own database is away")]

    def fail_once(**_arguments: Any) -> None:
        shipped.execute("INSERT INTO shipped VALUES (1)")
        if troubles:
            raise troubles.pop()

    payment_ended.connect(fail_once)
    monkeypatch.setitem(connection.settings_dict, "ATOMIC_REQUESTS", True)
    shipped = connection.cursor()
    shipped.execute("CREATE TABLE shipped (number INTEGER)")
    try:
        collect()
        project.sandbox.advance(60)
        assert project.deliver() == 500
        project.sweep() if again == "sweep" else project.deliver()
        project.sweep()
        assert shipped.execute("SELECT number FROM shipped").fetchall() == [(1,)]
    finally:
        payment_ended.disconnect(fail_once)
        shipped.execute("DROP TABLE shipped")
    assert [each.is_paid for each in project.ended] == [True, True]  # this one was called twice, too


@pytest.mark.parametrize("first", ["callback", "sweep", "reversal"])
def test_both_ends_of_a_failed_payout_are_signalled(project: Project, first: str) -> None:
    """Whoever brings that it FAILED. If it is REVERSED already by then, that is its only end."""
    client.payouts.pay_once(reference="SAL-1", amount=50, phone=phone_for(Outcome.reversed))
    project.sandbox.advance(36)
    assert client.transactions.get(project.stated("id")).status == "FAILED"
    if first == "sweep":
        project.sweep()
    elif first == "callback":
        project.deliver(0)
    project.sandbox.advance(600)
    for number in range(len(project.sandbox.callbacks)):
        project.deliver(number)
    project.sweep()
    expected = ["REVERSED"] if first == "reversal" else ["FAILED", "REVERSED"]
    assert [(each.kind, str(each.status)) for each in project.ended] == [(EntryKind.PAYOUT, each) for each in expected]


def test_a_receiver_that_is_a_generator_has_not_run(project: Project) -> None:
    def yielding(payment: Payment, **_: object) -> Any:
        yield payment

    payment_ended.connect(yielding)
    try:
        collect()
        project.sandbox.advance(60)
        assert project.deliver() == 500
    finally:
        payment_ended.disconnect(yielding)
    assert project.deliver() == 200, "it was not delivered before"


def test_the_page_of_a_checkout_learns_how_it_stands(project: Project) -> None:
    collect()
    url, before = status_url("INV-1"), len(project.sandbox.requests)
    assert url.startswith("/momopay/status/?momo_token=")
    shown = [Browser().get(url).json() for _ in range(100)]
    assert shown == [{"reference": "INV-1", "state": "waiting", "amount": 100, "receipt": None}] * 100
    assert len(project.sandbox.requests) == before
    project.sandbox.advance(60)
    project.deliver()
    assert Browser().get(url).json()["state"] == "paid"
    callback_token = project.sandbox.callbacks[-1].url.partition("?")[2]
    assert Browser().get(f"/momopay/status/?{callback_token}").status_code == 403
    body = project.sandbox.callbacks[-1].payload
    sent = Browser().post(url.replace("status/", "callback"), body, content_type="application/json")
    assert sent.status_code == 403


def test_a_sweep_that_is_repeated_ends_at_ctrl_c(project: Project) -> None:
    class Console(StringIO):
        def write(self, text: str) -> int:
            Timer(0.05, signal.pthread_kill, (threading.main_thread().ident, signal.SIGINT)).start()
            return super().write(text)

    console = Console()
    call_command("momopay_sweep", every=60, stdout=console)
    assert "0 settled" in console.getvalue()


@pytest.mark.usefixtures("project")
def test_a_sweep_from_cron_prints_nothing_although_a_check_warns(capfd: pytest.CaptureFixture[str]) -> None:
    with override_settings(MOMOPAY={**settings.MOMOPAY, "CALLBACK_BASE_URL": "https://not-allowed.example/momopay/"}):
        assert [each.id for each in check_settings()] == ["momopay.W002"]
        execute_from_command_line(["manage.py", "momopay_sweep", "-v", "0"])
    assert capfd.readouterr() == ("", "")


@pytest.mark.usefixtures("project")
def test_a_sweep_that_is_repeated_ends_with_a_revoked_key() -> None:
    revoked = {**settings.MOMOPAY, "API_KEY": "ab_test_revoked"}
    with override_settings(MOMOPAY=revoked), pytest.raises(CommandError, match="INVALID_API_KEY"):
        call_command("momopay_sweep", every=60)


def test_a_payment_without_the_journal_is_signalled_too(project: Project) -> None:
    client.stk.initiate(amount=5, phone="0712345678", account_reference="METER-1")
    client.payouts.initiate(amount=50, phone="0712345678", reference="SAL-0")
    project.sandbox.advance(60)
    assert [project.deliver(number) for number in range(2)] == [200, 200]
    found = [(each.kind, each.reference, each.metadata) for each in project.ended]
    assert sorted(found) == [(EntryKind.COLLECTION, "METER-1", None), (EntryKind.PAYOUT, "SAL-0", None)]


def test_a_scheduler_that_knows_the_secret_sweeps(project: Project) -> None:
    collect()
    project.sandbox.advance(60)
    secret = "the scheduler's own"
    browser, right = Browser(enforce_csrf_checks=True), {"Authorization": f"Bearer {secret}"}
    for closed in ({}, {"SWEEP_SECRET": None}, {"SWEEP_SECRET": ""}):
        with override_settings(MOMOPAY=settings.MOMOPAY | closed):
            for headers in (right, {"Authorization": "Bearer "}, {}):
                assert browser.post("/momopay/sweep/", headers=headers).status_code == 403
    with override_settings(MOMOPAY=settings.MOMOPAY | {"SWEEP_SECRET": secret}):
        assert check_settings() == []
        assert browser.post("/momopay/sweep/", headers={"Authorization": f"Bearer {secret[:-1]}"}).status_code == 403
        assert browser.get("/momopay/sweep/", headers=right).status_code == 405
        assert project.ended == []
        report = browser.post("/momopay/sweep/", headers=right).json()
    assert (report["settled"], report["handled"]) == (1, 1)
    assert [payment.is_paid for payment in project.ended] == [True]
    with override_settings(MOMOPAY=settings.MOMOPAY | {"SWEEP_SECRET": "short"}):
        assert [each.msg[:23] for each in check_settings()] == ['MOMOPAY["SWEEP_SECRET"]']
