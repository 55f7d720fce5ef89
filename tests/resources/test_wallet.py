"""The service wallet: its balance, and top-ups with their idempotency key."""

from operator import methodcaller

import pytest

import momopay
from core.kit import top_up
from drivers import Drive, Driver, hasty
from models.kit import BALANCE, PHONE, TOP_UP
from momopay.sandbox import Fault, Sandbox
from resources.kit import AT_ONCE, UNRESOLVED, exchange, paid

pytestmark = pytest.mark.usefixtures("no_backoff")


def test_the_balance_is_read(drive: Drive) -> None:
    exchange(drive, BALANCE, lambda client: client.wallet.balance(), "GET", "/v1/wallets/service/balance")


def test_a_top_up_is_sent_as_the_service_states(drive: Drive) -> None:
    key, given = "attempt-2025/7", {"amount": 1, "phone": PHONE, "account_reference": "A", "transaction_desc": "D"}
    body = {"amount": 1, "phone": PHONE, "accountReference": "A", "transactionDesc": "D"}
    call = methodcaller("top_up", **given, idempotency_key=key)
    exchange(drive, TOP_UP, lambda client: call(client.wallet), "POST", "/v1/wallets/service/topups", body, key)
    with pytest.raises(momopay.RequestValidationError, match="idempotency_key"):
        drive()(lambda client: client.wallet.top_up(amount=1, phone=PHONE, idempotency_key=""))


# Against the sandbox, whose ledger is the only witness of what was paid.


@pytest.mark.parametrize(("fault", "_payments"), UNRESOLVED)
def test_a_top_up_with_an_unknown_outcome_is_retried_under_its_key_and_prompts_once(
    sdk: Driver, sandbox: Sandbox, fault: Fault, _payments: int
) -> None:
    sandbox.fail_next("POST", "/wallets/service/topups", fault)
    first = sdk(hasty(top_up))
    sandbox.fail_next("POST", "/wallets/service/topups", fault)
    with pytest.raises(momopay.OutcomeUnknownError) as caught:
        sdk(hasty(lambda client: top_up(client.with_options(max_attempts=1))))
    error = caught.value
    assert (error.reference, str(error.amount), error.phone) == ("INV-42", "100", PHONE)
    key = error.idempotency_key
    again = sdk(lambda client: client.wallet.top_up(amount=100, phone=PHONE, idempotency_key=key))
    sandbox.advance(120)
    ended = sdk.collect(lambda client: client.transactions.wait_all([first, again], schedule=AT_ONCE))
    assert [each.status for each in ended] == ["SUCCESS"] * 2
    assert paid(sandbox, "top_up") == 2
