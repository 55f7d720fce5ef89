"""The admin: what it shows, who may do what, and that nothing but the three actions writes a payment."""

import csv
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.contrib import admin
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.core.management import call_command
from django.db import DatabaseError, connection, connections, transaction
from django.test import Client as Browser
from django.test import override_settings
from django.urls import include, path
from django.utils.timezone import localtime

from in_turn import some_by_default
from integrations.django.conftest import ALIAS, Project, collect
from momopay import OutcomeUnknownError, TransactionStatus
from momopay.integrations.django import client, clients
from momopay.integrations.django.apps import check_settings
from momopay.integrations.django.models import Payment
from momopay.sandbox import Fault, Outcome, phone_for

LIST = "/admin/momopay/payment/"
both_databases = pytest.mark.parametrize(
    "engine", ["sqlite", pytest.param("postgresql", marks=pytest.mark.whole)], indirect=True
)


@pytest.fixture(scope="module")
def _migrated() -> None:
    call_command("migrate", verbosity=0)


@pytest.fixture
def shop(project: Project, _migrated: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Project]:
    """A project with an admin, one order that was paid, one that is open, and a payout."""
    app = path("momopay/", include("momopay.integrations.django.urls"))
    settings.ROOT_URLCONF = (path("admin/", admin.site.urls), app)
    for name in ("sessions.middleware.Session", "auth.middleware.Authentication", "messages.middleware.Message"):
        monkeypatch.setattr(settings, "MIDDLEWARE", [*settings.MIDDLEWARE, f"django.contrib.{name}Middleware"])
    collect(metadata={"cart": 7})
    client.payouts.pay_once(reference="SAL-1", amount=50, phone="0722000000")
    project.sandbox.advance(60)
    for number in range(len(project.sandbox.callbacks)):
        project.deliver(number)
    collect(reference="INV-2", amount=Decimal("12.50"), phone="0733000000")
    with transaction.atomic():
        yield project
        transaction.set_rollback(True)


def staff(*permissions: str) -> Browser:
    user, _ = User.objects.get_or_create(username="wanjiku", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
    browser = Browser()
    browser.force_login(user)
    return browser


def act(browser: Browser, action: str, payment: str, **form: str) -> str:
    return browser.post(LIST, {"action": action, "_selected_action": payment, **form}, follow=True).content.decode()


def lose_an_order() -> None:
    with pytest.raises(OutcomeUnknownError, match="INV-3"):
        client.with_options(deadline=2.0).stk.collect_once(reference="INV-3", amount=5, phone="0712345678")


@both_databases
def test_the_list_is_searched_filtered_and_summed(shop: Project) -> None:
    browser = staff("view_payment")

    def found(**query: str) -> set[str]:
        page: Any = browser.get(LIST, query)
        assert page.status_code == 200
        return {payment.reference for payment in page.context_data["cl"].result_list}

    everything = {"INV-1", "INV-2", "SAL-1"}
    now = localtime(Payment.objects.using(ALIAS).get(pk="COLLECTION:INV-1").created_at)
    day = {"created_at__year": str(now.year), "created_at__month": str(now.month), "created_at__day": str(now.day)}
    receipt = shop.stated("momo_receipt", 0)
    for query, expected in (
        ({}, everything),
        ({"q": "inv"}, {"INV-1", "INV-2"}),
        ({"q": "0733 000 000"}, {"INV-2"}),
        ({"q": "722000"}, {"SAL-1"}),
        ({"q": "+254733000000"}, {"INV-2"}),
        ({"q": shop.stated("momo_receipt", 0).lower()}, {shop.stated("external_reference", 0)}),
        ({"q": f" {receipt[:4].lower()}-{receipt[4:]}."}, {shop.stated("external_reference", 0)}),
        ({"q": f"{receipt} Confirmed. Ksh100.00 sent to SHOP on 25/11/26"}, {shop.stated("external_reference", 0)}),
        ({"q": "SJK4H7L2QP Confirmed. Ksh100.00 sent"}, set[str]()),
        ({"kind__exact": "PAYOUT"}, {"SAL-1"}),
        ({"status__exact": "SUCCESS"}, {"INV-1", "SAL-1"}),
        ({"state__exact": "UNKNOWN"}, set[str]()),
        (day, everything),
        (day | {"created_at__year": "2020"}, set[str]()),
    ):
        assert found(**query) == expected, query
    assert "search by the customer" in browser.get(LIST, {"q": "SJK4H7L2QP"}).content.decode()
    listed: Any = browser.get(LIST)
    orders, payouts = listed.context_data["cl"].sums
    assert (orders["count"], orders["total"], orders["paid"]) == (2, Decimal("112.5"), 100)
    assert (payouts["count"], payouts["total"], payouts["paid"]) == (1, 50, 50)
    foot = listed.content.decode().partition("<tfoot>")[2].partition("</tr>")[0]
    under = {name: text.strip() for name, text in re.findall(r'<td class="field-(\w+)">(.*?)</td>', foot, re.DOTALL)}
    shown = {"reference": "2 listed", "kind": "COLLECTION", "amount": "112.50", "status": "100.00 paid"}
    assert {name: text for name, text in under.items() if text} == shown


def test_a_payment_is_shown_with_its_transactions_and_without_a_field_to_change(shop: Project) -> None:
    page = staff("view_payment").get(f"{LIST}COLLECTION_3AINV-1/change/").content.decode()
    for text in ("254712345678", "SUCCESS", "cart", f"<td>{shop.stated('id', 0)}</td>", "<td>begun</td>", "delivered"):
        assert text in page
    for absent in ('name="_save"', "Search text"):
        assert absent not in page
    form = page.partition('<form action="" method="post"')[2].partition("</form>")[0]
    assert "<input" not in form.replace("hidden", "")


def buttons(browser: Browser, payment: str) -> list[str]:
    page = browser.get(f"{LIST}{payment}/change/").content.decode()
    return re.findall(r'<button name="action" value="(\w+)"', page)


def test_a_payments_page_has_a_button_for_each_action_that_is_possible(shop: Project) -> None:
    shop.sandbox.fail_next("POST", "/payments/stk", Fault.reset_after_commit)
    lose_an_order()
    everything = ("view_payment", "refund_payment", "release_payment")
    paid, still_open, payout, lost = "COLLECTION_3AINV-1", "COLLECTION_3AINV-2", "PAYOUT_3ASAL-1", "COLLECTION_3AINV-3"
    assert buttons(staff("view_payment"), paid) == buttons(staff("view_payment"), lost) == ["read_again"]
    browser = staff(*everything)
    expected = {paid: ["refund"], still_open: [], payout: [], lost: ["release"]}
    assert {each: buttons(browser, each) for each in expected} == {
        each: ["read_again", *others] for each, others in expected.items()
    }
    form = {"confirmed": "yes", "reference": "INV-1-R1", "amount": "100"}
    done = browser.post(LIST, {"action": "refund", "_selected_action": "COLLECTION:INV-1", **form})
    assert done.headers["Location"] == f"{LIST}{paid}/change/"
    assert buttons(browser, paid) == ["read_again"]  # nothing is left to refund
    assert browser.get(f"{LIST}COLLECTION_3Anone/change/").status_code == 302


def user_of(reference: str) -> User:
    return User.objects.get(username=reference)


def nobody(_reference: str) -> User:
    return User.objects.get(username="nobody")


def elsewhere(reference: str) -> str:
    return f"https://shop.example/{reference}"


def nothing(_reference: str) -> None: ...


def unlisted(_reference: str) -> Permission:
    return Permission.objects.all()[0]  # which the admin does not show


LINKS: list[tuple[Any, str | None]] = [
    (None, None),
    ("/orders/{reference}/", "/orders/INV-1/"),
    (elsewhere, "https://shop.example/INV-1"),
    (nothing, None),
    (user_of, "/admin/auth/user/{}/change/"),
    (f"{__name__}.user_of", "/admin/auth/user/{}/change/"),
    (nobody, None),
    (unlisted, None),
]


@pytest.mark.parametrize(("link", "url"), some_by_default(LINKS, 3))
@pytest.mark.usefixtures("shop")
def test_a_payment_links_to_the_projects_object(link: Any, url: str | None) -> None:
    client.payouts.refund(of="INV-1", amount=10)
    order = User.objects.create(username="INV-1")
    with override_settings(MOMOPAY=clients.options() | {"LINK": link}):
        assert check_settings() == []
        for payment in ("COLLECTION_3AINV-1", "PAYOUT_3AINV-1-R1"):  # of a refund, to the order
            page = staff("view_payment").get(f"{LIST}{payment}/change/").content.decode()
            assert (f'href="{url.format(order.pk)}">View INV-1<' in page) if url else ("View INV-1<" not in page)


@pytest.mark.parametrize("use_tz", [True, False])
def test_times_are_in_the_projects_zone(shop: Project, use_tz: bool) -> None:
    at = datetime(2026, 3, 1, 21, 30, tzinfo=UTC)
    with shop.database.cursor() as cursor:
        cursor.execute("UPDATE momopay_history SET at = %s", [at.timestamp()])
        cursor.execute("UPDATE momopay_transactions SET sent_at = %s, ended_at = %s", [at.isoformat()] * 2)
    with override_settings(USE_TZ=use_tz, TIME_ZONE="Africa/Nairobi"):
        browser = staff("view_payment")
        page = browser.get(f"{LIST}COLLECTION_3AINV-1/change/").content.decode()
        assert page.count("2026-03-02 00:30:00 EAT") > 5


def test_the_csv_file_has_what_is_filtered(shop: Project) -> None:
    browser = staff("view_payment")
    link = re.search(r'href="(csv/[^"]*)"', browser.get(LIST, {"kind__exact": "COLLECTION"}).content.decode())
    assert link is not None
    answer = browser.get(LIST + link[1])
    rows = list(csv.DictReader(StringIO(answer.content.decode("utf-8-sig"))))
    assert {row["reference"]: (row["amount"], row["status"]) for row in rows} == {
        "INV-1": ("100.00", "SUCCESS"),
        "INV-2": ("12.50", "PENDING"),
    }
    created = Payment.objects.using(ALIAS).get(pk="COLLECTION:INV-1").created_at
    assert rows[-1]["created_at"] == localtime(created).isoformat(" ", "seconds")
    assert "search_text" not in rows[0]
    assert shop.stated("momo_receipt", 0) in browser.get(f"{LIST}csv/").content.decode()
    for view in ("csv/", "activity/"):
        assert staff().get(LIST + view).status_code == 403
        assert Browser().get(LIST + view).status_code == 302


@pytest.mark.usefixtures("shop")
def test_the_chart_shows_the_days_and_the_rate(project: Project) -> None:
    collect(reference="INV-7", amount=30, phone=phone_for(Outcome.cancelled))
    client.payouts.refund(of="INV-1", amount=40)
    project.sandbox.advance(60)
    project.sweep()
    with project.database.cursor() as cursor:  # the sandbox's clock may be days ahead
        cursor.execute("UPDATE momopay_transactions SET ended_at = %s", [datetime.now(UTC).isoformat()])
    browser = staff("view_payment")
    assert 'href="activity/"' in browser.get(LIST).content.decode()
    page = browser.get(f"{LIST}activity/").content.decode()
    assert page.count('<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0') == 2  # for a wide and for a narrow window
    today = page.partition("<tbody>")[2].partition("</tr>")[0]
    assert re.findall(r"<td>(.*?)</td>", today)[1:] == ["112.50", "50.00", "40.00", "0.00", "30.00", "67 % of 3"]
    assert "67 % of the last 3 prompts were paid" in page


@both_databases
def test_nothing_but_the_actions_writes(shop: Project) -> None:
    browser, url = Browser(), f"{LIST}COLLECTION_3AINV-1/"
    browser.force_login(User.objects.create_superuser("root"))
    assert browser.get(LIST + "add/").status_code == 403
    assert browser.post(url + "delete/", {"post": "yes"}).status_code == 403
    assert browser.post(url + "change/", {"reference": "INV-7"}).status_code == 403
    assert act(browser, "delete_selected", "COLLECTION:INV-1", post="yes")
    sent = {"action": "refund", "_selected_action": "COLLECTION:INV-1", "confirmed": "yes", "amount": "50"}
    assert browser.get(LIST, sent).status_code == 302
    browser.handler.enforce_csrf_checks = True
    assert browser.post(LIST, sent | {"reference": "INV-1-R1"}).status_code == 403
    payment = Payment.objects.using(ALIAS).get(pk="COLLECTION:INV-1")
    for write in (payment.save, payment.delete, lambda: Payment.objects.using(ALIAS).update(amount=1)):
        with pytest.raises(DatabaseError):
            write()
    assert Payment.objects.using(ALIAS).get(pk="COLLECTION:INV-1").amount == 100
    assert [request.path for request in shop.sandbox.requests].count("/b2c/payouts") <= 1


@pytest.mark.parametrize("action", ["read_again", "refund", "release"])
def test_an_action_needs_its_permission_and_asks_first(shop: Project, action: str) -> None:
    before = len(shop.sandbox.requests)
    form = {"confirmed": "yes", "amount": "10", "by": "x", "reference": "R"}
    if action != "read_again":  # which moves no money
        assert "confirmed" not in act(staff("view_payment"), action, "COLLECTION:INV-1", **form)
    page = act(staff("view_payment", f"{action}_payment"), action, "COLLECTION:INV-1")
    for shown in (f'name="action" value="{action}"', 'name="confirmed"', "csrfmiddlewaretoken"):
        assert shown in page
    assert len(shop.sandbox.requests) == before


def test_read_again_records_what_the_service_says_and_sends_the_signal_once(shop: Project) -> None:
    shop.sandbox.fail_next("POST", "/payments/stk", Fault.reset_after_commit)
    lose_an_order()
    elsewhere = collect(reference="INV-4", amount=7)
    shop.sandbox.advance(60)
    assert client.journal is not None
    with client.journal.handling(elsewhere.model_copy(update={"status": TransactionStatus.SUCCESS})):
        pass  # another process has sent it
    browser = staff("view_payment")
    for reference in ("INV-2", "INV-3", "INV-4", "INV-2", "INV-3"):
        assert f"{reference} is SUCCESS" in act(browser, "read_again", f"COLLECTION:{reference}", confirmed="yes")
    shop.sweep()
    assert [each.reference for each in shop.ended] == ["INV-1", "SAL-1", "INV-2", "INV-3"]


def test_an_action_runs_in_no_transaction(shop: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    in_transaction = list[bool]()

    def note(_event: object) -> None:
        # The test has opened one.
        in_transaction.append(shop.database.in_atomic_block or bool(connection.savepoint_ids))

    for alias in connections:
        monkeypatch.setitem(connections.settings[alias], "ATOMIC_REQUESTS", True)
    with override_settings(MOMOPAY=clients.options() | {"ON_EVENT": note}):
        assert "INV-2 is PENDING" in act(staff("view_payment"), "read_again", "COLLECTION:INV-2", confirmed="yes")
    assert set(in_transaction) == {False}


@pytest.mark.parametrize("action", ["read_again", "refund", "release"])
def test_a_journal_that_fails_is_a_message(shop: Project, action: str) -> None:
    browser, file = staff("view_payment", f"{action}_payment"), Path(shop.database.settings_dict["NAME"])
    assert Payment.objects.using(ALIAS).exists()  # Django's connection stays open
    file.rename(file.with_name("elsewhere"))
    for form in ({}, {"confirmed": "yes", "amount": "10", "by": "x", "reference": "INV-1-R1"}):
        assert "shop.sqlite3 is missing" in act(browser, action, "COLLECTION:INV-1", **form)
    for page in ("COLLECTION_3AINV-1/change/", "activity/"):
        assert "shop.sqlite3 is missing" in browser.get(LIST + page, follow=True).content.decode()
    (logged,) = LogEntry.objects.all()  # only what was confirmed
    assert "shop.sqlite3 is missing" in logged.get_change_message()


def test_a_refund_that_is_sent_twice_pays_once_and_never_too_much(shop: Project) -> None:
    browser = staff("view_payment", "refund_payment")
    assert 'value="INV-1-R1"' in act(browser, "refund", "COLLECTION:INV-1")
    for _ in range(2):
        page = act(browser, "refund", "COLLECTION:INV-1", confirmed="yes", reference="INV-1-R1", amount="60")
        assert "INV-1-R1 is " in page
    again = {"confirmed": "yes", "reference": "INV-1-R2"}
    assert "is left to refund" in act(browser, "refund", "COLLECTION:INV-1", **again, amount="41")
    assert "greater than or equal to 10" in act(browser, "refund", "COLLECTION:INV-1", **again, amount="9")
    assert "a refund is of a collection" in act(browser, "refund", "PAYOUT:SAL-1", **again, amount="10")
    collect(reference="INV-5", amount=20)
    assert "was not paid" in act(browser, "refund", "COLLECTION:INV-5", **again, amount="20")
    paid = [each for each in shop.sandbox.ledger if each.kind == "payout"]
    assert len(paid) == 2  # SAL-1, and the refund


def test_a_release_keeps_the_rules(shop: Project) -> None:
    collect(reference="INV-3", amount=5, phone=phone_for(Outcome.cancelled))
    shop.sandbox.advance(60)
    collect(reference="INV-3", amount=5, phone=phone_for(Outcome.cancelled))
    assert Payment.objects.using(ALIAS).get(pk="COLLECTION:INV-3").status == "PENDING"
    shop.sandbox.advance(60)
    client.transactions.sweep()
    shop.sandbox.fail_next("POST", "/payments/stk", Fault.reset_after_commit)
    lose_an_order()
    assert Payment.objects.using(ALIAS).get(pk="COLLECTION:INV-3").status is None  # of the latest attempt
    browser = staff("view_payment", "release_payment")
    assert 'value="wanjiku"' in act(browser, "release", "COLLECTION:INV-3")
    assert "This field is required" in act(browser, "release", "COLLECTION:INV-3", confirmed="yes", by="")
    assert "release it in" in act(browser, "release", "COLLECTION:INV-3", confirmed="yes", by="Wanjiku")
    assert "was accepted" in act(browser, "release", "COLLECTION:INV-1", confirmed="yes", by="Wanjiku")
