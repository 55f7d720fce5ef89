"""The fixture for users' tests of a project with the app."""

from typing import Any

import pytest
from django.db.backends.base.base import BaseDatabaseWrapper
from django.test import TestCase

from integrations.django.conftest import collect
from momopay import pytest_plugin
from momopay.sandbox import Sandbox

momopay_api_key = pytest_plugin.momopay_api_key
momopay_django = pytest_plugin.momopay_django


@pytest.fixture
def momopay_sandbox(sandbox: Sandbox) -> Sandbox:
    """The sandbox of these tests, which do not load the plugin."""
    return sandbox


@pytest.mark.parametrize("forbids", [False, True])
def test_each_test_has_its_own_journal(momopay_django: Sandbox, monkeypatch: pytest.MonkeyPatch, forbids: bool) -> None:
    if forbids:  # databases that the test has not named, as Django's TestCase and the fixture `db` do
        django: Any = TestCase
        monkeypatch.setattr(BaseDatabaseWrapper, "ensure_connection", django.ensure_connection_patch_method())
    assert collect().is_new
    momopay_django.advance(60)
    assert collect().is_paid
    assert [request.path for request in momopay_django.requests].count("/payments/stk") == 1
