"""STK collections, from the call to the request and back to the record."""

from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from core.kit import initiate_stk
from drivers import LOOPBACK, Drive, Driver
from in_turn import in_turn
from models.kit import CHANNEL, ID, PAYBILL, PAYOUT, PHONE, STK, parse
from momopay import ConfigurationError, Journal, StkTempBannedError
from momopay.sandbox import Sandbox
from resources.kit import Recorder, exchange, pushed

PATH = "/v1/payments/stk"
HOOK = "https://shop.example/momo?order=42"


def test_a_prompt_is_sent_as_the_service_states(drive: Drive) -> None:
    body = {"amount": Decimal("100.5"), "phone": PHONE, "accountReference": "INV-42", "transactionDesc": "Order 42"}
    body |= {"callbackUrl": HOOK, "channelId": CHANNEL, "credential_id": ID}

    def prompt(client: Any) -> Any:
        return client.stk.initiate(
            amount=Decimal("100.50"),
            phone="0712 345 678",
            account_reference="INV-42",
            transaction_desc="Order 42",
            callback_url=HOOK,
            channel_id=parse(PAYBILL.kind, PAYBILL.camel),
            credential_id=UUID(ID),
        )

    exchange(drive, STK, prompt, "POST", PATH, body)
    least = {"amount": 1, "phone": PHONE}
    exchange(drive, STK, lambda client: client.stk.initiate(**least), "POST", PATH, least)


def test_the_sandbox_may_call_back_to_loopback(drive: Drive) -> None:
    service = Recorder(STK.camel)
    driver = drive(transport=service.transport, base_url=LOOPBACK)
    local = {"amount": 1, "phone": PHONE, "callback_url": "http://localhost:8000/momo"}
    driver(lambda client: client.stk.initiate(**local))
    assert b"http://localhost:8000/momo" in service.requests[0].content
    service.answers = [PAYOUT.camel]
    driver(lambda client: client.payouts.initiate(**local | {"amount": 10}, reference="r"))
    assert b"http://localhost:8000/momo" in service.requests[1].content
    with pytest.raises(ConfigurationError, match="journal"):  # and not for the address
        driver(lambda client: client.stk.collect_once(reference="r", **local))


def test_a_pause_that_the_service_ordered_refuses_the_next_prompt_here(sdk: Driver, sandbox: Sandbox, key: str) -> None:
    sandbox.ban_stk(key)
    for _ in range(2):
        with pytest.raises(StkTempBannedError):
            sdk(initiate_stk)
    assert pushed(sandbox, "/payments/stk") == 1


@in_turn(("given", "sent"), [(None, "ORDER-1"), ("", "ORDER-1"), ("METER-7", "METER-7")])
def test_an_order_is_prompted_for_by_its_account_reference(
    sdk: Driver, sandbox: Sandbox, tmp_path: Path, given: str | None, sent: str
) -> None:
    with Journal(f"sqlite:///{tmp_path / f'{sdk.client_kind}-{given}.db'}") as journal:
        order = {"reference": "ORDER-1", "amount": 5, "phone": PHONE, "journal": journal}
        paid = sdk(lambda client: client.stk.collect_once(**order, account_reference=given))
        assert paid.reference == "ORDER-1"
        assert sandbox.ledger[-1].reference == sent
        assert getattr(journal.get("ORDER-1"), "wire_reference", None) == sent
