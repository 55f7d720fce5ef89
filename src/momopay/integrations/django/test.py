"""A sandbox for a project's tests: `SandboxMixin` for Django's own test runner, and what the pytest fixture does.

The journal of each test is a file of its own, so that it does not matter where the test's database is: in memory, in a
file or on a server. Callbacks are handled in the thread of the test, which has the test's transaction.
"""

from __future__ import annotations

import unittest
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, ClassVar, Final
from unittest.mock import patch
from uuid import uuid4

from django.db import connections
from django.test import Client as Browser
from django.test import override_settings
from django.urls import NoReverseMatch, reverse
from typing_extensions import override

from momopay.integrations.django import clients, models

if TYPE_CHECKING:
    from momopay.sandbox import Account, Sandbox

    _Base = unittest.TestCase
else:
    _Base = object

_JOURNAL: Final = "momopay_test"  # the alias of its database
_PAUSE: Final = 0.01  # seconds between two looks at whether the sandbox has delivered everything


class SandboxMixin(_Base):
    """For a TestCase of Django: the app pays in a sandbox, and each test has an account and a journal of its own.

        class CheckoutTest(SandboxMixin, TestCase):
            def test_a_customer_pays(self) -> None:
                client.stk.collect_once(reference="INV-1", amount=100, phone="0712345678")
                self.sandbox.advance(60)  # the customer pays, and the app handles the callback

    It also works with TransactionTestCase and LiveServerTestCase.

    Attributes:
        sandbox: The service. `advance` moves its clock, and delivers the callbacks that are due.
        account: The account of this test; change its balances and switches as you need them.
    """

    sandbox: ClassVar[Sandbox]
    account: Account

    @classmethod
    @override
    def setUpClass(cls) -> None:
        """Start the sandbox."""
        super().setUpClass()
        from momopay.sandbox import Sandbox  # noqa: PLC0415  an extra

        cls.sandbox = Sandbox()
        cls.enterClassContext(cls.sandbox)

    @override
    def run(self, result: unittest.TestResult | None = None) -> unittest.TestResult | None:
        """Run the test. Not in `setUp`, which tests override without calling it."""
        self.sandbox.reset()
        key = f"pk_test_{uuid4().hex}"
        self.account = self.sandbox.account(key)
        with (
            TemporaryDirectory() as folder,
            sandboxed(self.sandbox, key, Path(folder), getattr(self, "live_server_url", None)),
        ):
            return super().run(result)


@contextmanager
def sandboxed(sandbox: Sandbox, api_key: str, folder: Path, live_server: str | None = None) -> Generator[None]:
    """Let the app use the sandbox, with a journal in the folder; callbacks go to a live server if there is one."""

    class Databases(dict[str, Any]):
        """Hides the journal's database: Django forbids a test every one that is listed and that it did not request."""

        def __iter__(self) -> Generator[str]:
            return (alias for alias in super().__iter__() if alias != _JOURNAL)

    known = connections.settings
    sqlite: dict[str, Any] = {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": str(folder / "momopay.sqlite3"),
        "OPTIONS": {},
    }
    settings = {"API_KEY": api_key, "BASE_URL": sandbox.base_url, "BUDGET": None, "DATABASE": _JOURNAL}
    with _callbacks_from(sandbox) as address:
        settings["CALLBACK_BASE_URL"] = None
        with suppress(NoReverseMatch):  # the project has no callback view
            path = reverse("momopay:callback").removesuffix("callback")
            settings["CALLBACK_BASE_URL"] = f"{live_server or address}{path}"
        connections.settings = Databases({**known, _JOURNAL: {**known["default"], **sqlite, "ATOMIC_REQUESTS": False}})
        try:
            with override_settings(MOMOPAY={**clients.options(), **settings}):
                models.create_tables(connections[_JOURNAL])
                yield
        finally:
            connections[_JOURNAL].close()
            del connections[_JOURNAL]
            connections.settings = known


@contextmanager
def _callbacks_from(sandbox: Sandbox) -> Generator[str]:
    """Yield an address for callbacks, which the thread that calls the sandbox's `advance` or `resend` handles."""
    with HTTPServer(("127.0.0.1", 0), _Callback) as server:
        server.timeout = _PAUSE

        def serving(act: Callable[..., None]) -> Callable[..., None]:
            def run(*arguments: Any) -> None:
                with ThreadPoolExecutor(1) as pool:
                    acting = pool.submit(act, *arguments)
                    while not acting.done():
                        server.handle_request()
                acting.result()

            return run

        with (
            patch.object(sandbox, "advance", serving(sandbox.advance)),
            patch.object(sandbox, "resend", serving(sandbox.resend)),
        ):
            yield f"http://127.0.0.1:{server.server_port}"


class _Callback(BaseHTTPRequestHandler):
    """Passes a callback on to the project, through its middleware."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        browser = Browser(enforce_csrf_checks=True, raise_request_exception=False)
        # Over HTTPS, as the service does, so that a project which redirects to HTTPS takes it.
        response = browser.post(self.path, body, content_type=self.headers["Content-Type"], secure=True)
        self.send_response(response.status_code)
        self.send_header("Content-Length", "0")
        self.end_headers()

    @override
    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: the sandbox's `callbacks` has each delivery with its status."""
