"""What the page of a checkout polls: how a payment stands, in each framework, without a request to the service."""

from collections.abc import Callable
from typing import Any

import pytest

from durable.receiving import SIGNER
from in_turn import in_turn
from integrations.kit import WebShop
from journal.constants import ACCEPTED, COLLECTION, NOT_SENT, REFUSED, UNKNOWN
from journal.database_kit import execute, store_of
from journal.kit import begin, lease_of, put
from journal.records import report
from momopay import Client, ConfigurationError
from momopay.integrations import django, fastapi, flask


def ask(shop: WebShop, reference: str) -> dict[str, Any]:
    query = SIGNER.status_url("/momo", reference=reference).partition("?")[2]
    response = shop.send("GET", b"", query, "status", signer=SIGNER)
    assert (response.status_code, response.headers["cache-control"]) == (200, "no-store")
    assert response.headers["content-type"].startswith("application/json")
    document: dict[str, Any] = response.json()
    assert shop.happened == [], "no request to the service"
    return document


def test_how_a_payment_stands(shop: WebShop) -> None:
    journal = shop.client.journal
    states = {"ACCEPTED": "waiting", "REFUSED": "not_paid", "NOT_SENT": "not_paid", "UNKNOWN": "unknown"}
    for state in (ACCEPTED, REFUSED, NOT_SENT, UNKNOWN):
        put(journal, f"o-{state}", state, COLLECTION, amount=10)
        expected = {"reference": f"o-{state}", "state": states[state], "amount": 10, "receipt": None}
        assert ask(shop, f"o-{state}") == expected
    with lease_of(journal) as lease:
        begin(journal, lease, "o-now", COLLECTION)
        assert ask(shop, "o-now")["state"] == "waiting"
    assert ask(shop, "o-none") == {"reference": "o-none", "state": "unknown", "amount": None, "receipt": None}
    ends = {"PENDING": "waiting", "PROCESSING": "waiting", "WEIRD": "waiting", "SUCCESS": "paid"}
    for status, expected_state in (
        ends | dict.fromkeys(("FAILED", "CANCELLED", "EXPIRED", "REVERSED"), "not_paid")
    ).items():
        put(journal, f"o-{status}", ACCEPTED, COLLECTION, transaction_id=status, status=status)
        assert ask(shop, f"o-{status}")["state"] == expected_state, status
    put(journal, "o-SUCCESS", ACCEPTED, transaction_id="payout")  # a payout of the same name
    entry = journal.get("o-SUCCESS", COLLECTION)
    store_of(journal).record(entry, report("SUCCESS", "SUCCESS", receipt="QK12"))
    execute(journal, "UPDATE momopay_payments SET amount = '10.50' WHERE kind = 'COLLECTION'")
    assert ask(shop, "o-SUCCESS") == {"reference": "o-SUCCESS", "state": "paid", "amount": 10.5, "receipt": "QK12"}


def test_a_token_of_another_purpose_and_another_method_show_nothing(shop: WebShop) -> None:
    callback = SIGNER.url("https://shop.example/momo", reference="o").partition("?")[2]
    status = SIGNER.status_url("https://shop.example/momo", reference="o").partition("?")[2]
    for query in ("", callback, status[:-1], f"{status}&{status}"):
        response = shop.send("GET", b"", query, "status", signer=SIGNER)
        assert (response.status_code, response.text) == (403, "Forbidden")
        assert response.headers["cache-control"] == "no-store"
    for method in ("POST", "PUT", "PATCH", "DELETE"):
        assert shop.send(method, b"", status, "status", signer=SIGNER).status_code == 405
    execute(shop.client.journal, "DROP TABLE momopay_transactions")
    assert shop.send("GET", b"", status, "status", signer=SIGNER).status_code == 503
    assert shop.happened == []


@in_turn("module", [fastapi, flask, django])
def test_without_a_journal_or_a_signer_it_is_refused(module: Any) -> None:
    make: Callable[..., Any] = module.status_endpoint
    client = Client("pk_test_1", base_url="https://api.example/v1")
    with pytest.raises(ConfigurationError, match="with a journal"):
        make(client=client, signer=SIGNER)
    with pytest.raises(ConfigurationError, match="CallbackSigner"):
        make(client=client.with_options(journal="sqlite:///never.db"), signer=None)
