"""``manage.py check`` names each wrong setting and sends nothing; and the fixture for users' tests."""

import re
from pathlib import Path
from typing import Any, NoReturn
from uuid import uuid4

import pytest
from django.conf import settings
from django.core.checks import run_checks
from django.core.management import call_command
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.test import Client as Browser
from django.test import TestCase, override_settings
from django.urls import include, path

from integrations.django.conftest import Project, collect
from momopay import ConfigurationError, pytest_plugin
from momopay.integrations.django import callback_endpoint, client, clients
from momopay.integrations.django.apps import check_settings, check_transactions
from momopay.integrations.django.test import sandboxed
from momopay.sandbox import Sandbox


def found(changes: dict[Any, Any]) -> list[str]:
    with override_settings(MOMOPAY=clients.options() | changes):
        return [f"{each.level} {each.msg}" for each in check_settings()]


def test_each_wrong_setting_is_named_and_nothing_is_sent(project: Project) -> None:
    assert found({}) == []
    for changes, text in (
        ({"API_KY": "pk_test_x"}, "40 MOMOPAY: there is no 'API_KY' in MOMOPAY, which takes API_KEY, .*, VERIFY"),
        ({"api_key": "pk_test_x"}, "40 MOMOPAY: there is no 'api_key'"),
        ({"API_KEY": "sk_test_x"}, "40 MOMOPAY: api_key must start with"),
        ({"JOURNAL": "sqlite:///payments.db"}, "40 MOMOPAY: there is no 'JOURNAL'"),
        ({5: 6}, "40 MOMOPAY: there is no 5 in"),
        ({"TIMEOUT": 0}, "40 MOMOPAY: timeout must be"),
        ({"DATABASE": "another"}, r"40 MOMOPAY\[.DATABASE.\]: .*'another'"),
        ({"CALLBACK_SECRETS": ["short"]}, r"40 MOMOPAY\[.CALLBACK_SECRETS.\].*: a signing secret must"),
        ({"LINK": 5}, r"40 MOMOPAY\[.LINK.\]: must be a function"),
        ({"LINK": "shop.nowhere"}, r"40 MOMOPAY\[.LINK.\]: No module named"),
        ({"CALLBACK_BASE_URL": 5}, r"40 MOMOPAY\[.CALLBACK_BASE_URL.\]: must be"),
        ({"CALLBACK_BASE_URL": "http://127.0.0.1:1/momopay/?shop=1"}, "40 .*no query and no fragment"),
        ({"CALLBACK_BASE_URL": "http://127.0.0.1:1/momopay/#shop"}, "40 .*no query and no fragment"),
        ({"CALLBACK_BASE_URL": "http://127.0.0.1:1/elsewhere/"}, "30 .*no callback view is at http.*/elsewhere/"),
    ):
        (problem,) = found(changes)
        assert re.match(text, problem), problem
    for wrong in ("pk_test_x", None, [("API_KEY", "pk_test_x")]):
        with override_settings(MOMOPAY=wrong):
            assert [each.msg[:42] for each in check_settings()] == ["MOMOPAY: the setting MOMOPAY must be a dic"]
    with override_settings(MOMOPAY={"API_KY": "pk_test_x"}), pytest.raises(ConfigurationError, match="'API_KY'"):
        client.wallet.balance()
    assert project.sandbox.requests == []


def test_a_project_on_mysql_is_told_of_a_file_beside_it(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(project.database, "vendor", "mysql")
    (problem,) = found({})
    for text in ('MOMOPAY["DATABASE"]: mysql cannot', "django.db.backends.sqlite3", "migrate --database momopay"):
        assert text in problem


def test_the_check_warns_of_views_in_transactions(monkeypatch: pytest.MonkeyPatch) -> None:
    assert check_transactions() == []
    monkeypatch.setitem(connections.settings["default"], "ATOMIC_REQUESTS", True)
    (warning,) = check_transactions()
    assert (warning.id, warning.level, warning.msg[:27]) == ("momopay.W003", 30, "ATOMIC_REQUESTS of default:")
    assert "momopay.W003" in {each.id for each in run_checks()}


def wall(get_response: Any) -> Any:
    """Ask every stranger for a login, whatever the view."""

    def answer(request: HttpRequest) -> Any:
        return HttpResponseRedirect("/login/") if request.method == "POST" else get_response(request)

    return answer


def other_view(_request: HttpRequest) -> HttpResponse:
    return HttpResponse(status=503)


def closed(_get_response: Any) -> Any:
    return other_view


def broken(_get_response: Any) -> Any:
    def fail(_request: HttpRequest) -> NoReturn:
        raise LookupError("no such table")

    return fail


LOGIN = (
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.auth.middleware.LoginRequiredMiddleware",
)


COMMON, SECURITY = (f"django.middleware.{name}Middleware" for name in ("common.Common", "security.Security"))


@pytest.mark.parametrize(
    ("middleware", "changes", "answer"),
    [
        (LOGIN, {}, None),
        ((*LOGIN, f"{__name__}.wall"), {}, "wall answers 302, a redirect to /login/, and not .*/callback$"),
        ((f"{__name__}.closed", *LOGIN), {}, f"{__name__}.closed answers 503, and not"),
        ((f"{__name__}.broken",), {}, None),  # in `manage.py migrate`, tables may be missing
        ((f"{__name__}.broken",), {"DEBUG_PROPAGATE_EXCEPTIONS": True}, None),
        (("shop.nowhere",), {}, None),
        ((COMMON,), {"URL": "http://127.0.0.1:8000/momopay/"}, None),  # in test runs
        ((COMMON,), {"ALLOWED_HOSTS": ["x.example"]}, "CommonMiddleware answers 400"),
        ((SECURITY,), {"SECURE_SSL_REDIRECT": True}, "SecurityMiddleware answers 301"),
        ((), {}, None),
    ],
)
def test_the_check_names_the_middleware_that_answers_callbacks(
    project: Project, middleware: tuple[str, ...], changes: Any, answer: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    url = {"CALLBACK_BASE_URL": changes.get("URL", "http://shop.example/momopay/")}
    changed = {"MOMOPAY": clients.options() | url, "ALLOWED_HOSTS": ["shop.example"], **changes}
    with override_settings(MIDDLEWARE=list(middleware), **changed):
        problems = check_settings()
        assert list(middleware) == settings.MIDDLEWARE
    assert (bool(problems), caplog.messages, project.sandbox.requests) == (answer is not None, [], [])
    for problem in problems:
        assert (problem.id, problem.is_serious()) == ("momopay.W002", False)
        assert answer is not None
        assert re.search(answer, problem.msg)


@override_settings(MIDDLEWARE=LOGIN, LOGIN_URL="/login/")
def test_a_project_that_asks_everybody_for_a_login_gets_callbacks(project: Project) -> None:
    """Control: another view of the project is walled off."""
    settings.ROOT_URLCONF = (*settings.ROOT_URLCONF, path("other", other_view))
    assert Browser().get("/other").status_code == 302
    assert collect().is_new
    project.sandbox.advance(60)
    assert project.deliver() == 200
    view = callback_endpoint(lambda _payment: None, client=client)
    assert view.login_required is False  # type: ignore[attr-defined]  # pyright: ignore[reportFunctionMemberAccess]


def test_without_a_key_migrations_are_made_and_nobody_paid(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MOMOPAY_API_KEY", raising=False)
    with override_settings(MOMOPAY={**clients.options(), "API_KEY": None}):
        (warning,) = check_settings()
        assert not warning.is_serious()  # that would end the command
        call_command("makemigrations", check=True)
        with pytest.raises(ConfigurationError, match="MOMOPAY_API_KEY"):
            client.wallet.balance()
        monkeypatch.setenv("MOMOPAY_API_KEY", "pk_test_x")
        assert found({}) == []


momopay_api_key = pytest_plugin.momopay_api_key
momopay_django = pytest_plugin.momopay_django


@pytest.fixture
def momopay_sandbox(sandbox: Sandbox) -> Sandbox:
    """The sandbox of these tests, which do not load the plugin."""
    return sandbox


@pytest.fixture(autouse=True)
def urls() -> None:
    settings.ROOT_URLCONF = (path("momopay/", include("momopay.integrations.django.urls")),)


def test_a_project_without_callback_view_is_tested_too(momopay_sandbox: Sandbox, tmp_path: Path) -> None:
    key = f"pk_test_{uuid4().hex}"
    with override_settings(ROOT_URLCONF=()), sandboxed(momopay_sandbox, key, tmp_path):
        assert collect().is_new
        momopay_sandbox.advance(60)
        assert (momopay_sandbox.callbacks, bool(collect().is_paid)) == ([], True)


@pytest.mark.parametrize("forbids", [False, True])
def test_each_test_has_its_own_journal(momopay_django: Sandbox, monkeypatch: pytest.MonkeyPatch, forbids: bool) -> None:
    if forbids:  # databases that the test has not named, as Django's TestCase and the fixture `db` do
        django: Any = TestCase
        monkeypatch.setattr(BaseDatabaseWrapper, "ensure_connection", django.ensure_connection_patch_method())
    assert collect().is_new
    momopay_django.advance(60)
    assert [each.status for each in momopay_django.callbacks] == [200]  # and not by a sweep
    assert collect().is_paid
    assert [request.path for request in momopay_django.requests].count("/payments/stk") == 1
