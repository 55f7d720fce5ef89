"""A project's own tests, with Django's test runner and in the thread that moves the sandbox's clock."""

import re
import subprocess
import sys
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.test import override_settings

from integrations.django.conftest import ALIAS, Project, collect
from momopay import ConfigurationError
from momopay.integrations.django import clients
from momopay.integrations.django.models import Payment, create_tables

SETTINGS = """
SECRET_KEY = "a test's own, which signs nothing"
DATABASES = {{"default": {engine!r}}}
INSTALLED_APPS = ["django.contrib.contenttypes", "django.contrib.auth", "momopay.integrations.django"]
MIDDLEWARE = ["django.middleware.security.SecurityMiddleware", "django.middleware.csrf.CsrfViewMiddleware"]
SECURE_SSL_REDIRECT = True
ROOT_URLCONF = "urls"
USE_TZ, TIME_ZONE = {use_tz}, "Africa/Nairobi"
MOMOPAY = {{"API_KEY": "pk_test_x", "BASE_URL": "http://127.0.0.1:1/v1", "TIMEOUT": 20}}
"""
URLS = """
from django.urls import include, path
urlpatterns = [path("momopay/", include("momopay.integrations.django.urls"))]
"""
TESTS = """
from datetime import timedelta

from django.contrib.auth.models import User
from django.db import transaction
from django.test import LiveServerTestCase, TestCase, TransactionTestCase

from django.utils import timezone

from momopay.integrations.django import client, payment_ended
from momopay.integrations.django.clients import database
from momopay.integrations.django.models import Payment
from momopay.integrations.django.test import SandboxMixin


def on_end(payment, **_):
    User.objects.create(username=payment.reference, is_active=payment.is_paid)


class Checkout(SandboxMixin):
    def setUp(self):
        payment_ended.connect(on_end)
        self.addCleanup(payment_ended.disconnect, on_end)

    def test_pays(self):
        order = client.stk.collect_once(reference="INV-1", amount=100, phone="0712345678")
        assert order.is_new and not User.objects.exists()
        self.sandbox.advance(60)
        assert User.objects.get().is_active
        assert client.journal.get("INV-1").status == "SUCCESS"
        self.sandbox.resend(self.sandbox.callbacks[-1])
        assert [each.status for each in self.sandbox.callbacks] == [200, 200]
        assert User.objects.count() == 1
        assert client.stk.collect_once(reference="INV-1", amount=100, phone="0712345678").is_paid

    def test_hears_of_a_transaction_of_the_shop_and_not_of_the_tests_own(self):
        with self.assertNoLogs("momopay", "WARNING"):
            client.stk.collect_once(reference="INV-1", amount=100, phone="0712345678")
        with self.assertLogs("momopay", "WARNING") as logs, transaction.atomic():
            client.stk.collect_once(reference="INV-2", amount=100, phone="0712345678")
        assert "'INV-2'" in logs.output[0]

    def test_sees_no_order_of_another_test(self):
        self.test_pays()

    def test_is_told_of_a_receiver_that_raises(self):
        payment_ended.connect(fail)
        self.addCleanup(payment_ended.disconnect, fail)
        client.stk.collect_once(reference="INV-2", amount=100, phone="0712345678")
        self.sandbox.advance(60)
        assert self.sandbox.callbacks[0].status >= 500

    def test_has_an_account_of_its_own(self):
        assert self.account.kyc_approved
        self.account.kyc_approved = False

    def test_sees_times_of_its_zone(self):
        client.stk.collect_once(reference="INV-1", amount=100, phone="0712345678")
        payments = Payment.objects.using(database())
        minute, now = timedelta(minutes=1), timezone.now()
        assert now - minute < payments.get().created_at < now + minute
        assert payments.filter(created_at__range=(now - minute, now + minute)).exists()


def fail(**_):
    raise LookupError("no order")


class InATransaction(Checkout, TestCase):
    pass


class WithCommits(Checkout, TransactionTestCase):
    pass


class OnAServer(SandboxMixin, LiveServerTestCase):
    def test_its_server_gets_the_callback(self):
        client.stk.collect_once(reference="INV-1", amount=100, phone="0712345678")
        self.sandbox.advance(60)
        assert self.sandbox.callbacks[0].url.startswith(self.live_server_url)
"""


def make(folder: Path, engine: dict[str, Any], *, use_tz: bool) -> None:
    (folder / "settings.py").write_text(SETTINGS.format(engine=engine, use_tz=use_tz))
    (folder / "urls.py").write_text(URLS)
    (folder / "tests.py").write_text(TESTS)


def run(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Run a command of Django in a project."""
    program = [sys.executable, "-W", "error::ResourceWarning", "-m", "django", *command]
    return subprocess.run(
        [*program, "--settings", "settings", "--pythonpath", "."],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.whole
@pytest.mark.parametrize(
    ("engine", "runs", "use_tz"),
    [
        ("memory", {"tests": 13}, True),
        *(
            (database, {"tests.OnAServer": 1, "tests": 13}, False)
            for database in ("sqlite", "postgresql")  # the first run commits, too
        ),
    ],
    indirect=["engine"],
)
def test_djangos_own_runner_starts_clean_each_time(
    engine: dict[str, Any], runs: dict[str, int], tmp_path: Path, *, use_tz: bool
) -> None:
    make(tmp_path, engine, use_tz=use_tz)
    for label, count in runs.items():
        done = run(tmp_path, "test", "--no-input", label)
        assert (done.returncode, f"Ran {count} test" in done.stderr) == (0, True), done.stderr


def test_a_dump_leaves_the_view_out(project: Project) -> None:
    assert collect().is_new
    assert Payment.objects.using(ALIAS).count() == 1
    dumped = StringIO()
    call_command("dumpdata", "momopay", database=ALIAS, stdout=dumped)
    assert dumped.getvalue().strip() == "[]"


def test_a_database_that_was_made_anew_is_explained_and_reset_by_command(
    project: Project, engine: dict[str, Any]
) -> None:
    assert collect().is_new
    path = Path(engine["NAME"])
    folder = path.with_name("shop.sqlite3-senders")
    project.database.close()
    clients.forget_clients(setting="MOMOPAY")
    path.unlink()
    create_tables(project.database)
    with pytest.raises(ConfigurationError) as caught:
        collect()
    sequence = str(folder / "sequence")
    texts = ("1 payments were begun", sequence, "made anew", f"remove the folder {folder}", "momopay_reset")
    assert [text for text in texts if text not in str(caught.value)] == []
    said = StringIO()
    call_command("momopay_reset", stdout=said)
    assert [each for each in (path, folder) if str(each) not in said.getvalue()] == []
    assert collect().is_new
    call_command("momopay_reset", stdout=said)
    assert collect().is_new  # in the process that knows how far the journal came, too
    clients.forget_clients(setting="MOMOPAY")
    assert collect().is_new is False


@pytest.mark.usefixtures("live_keys")
@pytest.mark.parametrize("engine", ["sqlite", "postgresql"], indirect=True)
def test_payments_of_a_live_key_are_not_reset(project: Project, engine: dict[str, Any]) -> None:
    assert collect().is_new
    name = str(engine["NAME"])
    live = {**clients.options(), "API_KEY": "pk_live_x", "BASE_URL": "https://api.example/v1"}
    with override_settings(MOMOPAY=live), pytest.raises(CommandError, match=f"only with a test key.*{re.escape(name)}"):
        call_command("momopay_reset")
    with project.database.cursor() as cursor:
        cursor.execute("UPDATE momopay_accounts SET mode = 'live'")
    with pytest.raises(CommandError, match="of a live key"):
        call_command("momopay_reset")
    with project.database.cursor() as cursor:
        cursor.execute("UPDATE momopay_accounts SET mode = 'test'")
    assert collect().is_new is False
    call_command("momopay_reset", stdout=StringIO())
    assert collect().is_new


def test_at_a_terminal_the_reset_asks(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    assert collect().is_new
    keyboard = StringIO("n\n")
    monkeypatch.setattr(keyboard, "isatty", lambda: True)
    monkeypatch.setattr("sys.stdin", keyboard)
    with pytest.raises(CommandError, match="nothing was removed"):
        call_command("momopay_reset")
    assert collect().is_new is False
