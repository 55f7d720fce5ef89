"""``manage.py check`` names each wrong setting and sends nothing; and the fixture for users' tests."""

import re
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from django.conf import settings
from django.core.management import call_command
from django.db.backends.base.base import BaseDatabaseWrapper
from django.test import TestCase, override_settings
from django.urls import include, path

from integrations.django.conftest import Project, collect
from momopay import ConfigurationError, pytest_plugin
from momopay.integrations.django import client, clients
from momopay.integrations.django.apps import check_settings
from momopay.integrations.django.test import sandboxed
from momopay.sandbox import Sandbox


def found(changes: dict[Any, Any]) -> list[str]:
    with override_settings(MOMOPAY=clients.options() | changes):
        return [f"{each.level} {each.msg}" for each in check_settings()]


def test_each_wrong_setting_is_named_and_nothing_is_sent(project: Project) -> None:
    assert found({}) == []
    for changes, text in (
        ({"API_KY": "pk_test_x"}, "40 MOMOPAY: needs a dict of the options .*'api_ky'"),
        ({"API_KEY": "sk_test_x"}, "40 MOMOPAY: api_key must start with"),
        ({"JOURNAL": "sqlite:///payments.db"}, "40 MOMOPAY: .*'journal'"),
        ({5: 6}, "40 MOMOPAY: .*'5'"),
        ({"TIMEOUT": 0}, "40 MOMOPAY: timeout must be"),
        ({"DATABASE": "another"}, r"40 MOMOPAY\[.DATABASE.\]: .*'another'"),
        ({"CALLBACK_SECRETS": ["short"]}, r"40 MOMOPAY\[.CALLBACK_SECRETS.\].*: a signing secret must"),
        ({"CALLBACK_BASE_URL": 5}, r"40 MOMOPAY\[.CALLBACK_BASE_URL.\]: must be"),
        ({"CALLBACK_BASE_URL": "http://127.0.0.1:1/momopay/?shop=1"}, "40 .*no query and no fragment"),
        ({"CALLBACK_BASE_URL": "http://127.0.0.1:1/momopay/#shop"}, "40 .*no query and no fragment"),
        ({"CALLBACK_BASE_URL": "http://127.0.0.1:1/elsewhere/"}, "30 .*no callback view is at http.*/elsewhere/"),
    ):
        (problem,) = found(changes)
        assert re.match(text, problem), problem
    with override_settings(MOMOPAY="pk_test_x"):
        assert len(check_settings()) == 1
    assert project.sandbox.requests == []


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
    settings.ROOT_URLCONF = ()
    with sandboxed(momopay_sandbox, f"pk_test_{uuid4().hex}", tmp_path):
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
