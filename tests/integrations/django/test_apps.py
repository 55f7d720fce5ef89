"""``manage.py check``: each wrong setting is named, and nothing is sent."""

from typing import Any

import pytest
from django.core.management import call_command
from django.db import connections
from django.test import override_settings

from integrations.django.conftest import ALIAS, Project
from momopay import ConfigurationError
from momopay.integrations.django import client, conf
from momopay.integrations.django.apps import check_settings


def found(**changes: Any) -> list[str]:
    with override_settings(MOMOPAY={**conf.options(), **changes}):
        return [str(each.id).removeprefix("momopay.") for each in check_settings()]


def test_each_wrong_setting_is_named_and_nothing_is_sent(project: Project) -> None:
    assert found() == []
    for changes, number in (
        ({"API_KY": "pk_test_x"}, "E001"),
        ({"API_KEY": "sk_test_x"}, "E002"),
        ({"TIMEOUT": 0}, "E002"),
        ({"DATABASE": "default"}, "E003"),  # in memory
        ({"DATABASE": "another"}, "E003"),
        ({"CALLBACK_SECRETS": ["short"]}, "E004"),
        ({"CALLBACK_BASE_URL": 5}, "E005"),
        ({"CALLBACK_BASE_URL": "shop.example"}, "E005"),
        ({"CALLBACK_BASE_URL": "http://127.0.0.1:1/elsewhere/"}, "W001"),
    ):
        assert number in found(**changes), changes
    with override_settings(MOMOPAY="pk_test_x"):
        assert [each.id for each in check_settings()] == ["momopay.E001"]
    assert project.sandbox.requests == []


def test_a_project_without_a_key_makes_its_migrations_and_cannot_pay(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MOMOPAY_API_KEY", raising=False)
    with override_settings(MOMOPAY={**conf.options(), "API_KEY": None}):
        assert not any(each.is_serious() for each in check_settings())  # that would end the command
        assert found() == ["W003"]
        call_command("makemigrations", check=True)
        with pytest.raises(ConfigurationError, match="MOMOPAY_API_KEY"):
            client.wallet.balance()
        monkeypatch.setenv("MOMOPAY_API_KEY", "pk_test_x")
        assert found() == []


def test_atomic_requests_over_sqlite_are_warned_of(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(connections.settings[ALIAS], "ATOMIC_REQUESTS", True)
    assert found() == ["W002"]


def test_a_database_in_memory_is_no_error_under_djangos_own_test_runner(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(connections.settings[ALIAS], "NAME", f"file:memorydb_{ALIAS}?mode=memory&cache=shared")
    assert found() == []
