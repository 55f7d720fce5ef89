"""Plain HTTP clients for the sandbox that all tests share."""

from collections.abc import Iterator

import httpx
import pytest
from chromium import Tab

from momopay.sandbox import Account, Sandbox
from sandbox.browser import Page
from sandbox.kit import KEY, Routes, client


@pytest.fixture
def sandbox(sandbox: Sandbox) -> Sandbox:
    sandbox.account(KEY).rate_limit = None
    return sandbox


@pytest.fixture
def account(sandbox: Sandbox) -> Account:
    return sandbox.account(KEY)


@pytest.fixture(scope="module")
def shared_api(still_sandbox: Sandbox) -> Iterator[httpx.Client]:
    with client(still_sandbox.base_url) as api:
        yield api


@pytest.fixture(scope="module")
def shared_control(still_sandbox: Sandbox) -> Iterator[httpx.Client]:
    with client(still_sandbox.url) as control:
        yield control


@pytest.fixture
def api(sandbox: Sandbox, shared_api: httpx.Client) -> httpx.Client:
    """A client of the service, after the reset that `sandbox` makes."""
    return shared_api


@pytest.fixture
def control(sandbox: Sandbox, shared_control: httpx.Client) -> httpx.Client:
    """A client of the pages and the control routes."""
    return shared_control


@pytest.fixture
def service(api: httpx.Client) -> Routes:
    return Routes(api)


@pytest.fixture
def page(tab: Tab, sandbox: Sandbox) -> Page:
    """The sandbox's page, open in a browser."""
    page = Page(tab)
    page.show(width=1280)
    tab.open(f"{sandbox.url}/")
    page.until(lambda: page.text("#link") == "connected" and page.text("#clock") != "--:--:--")
    return page
