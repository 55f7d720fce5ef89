"""platform/shops.py, with fifty shops on a server that has connections for thirty clients."""

import time
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import psycopg
import pytest
from sqlalchemy import make_url

from examples.runs import run
from momopay import Client, Journal, Payment
from momopay.sandbox import Sandbox
from patience import beside
from postgresql import PostgresqlServer, running_postgresql

SHOPS = 50
ACCOUNTS = 120


@pytest.fixture(scope="module")
def small_server() -> Generator[PostgresqlServer]:
    with running_postgresql(connections=30) as server:
        yield server


@pytest.fixture
def most_connections(small_server: PostgresqlServer) -> Generator[Callable[[], int]]:
    """Return what gives the most connections of clients that there were at the same time."""
    seen, is_over = [0], list[bool]()

    def watch() -> None:
        while not is_over:
            seen.append(len(small_server.backends()))
            time.sleep(0.2)

    with beside(watch):
        try:
            yield lambda: max(seen)
        finally:
            is_over.append(True)


def test_fifty_shops_share_a_few_connections(
    small_server: PostgresqlServer, most_connections: Callable[[], int]
) -> None:
    url = small_server.new_database()
    shown = run("platform/shops.py", "--shops", str(SHOPS), "--journal", url).stdout
    assert f"{SHOPS + 1} shops sold, KES {sum(100 + number for number in range(SHOPS + 1))}" in shown
    assert 1 < most_connections() <= 15
    with psycopg.connect(make_url(url).set(drivername="postgresql").render_as_string()) as connection:
        counted = "SELECT account, count(*) FROM momopay.momopay_payments GROUP BY account"
        accounts = connection.execute(counted).fetchall()
    assert dict(accounts) == {f"shop-{number}": 1 for number in range(SHOPS + 1)}


def test_it_runs_without_a_server() -> None:
    assert "4 shops sold, KES 406" in run("platform/shops.py", "--shops", "3").stdout


def test_many_accounts_in_one_process(
    small_server: PostgresqlServer, most_connections: Callable[[], int], examples_sandbox: Sandbox
) -> None:
    """The control: connections of their own would be refused by the server."""
    url = small_server.new_database()
    journals = [Journal(url, account=f"shop {number}") for number in range(ACCOUNTS)]
    with ExitStack() as stack:
        for journal in journals:
            stack.callback(journal.close)
        clients = list[Client]()
        for number in range(5):  # of five tenants
            key = f"pk_test_platform{number}"
            examples_sandbox.account(key).rate_limit = None
            clients.append(stack.enter_context(Client(key, base_url=examples_sandbox.base_url, budget=None)))

        def pay(number: int) -> Payment:
            payouts = clients[number % 5].payouts
            return payouts.pay_once(reference=f"SAL-{number}", amount=10, phone="0712345678", journal=journals[number])

        with ThreadPoolExecutor(25) as threads:
            paid = list(threads.map(pay, range(ACCOUNTS)))
        assert len({payment.transaction_id for payment in paid}) == ACCOUNTS
        assert 1 < most_connections() <= 15
