"""Runs a shop of the examples, with an exception after each line of its own functions in turn.

As a program, it takes the shop's name, and for Django perhaps ``careless``: a view in a transaction that rolls back. It
prints the orders whose customers paid for nothing, or that nobody could pay any more.
"""

import itertools
import json
import logging
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager, redirect_stdout, suppress
from functools import partial
from importlib import import_module
from io import StringIO
from pathlib import Path
from typing import Any
from unittest.mock import patch

from momopay import JournalError, RateBudget
from momopay._core import state
from momopay.journal.store import Store
from momopay.sandbox import Sandbox

EXAMPLES = Path(__file__).parents[2] / "examples"
FUNCTIONS = ("pay", "move", "on_end", "paid")
PHONE = "0712345678"


class CrashError(Exception):
    """Raised after a line."""


@contextmanager
def crashing(function: Callable[..., Any], number: int) -> Generator[list[int]]:
    """Raise at this event of a function, counted from 1: before a line of it, or when it returns."""
    seen, raised = itertools.count(1), list[int]()

    def of_lines(frame: Any, event: str, _arg: Any) -> Any:
        if event in {"line", "return"} and next(seen) == number:
            raised.append(frame.f_lineno)
            raise CrashError
        return of_lines

    sys.settrace(lambda frame, _event, _arg: of_lines if frame.f_code is function.__code__ else None)
    try:
        yield raised
    finally:
        sys.settrace(None)


class Shop:
    """The shop of FastAPI and Flask."""

    def __init__(self) -> None:
        self.module: Any = import_module("shop")

    def press(self, order: str) -> None:
        self.module.pay(order, PHONE)

    def sweep(self) -> None:
        self.module.sweep()

    def refund(self, order: str) -> None:
        self.module.refund(order)

    def state(self, order: str) -> str:
        return str(self.module.show(order)["state"])


class DjangoShop(Shop):
    """The shop of Django, with ATOMIC_REQUESTS, and a journal in a database of its own."""

    def __init__(self, *, careless: bool = False) -> None:
        self.module = import_module("django_shop")
        from django.conf import settings
        from django.core.management import call_command
        from django.db import connection, connections
        from django.test import Client as Browser

        name = str(Path("journal.db").absolute())
        connections.settings["journal"] = {**connections.settings["default"], "NAME": name}
        connection.settings_dict["ATOMIC_REQUESTS"] = True
        settings.MOMOPAY["DATABASE"] = "journal"
        settings.ALLOWED_HOSTS.append("testserver")
        if careless:
            del self.module.pay._non_atomic_requests
        for alias in connections:
            call_command("migrate", database=alias, verbosity=0)
        with connection.schema_editor() as editor:
            editor.create_model(self.module.Order)
        self._browser, self._call = Browser(), call_command

    def press(self, order: str) -> None:
        self._browser.post("/pay", {"order": order, "phone": PHONE})

    def sweep(self) -> None:
        self._call("momopay_sweep")

    def refund(self, order: str) -> None:
        self.module.client.payouts.refund(of=order)

    def state(self, order: str) -> str:
        found = self.module.Order.objects.filter(id=order).first()
        return "there is no such order" if found is None else str(found.state)


def main(name: str, *, careless: bool) -> None:
    sys.path.insert(0, str(EXAMPLES))
    with (
        tempfile.TemporaryDirectory() as folder,
        Sandbox() as sandbox,
        patch.object(state, "RateBudget", partial(RateBudget, window=0.1)),
    ):
        os.chdir(folder)
        key = "pk_test_crashes"
        sandbox.account(key).rate_limit = None
        os.environ |= {"MOMOPAY_API_KEY": key, "MOMOPAY_BASE_URL": sandbox.base_url, "SHOP_URL": "http://127.0.0.1:1"}
        os.environ["MOMOPAY_CALLBACK_SECRET"] = "only for this test, and long"
        shop = DjangoShop(careless=careless) if name == "django_shop" else Shop()
        with redirect_stdout(StringIO()):  # the shops print each change
            found: dict[str, Any] = dict(run(shop, sandbox, FUNCTIONS[:1] if careless else FUNCTIONS))
            found["without a journal"] = without_a_journal(shop, sandbox)
        os.chdir("/")
    found |= {"crashes": sum(CRASHED.values()), "functions": sorted(CRASHED)}
    sys.stdout.write(json.dumps(found))


def without_a_journal(shop: Shop, sandbox: Sandbox) -> list[str]:
    """Return the states of an order whose customer pressed while the journal was away, and once it was back."""
    logger, states = logging.getLogger("shop"), list[str]()
    away = patch.object(Store, "open_call", side_effect=JournalError("the database is away"))
    with away, patch.object(logger, "exception") as logged, suppress(CrashError):
        shop.press("away")
        states.append(shop.state("away"))
    states.append(f"{logged.call_count} logged")
    shop.press("away")
    sandbox.advance(120)
    shop.sweep()
    return [*states, shop.state("away")]


CRASHED = Counter[str]()


def run(shop: Shop, sandbox: Sandbox, functions: tuple[str, ...]) -> Generator[tuple[str, list[str]]]:
    """Crash after each line, then go on as customers, and cron, do. Give what is wrong then."""

    def moved(kind: str, order: str) -> int:
        return sum(each.kind == kind and each.reference.startswith(order) for each in sandbox.ledger)

    def settle() -> None:
        sandbox.advance(120)
        shop.sweep()

    lost, twice, unpaid, unrefunded = (list[str]() for _ in range(4))
    for function in functions:
        for number in itertools.count(1):
            order, code = f"{number:03}{function}", getattr(shop.module, function)
            with crashing(code, number) as raised, suppress(CrashError):
                shop.press(order)
                settle()
                shop.refund(order)
                settle()
            if not raised:
                break
            CRASHED[function] += 1
            where = f"{function}:{raised[0]}"
            settle()
            shop.sweep()
            if moved("stk", order) and shop.state(order) not in {"PAID", "REFUNDED"}:
                lost.append(f"{where} {shop.state(order)}")
            shop.press(order)  # the customer tries again
            settle()
            if moved("stk", order) != 1:
                twice.append(where)
            if shop.state(order) not in {"PAID", "REFUNDED"}:
                unpaid.append(where)
            with suppress(Exception):
                shop.refund(order)
            settle()
            if (moved("payout", order), shop.state(order)) != (1, "REFUNDED"):
                unrefunded.append(where)
    yield from (("lost", lost), ("twice", twice), ("unpaid", unpaid), ("unrefunded", unrefunded))


if __name__ == "__main__":
    main(sys.argv[1], careless="careless" in sys.argv)
