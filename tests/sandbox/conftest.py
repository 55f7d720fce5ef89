"""Plain HTTP clients for the sandbox that all tests share."""

from collections.abc import Iterator

import httpx
import pytest

from momopay.sandbox import Sandbox
from sandbox.browser import Page, new_page
from sandbox.kit import KEY, Routes, client


@pytest.fixture
def sandbox(sandbox: Sandbox) -> Sandbox:
    sandbox.account(KEY).rate_limit = None
    return sandbox


@pytest.fixture(scope="module")
def shared_api(still_sandbox: Sandbox) -> Iterator[httpx.Client]:
    with client(still_sandbox.base_url) as api:
        yield api


@pytest.fixture(scope="module")
def shared_control(still_sandbox: Sandbox) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=still_sandbox.url, timeout=30, trust_env=False, verify=False) as control:
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


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    page = new_page(tmp_path_factory.mktemp("chromium"))
    yield page
    page.driver.quit()


@pytest.fixture
def page(browser: Page, sandbox: Sandbox) -> Page:
    """The sandbox's page, open in a browser."""
    browser.driver.get("about:blank")
    browser.driver.get_log("browser")  # empties it of what the page of an earlier test left
    browser.show(width=1280)
    browser.driver.get(f"{sandbox.url}/")
    browser.until(lambda: browser.text("#link") == "connected" and browser.text("#clock") != "--:--:--")
    return browser
