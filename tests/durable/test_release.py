"""A person releases what is unresolved: only what the whole list does not show becomes free."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import httpx
import pytest

from drivers import Driver
from durable.kit import Service, collect, listed, long_ago, pay, record, release
from journal.kit import ACCEPTED, COLLECTION, NOT_SENT, PHONE, REFUSED, UNKNOWN, found, put, state_of
from momopay import Journal, JournalState, MomoPayError, OutcomeUnknownError, RequestValidationError


@pytest.fixture
def unresolved(journal: Journal) -> Journal:
    put(journal, "r", UNKNOWN)
    long_ago(journal)
    return journal


def test_what_the_list_does_not_show_is_released_and_may_be_sent(
    drive: Callable[..., Driver], unresolved: Journal, caplog: pytest.LogCaptureFixture
) -> None:
    service = Service(record(), pages=[[listed("another")], [listed("a third")]])
    sdk = drive(transport=service.transport)
    entry = sdk(release(unresolved))
    assert (entry.state, entry.released_by) == (NOT_SENT, "Njeri")
    assert entry.released_at is not None
    assert entry == found(unresolved)
    assert "was released by Njeri" in caplog.text
    assert service.requests == ["GET /transactions"] * 2
    assert sdk(pay(unresolved)).is_new


NEAR: list[dict[str, Any]] = [
    {"amount": 25},
    {"phone": "07*****678"},
    {"type": "b2c", "amount": 25},
    {"type": "STK"},
    {"createdAt": "2026-01-01T00:00:00"},
    {"accountReference": " r"},
]


@pytest.mark.parametrize("near", NEAR)
def test_a_near_match_anywhere_in_the_list_refuses_a_release(
    drive: Callable[..., Driver], unresolved: Journal, near: dict[str, Any]
) -> None:
    old = [listed("another", age=timedelta(days=400))]
    sdk = drive(transport=Service(pages=[[listed("another")], old, [listed(**near)]]).transport)
    with pytest.raises(OutcomeUnknownError) as caught:
        sdk(release(unresolved))
    assert [each.transaction_id for each in caught.value.near_matches] == ["t-1"]
    assert state_of(unresolved) is UNKNOWN
    assert sdk(release(unresolved, searched_elsewhere=True)).state is NOT_SENT


def test_a_payout_that_the_list_shows_is_accepted_and_not_released(
    drive: Callable[..., Driver], unresolved: Journal
) -> None:
    service = Service(pages=[[listed(transactionId="t-9")]], read=listed(transactionId="t-9"))
    sdk = drive(transport=service.transport)
    with pytest.raises(RequestValidationError, match="was accepted as transaction t-9"):
        sdk(release(unresolved))
    assert state_of(unresolved) is ACCEPTED
    assert sdk(pay(unresolved)).transaction_id == "t-9"
    assert service.sent == 0


def test_all_prompts_that_the_list_shows_are_kept(drive: Callable[..., Driver], journal: Journal) -> None:
    put(journal, "r", UNKNOWN, COLLECTION)
    long_ago(journal)
    rows = [listed(transactionId=each, type="STK") for each in ("b", "a")]
    with pytest.raises(RequestValidationError, match="was accepted"):
        drive(transport=Service(pages=[rows]).transport)(release(journal))
    assert set(found(journal).transaction_ids) == {"a", "b"}


@pytest.mark.parametrize("state", [ACCEPTED, None])
def test_what_is_accepted_or_absent_is_not_released(
    drive: Callable[..., Driver], journal: Journal, state: JournalState | None
) -> None:
    if state is not None:
        put(journal, "r", state, transaction_id="t")
    service = Service()
    with pytest.raises(RequestValidationError, match="was accepted" if state else "not in the journal"):
        drive(transport=service.transport)(release(journal))
    assert service.requests == []


@pytest.mark.parametrize("state", [REFUSED, NOT_SENT])
def test_what_is_free_needs_no_release(drive: Callable[..., Driver], journal: Journal, state: JournalState) -> None:
    entry = put(journal, "r", state)
    service = Service()
    assert drive(transport=service.transport)(release(journal)) == entry
    assert service.requests == []


def test_an_order_and_a_payout_with_one_reference_need_a_kind(
    drive: Callable[..., Driver], unresolved: Journal
) -> None:
    put(unresolved, "r", UNKNOWN, COLLECTION)
    long_ago(unresolved)
    sdk = drive(transport=Service(record(type="STK")).transport)
    with pytest.raises(ValueError, match="COLLECTION"):
        sdk(release(unresolved))
    assert sdk(release(unresolved, kind=COLLECTION)).kind is COLLECTION
    assert [entry.kind for entry in unresolved.unresolved()] == ["PAYOUT"]
    assert sdk(collect(unresolved, phone=PHONE)).is_new


def test_a_search_that_fails_releases_nothing(drive: Callable[..., Driver], unresolved: Journal) -> None:
    service = Service()

    def fail(request: httpx.Request) -> httpx.Response:
        is_search = request.url.path.endswith("/transactions")
        return httpx.Response(400, text="<html>") if is_search else service.respond(request)

    with pytest.raises(MomoPayError):
        drive(transport=httpx.MockTransport(fail))(release(unresolved))
    assert state_of(unresolved) is UNKNOWN


@pytest.mark.parametrize("by", ["", " ", None, 7])
def test_somebody_decides(drive: Callable[..., Driver], unresolved: Journal, by: Any) -> None:
    with pytest.raises(RequestValidationError, match="by: must be"):
        drive(transport=Service().transport)(release(unresolved, by=by))
