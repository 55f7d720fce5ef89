"""Acceptances and reads that name another transaction, amount, phone or reference."""

from typing import Any

import pytest

from momopay.sandbox import Fault, MovementKind, Sandbox
from sandbox.kit import KEY, Service, data, transaction_id

NAMED = {
    Fault.other_transaction: {"transactionId", "transaction_id"},
    Fault.other_amount: {"amount"},
    Fault.other_phone: {"phone", "phone_number"},
    Fault.other_reference: {"reference", "accountReference", "external_reference"},
}


def difference(shown: dict[str, Any], true: dict[str, Any]) -> set[str]:
    return {name for name in shown if name in true and shown[name] != true[name]}


@pytest.mark.parametrize("fault", NAMED)
def test_an_acceptance_that_names_another_was_executed_as_asked(
    service: Service, sandbox: Sandbox, fault: Fault
) -> None:
    earlier = transaction_id(service.payout(reference="SAL-1"))
    sandbox.fail_next("POST", "/b2c/payouts", fault)
    shown = data(service.payout())
    made = [each for each in sandbox.ledger if each.kind is MovementKind.payout][-1]
    true = {"transactionId": made.transaction_id, "amount": 250.5, "phone": made.phone, "reference": "SAL-7"}
    assert made.reference == "SAL-7"
    assert len(difference(shown, true)) == 1
    assert difference(shown, true) <= NAMED[fault]
    if fault is Fault.other_transaction:
        assert shown["transactionId"] == earlier


@pytest.mark.parametrize("naming", ["camelCase", "snake_case"])
@pytest.mark.parametrize("fault", NAMED)
def test_so_may_a_read(service: Service, sandbox: Sandbox, fault: Fault, naming: Any) -> None:
    sandbox.account(KEY).switches.naming = naming
    initiated = service.payout()
    true = service.read(initiated)
    sandbox.fail_next("GET", "/transactions/{id}", fault)
    changed = difference(service.read(initiated), true)
    assert len(changed) == 1
    assert changed <= NAMED[fault]
    assert service.read(initiated) == true


def test_the_only_transaction_of_an_account_gets_an_id_that_nobody_has(service: Service, sandbox: Sandbox) -> None:
    sandbox.fail_next("POST", "/b2c/payouts", Fault.other_transaction)
    assert transaction_id(service.payout()) != sandbox.ledger[0].transaction_id


def test_what_shows_no_transaction_stays_as_it_is(service: Service, sandbox: Sandbox) -> None:
    for _ in range(2):
        sandbox.fail_next("POST", "/b2c/payouts", Fault.other_amount)
        assert service.payout(amount=1).status_code == 400
    sandbox.fail_next("GET", "/transactions", Fault.other_amount)
    assert data(service.api.get("/transactions"))["items"] == []
