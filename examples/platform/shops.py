"""A platform: many shops, each with an account of its own at the service, in one process and one database.

    python examples/platform/shops.py [--shops 50] [--journal postgresql+psycopg://...]

All journals of a process that have one URL share at most 15 connections, so the number of shops does not count. No shop
waits for another in the database. Each has its own key, and so its own budget of requests.

Without --journal or MOMOPAY_JOURNAL, the journal is a SQLite file in a temporary folder.
"""

from __future__ import annotations

import argparse
import logging
import os
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Self

from momopay import Client, Journal, MomoPayError, Payment
from momopay.sandbox import Sandbox
from momopay.types import SweepReport

SIDE_BY_SIDE = 8  # sweeps at the same time; each mostly waits for the service
logger = logging.getLogger("platform")


class Platform:
    """The shops of a platform. Any thread may use it."""

    def __init__(self, journal: str, handle: Callable[[str, Payment], None]) -> None:
        """`handle` gets each end once: the shop's name and the payment."""
        self._journal = journal
        self._handle = handle
        self._shops: dict[str, Client] = {}
        self._context = ExitStack()
        self._sweeps = self._context.enter_context(ThreadPoolExecutor(SIDE_BY_SIDE))

    def add(self, shop: str, api_key: str, base_url: str) -> Client:
        """Add a shop, also while the others trade. Its name is its account in the journal, so it must stay the same."""
        journal = self._context.enter_context(Journal(self._journal, account=shop))
        client = self._context.enter_context(Client(api_key, base_url=base_url, journal=journal))
        self._shops[shop] = client
        return client

    def __getitem__(self, shop: str) -> Client:
        return self._shops[shop]

    def sweep(self) -> Iterator[tuple[str, SweepReport]]:
        """Follow the open payments of all shops, side by side. What fails in one shop does not stop the others."""
        running = {
            self._sweeps.submit(client.transactions.sweep, handler=partial(self._handle, shop)): shop
            for shop, client in list(self._shops.items())
        }
        for done in as_completed(running):
            try:
                yield running[done], done.result()
            except MomoPayError as error:
                logger.warning("the sweep of %s: %s", running[done], error)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._context.close()


def main() -> None:
    """Let every shop sell on the sandbox, and add one while they do."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--shops", type=int, default=50, help="how many (default 50)")
    parser.add_argument("--journal", default=os.environ.get("MOMOPAY_JOURNAL"), help="the URL of the journal")
    options = parser.parse_args()
    paid: list[tuple[str, Payment]] = []

    def handle(shop: str, payment: Payment) -> None:
        paid.append((shop, payment))

    with tempfile.TemporaryDirectory() as folder, Sandbox(speed=50) as sandbox:
        url = options.journal or f"sqlite:///{Path(folder) / 'payments.db'}"
        with Platform(url, handle) as platform, ThreadPoolExecutor(SIDE_BY_SIDE) as cashiers:

            def open_and_sell(number: int) -> None:
                platform.add(f"shop-{number}", f"pk_test_shop{number}", sandbox.base_url)
                sell(number)

            def sell(number: int) -> None:
                # Shops need not agree about references: each has its own.
                platform[f"shop-{number}"].stk.collect_once(reference="INV-1", amount=100 + number, phone="0712345678")

            list(cashiers.map(open_and_sell, range(options.shops)))
            newcomer = cashiers.submit(open_and_sell, options.shops)
            while len(paid) < options.shops + 1:
                for shop, report in platform.sweep():
                    if report.failed:
                        print(f"{shop}: {report.failed} ends could not be handled")
            newcomer.result()
        for shop, payment in sorted(paid, key=lambda end: end[1].amount)[-3:]:
            print(f"{shop}: {payment.reference} {payment.status}, KES {payment.amount}")
        print(f"{len(paid)} shops sold, KES {sum(payment.amount for _, payment in paid)}; none waited for another")


if __name__ == "__main__":
    main()
