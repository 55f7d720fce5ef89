"""Each adapter on its own server: what is genuine is handled once, what is not costs the service no request."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

import momopay
from integrations.apps import APPS
from integrations.shop import Shop
from journal.kit import put
from momopay import (
    CallbackMismatchError,
    CallbackSigner,
    ForgedCallbackError,
    InvalidCallbackError,
    Journal,
    JournalState,
    parse_callback,
)
from momopay.sandbox import Fault, Outcome, Sandbox, phone_for

PHONE = "254712345678"
TOLD: dict[str, Any] = {
    "id": "3b241101-e2bb-4255-8caf-4136c566a962",
    "type": "STK",
    "status": "SUCCESS",
    "amount": 100,
    "phone_number": PHONE,
    "external_reference": "INV-42",
    "created_at": "2026-01-05T09:00:00Z",
    "updated_at": "2026-01-05T09:01:00Z",
}
CALLBACK: dict[str, Any] = {"event": "transaction.updated", "event_type": "transaction.success", "transaction": TOLD}


@pytest.fixture
def http() -> Iterator[httpx.Client]:
    with httpx.Client(timeout=10, trust_env=False) as client:
        yield client


def answers(sandbox: Sandbox) -> list[int | None]:
    return [delivery.status for delivery in sandbox.callbacks]


@pytest.mark.parametrize(
    ("outcome", "status"),
    [(Outcome.success, "SUCCESS"), (Outcome.cancelled, "CANCELLED"), (Outcome.expired, "EXPIRED")],
)
def test_a_payment_is_called_back_confirmed_and_handled(
    shop: Shop, sandbox: Sandbox, outcome: Outcome, status: str
) -> None:
    paid = shop.pay(phone=phone_for(outcome))
    sandbox.advance(120)
    assert answers(sandbox) == [200]
    assert shop.effects == [(paid, status)]
    assert type(shop.calls[0]) is momopay.Callback


def test_any_reference_comes_back(shop: Shop, sandbox: Sandbox) -> None:
    for reference in ("a&b=c d", "café ☕ ₤", "#?/%41+"):
        shop.pay(reference)
        sandbox.advance(60)
        assert shop.calls[-1].transaction.external_reference == reference
    assert answers(sandbox) == [200] * 3


GARBAGE = [b"", b"{", b"[]", b"null", b"\xff", b"{}", b'{"event_type": "transaction.success"}', b"a=1", b" " * 65_537]


def test_garbage_is_400_and_costs_no_request(shop: Shop, sandbox: Sandbox, http: httpx.Client) -> None:
    for body in GARBAGE:
        answer = http.post(shop.signer.url(shop.url, reference="INV-42"), content=body)
        assert answer.status_code == 400, body[:40]
    assert shop.calls == []
    assert sandbox.requests == []


def forgeries(shop: Shop) -> dict[str, str]:
    signed = shop.signer.url(shop.url, reference="INV-42")
    of_another = shop.signer.url(shop.url, reference="INV-43")
    return {
        "no token": shop.url,
        "no query": shop.url + "?",
        "wrong": signed[:-1] + ("0" if signed[-1] != "0" else "1"),
        "doubled": f"{signed}&{signed.partition('?')[2]}",
        "another's secret": CallbackSigner("x" * 16).url(shop.url, reference="INV-42"),
        "another reference": of_another,
        "another's, with this one's in clear": of_another + "&reference=INV-42",
        "not ASCII": shop.url + "?momo_token=%C3%A9",
    }


def test_a_forgery_is_403_and_costs_no_request(shop: Shop, sandbox: Sandbox, http: httpx.Client) -> None:
    for name, url in forgeries(shop).items():
        assert http.post(url, json=CALLBACK).status_code == 403, name
    assert shop.calls == []
    assert sandbox.requests == []
    genuine = http.post(shop.signer.url(shop.url, reference="INV-42"), json=CALLBACK)
    assert genuine.status_code == 503  # the record does not exist, but this one got as far as asking
    assert len(sandbox.requests) == 1


def test_a_callback_for_another_reference_than_its_url_is_403(shop: Shop, sandbox: Sandbox) -> None:
    shop.pay("INV-42", signed="INV-43")
    asked = len(sandbox.requests)
    sandbox.advance(60)
    assert set(answers(sandbox)) == {403}
    assert shop.calls == []
    assert len(sandbox.requests) == asked


def test_a_callback_settles_the_payout_that_nobody_knew_of(shop: Shop, sandbox: Sandbox, journal: Journal) -> None:
    shop.lose_sight_of_a_payout(sandbox, "SAL-1")
    assert state(journal, "SAL-1") is JournalState.UNKNOWN
    sandbox.advance(60)
    assert answers(sandbox) == [200]
    assert state(journal, "SAL-1") is JournalState.ACCEPTED


def test_a_lie_by_a_signed_url_settles_nothing(
    shop: Shop, sandbox: Sandbox, journal: Journal, http: httpx.Client
) -> None:
    shop.lose_sight_of_a_payout(sandbox, "SAL-1")
    lie = {**TOLD, "type": "B2C", "external_reference": "SAL-1"}
    signed = shop.signer.url(shop.url, reference="SAL-1")
    assert http.post(signed, json={**CALLBACK, "transaction": lie}).status_code == 503  # the service knows no such id
    assert state(journal, "SAL-1") is JournalState.UNKNOWN


def test_a_lie_under_the_id_of_what_was_handled_settles_nothing(
    shop: Shop, sandbox: Sandbox, journal: Journal, http: httpx.Client
) -> None:
    handled = shop.pay("INV-7")
    sandbox.advance(60)
    assert [each.transaction_id for each in shop.calls] == [handled]
    put(journal, "SAL-2", JournalState.REFUSED)
    lie = {**TOLD, "type": "B2C", "id": handled, "external_reference": "SAL-2", "amount": 10, "phone_number": PHONE}
    signed = shop.signer.url(shop.url, reference="SAL-2")
    assert http.post(signed, json={**CALLBACK, "transaction": lie}).status_code == 200  # seen before, nothing to do
    assert state(journal, "SAL-2") is JournalState.REFUSED


def state(journal: Journal, reference: str) -> JournalState:
    entry = journal.get(reference)
    assert entry is not None
    return entry.state


def test_only_post_is_taken(shop: Shop, http: httpx.Client) -> None:
    url = shop.signer.url(shop.url, reference="INV-42")
    for method in ("GET", "PUT", "PATCH", "DELETE"):
        answer = http.request(method, url, content=json.dumps(CALLBACK))
        assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
    assert shop.calls == []


@pytest.mark.parametrize(
    ("trouble", "status"),
    [
        (RuntimeError(f"no such order for {PHONE}, says pk_live_8f3a"), 500),
        (InvalidCallbackError("not ours"), 503),
        (CallbackMismatchError("too early", transaction_id="x", fields=["status"]), 503),
        (ForgedCallbackError("by another sign"), 403),
    ],
)
def test_what_the_handler_refused_is_delivered_again_and_handled_once(
    shop: Shop, sandbox: Sandbox, trouble: Exception, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    shop.troubles = [trouble]
    with caplog.at_level(logging.WARNING, "momopay"):
        paid = shop.pay()
        sandbox.advance(36)
        assert (answers(sandbox), shop.effects) == ([status], [])
        sandbox.advance(10)
    assert (answers(sandbox), shop.effects) == ([status, 200], [(paid, "SUCCESS")])
    assert paid in caplog.text
    assert PHONE not in caplog.text
    if status == 500:
        last = "RuntimeError: no such order for 2547*****678, says pk_live_*****\n"
        assert f"raise self.troubles.pop(0)\n{last}" in caplog.text


def test_a_duplicate_is_acknowledged_and_handled_once(shop: Shop, sandbox: Sandbox) -> None:
    sandbox.fail_next("POST", "/payments/stk", Fault.callback_duplicate)
    paid = shop.pay()
    sandbox.advance(60)
    assert answers(sandbox) == [200, 200]
    assert shop.effects == [(paid, "SUCCESS")]
    assert len(shop.calls) == 1


def test_late_and_reordered_callbacks_are_handled(shop: Shop, sandbox: Sandbox) -> None:
    sandbox.fail_next("POST", "/payments/stk", Fault.callback_reordered)
    first, second = shop.pay("A"), shop.pay("B")
    sandbox.fail_next("POST", "/payments/stk", Fault.callback_late)
    late = shop.pay("C")
    sandbox.advance(60)
    assert [effect[0] for effect in shop.effects] == [second, first]
    sandbox.advance(300)
    assert [effect[0] for effect in shop.effects] == [second, first, late]
    assert answers(sandbox) == [200, 200, 200]


def test_what_another_is_handling_comes_again(shop: Shop, sandbox: Sandbox) -> None:
    assert shop.journal is not None
    paid = shop.pay()
    told = parse_callback({**CALLBACK, "transaction": {**TOLD, "id": paid}})
    with shop.journal.handling(told):
        sandbox.advance(36)
        assert (answers(sandbox), shop.calls) == ([503], [])
    sandbox.advance(10)
    assert answers(sandbox) == [503, 200]
    assert shop.calls == []


@pytest.mark.parametrize("app", APPS)
def test_without_a_journal_a_duplicate_is_handled_twice(app: str, sandbox: Sandbox) -> None:
    shop = Shop(sandbox, "pk_test_no_journal", None)
    make, serve = APPS[app]
    with serve(make(shop.handle, signer=shop.signer)) as url:
        shop.url = f"{url}/momo"
        sandbox.fail_next("POST", "/payments/stk", Fault.callback_duplicate)
        paid = shop.pay()
        sandbox.advance(60)
    assert shop.effects == [(paid, "SUCCESS")] * 2


@pytest.mark.parametrize("app", APPS)
def test_without_a_signer_a_forgery_gets_as_far_as_the_record(app: str, sandbox: Sandbox, http: httpx.Client) -> None:
    shop = Shop(sandbox, "pk_test_no_signer", None)
    make, serve = APPS[app]
    with serve(make(shop.handle)) as url:
        assert http.post(f"{url}/momo", json=CALLBACK).status_code == 503
    assert len(shop.calls) == len(sandbox.requests) == 1
