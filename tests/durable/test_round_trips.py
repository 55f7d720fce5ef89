"""How often a call waits for PostgreSQL: a database may be a continent away, at 150 ms for each round trip."""

import json
from collections.abc import Callable, Generator
from functools import partial
from typing import Any

import psycopg
import pytest
from sqlalchemy import make_url

from drivers import Drive, Driver
from momopay import CallbackSigner, Journal, Payment
from momopay.sandbox import Account, Sandbox
from postgresql import PostgresqlServer
from relay import Relay, relaying

pytestmark = pytest.mark.both_databases
SIGNER = CallbackSigner("a secret that nobody guesses")


@pytest.fixture
def relay(postgresql: PostgresqlServer) -> Generator[tuple[Relay, str]]:
    """A relay, and the URL of a database behind it."""
    url = make_url(postgresql.new_database())
    with relaying(url.port or 0) as relay:
        yield relay, url.set(port=relay.port).render_as_string()


@pytest.fixture
def count(relay: tuple[Relay, str]) -> Callable[[Callable[[], object]], int]:
    def counted(work: Callable[[], object]) -> int:
        before = relay[0].round_trips
        work()
        return relay[0].round_trips - before

    return counted


@pytest.fixture
def sdk(drive: Drive, account: Account, sandbox: Sandbox, key: str) -> Driver:
    account.rate_limit = None
    return drive(api_key=key, base_url=sandbox.base_url)


PAYMENT: dict[str, Any] = {"amount": 10, "phone": "0712345678"}
WARM = 7  # calls after which each statement of a connection is prepared


def test_a_payment_and_a_callback_wait_a_few_times(
    sdk: Driver, sandbox: Sandbox, relay: tuple[Relay, str], count: Callable[[Callable[[], object]], int]
) -> None:
    with Journal(relay[1]) as journal:

        def pay(reference: str) -> Any:
            return sdk(lambda client: client.payouts.pay_once(reference=reference, journal=journal, **PAYMENT))

        def collect(reference: str, **more: Any) -> Any:
            return sdk(lambda client: client.stk.collect_once(reference=reference, journal=journal, **PAYMENT, **more))

        paid = [count(partial(pay, f"p-{number}")) for number in range(WARM)]
        collected = [count(partial(collect, f"c-{number}")) for number in range(WARM)]
        # Not the first, which makes the tables.
        assert max(paid[1:]) <= 8
        assert max(collected) <= 8
        assert (paid[-1], collected[-1]) == (6, 7)
        received = list[int]()
        transactions = sdk.client.with_options(journal=journal).transactions
        for number in range(WARM):
            url = SIGNER.url("https://shop.example/momo", reference=f"r-{number}")
            collect(f"r-{number}", callback_url=url)
            sandbox.advance(60)
            body = json.dumps(sandbox.callbacks[-1].payload).encode()

            def receive(_client: Any, url: str = url, body: bytes = body) -> Any:
                return transactions.receive(url, body, handle, signer=SIGNER)

            received.append(count(partial(sdk, receive)))
        assert max(received) <= 7
        assert received[-1] == 6


def handle(_payment: Payment) -> None:
    """Do nothing, so that only what the journal waits for is counted."""


def test_what_is_counted(postgresql: PostgresqlServer, relay: tuple[Relay, str]) -> None:
    """The control: each statement that waits for its answer counts as one, and what is sent together as one."""
    with psycopg.connect(make_url(relay[1]).set(drivername="postgresql").render_as_string()) as connection:
        before = relay[0].round_trips
        for _ in range(3):
            connection.execute("SELECT 1")
        assert relay[0].round_trips - before == 4  # with BEGIN
        with connection.pipeline():
            for _ in range(3):
                connection.execute("SELECT 1")
        assert relay[0].round_trips - before == 5
