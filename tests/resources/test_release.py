"""A person releases a payout in doubt: only what the whole list does not show becomes free."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from drivers import Driver
from journal.kit import begin, found, lease_of, put
from momopay import ConfigurationError, Journal, JournalState, MomoPayError, OutcomeUnknownError, RequestValidationError
from momopay.journal.identity import KeyIdentity
from momopay.journal.journal import accounts_of
from resources.payout_service import PayoutService, listed, pay


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'payouts.db'}"


@pytest.fixture
def in_doubt(journal: Journal) -> Journal:
    put(journal, "r", JournalState.UNKNOWN)
    return journal


def release(journal: Journal, reference: str = "r", by: Any = "Njeri") -> Callable[[Any], Any]:
    return lambda client: client.payouts.release(journal=journal, reference=reference, by=by)


def test_what_the_list_does_not_show_is_released_and_may_be_sent(
    drive: Callable[..., Driver], in_doubt: Journal, caplog: pytest.LogCaptureFixture
) -> None:
    service = PayoutService(None, pages=[[listed("another")], [listed("a third")]])
    entry = drive(transport=service.transport)(release(in_doubt))
    assert (entry.state, entry.released_by) == (JournalState.NOT_SENT, "Njeri")
    assert entry == found(in_doubt)
    assert "was released by Njeri" in caplog.text
    assert service.requests == ["GET /transactions"] * 2


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
    drive: Callable[..., Driver], in_doubt: Journal, near: dict[str, Any]
) -> None:
    old = [listed("another", age=timedelta(days=400))]
    service = PayoutService(pages=[[listed("another")], old, [listed(**near)]])
    with pytest.raises(OutcomeUnknownError) as caught:
        drive(transport=service.transport)(release(in_doubt))
    assert [each.transaction_id for each in caught.value.near_matches] == ["t-1"]
    assert found(in_doubt).state is JournalState.UNKNOWN


def test_a_payout_that_the_list_shows_is_accepted_and_not_released(
    drive: Callable[..., Driver], in_doubt: Journal
) -> None:
    service = PayoutService(pages=[[listed(transactionId="t-9")]], read=listed(transactionId="t-9"))
    sdk = drive(transport=service.transport)
    with pytest.raises(RequestValidationError, match="was accepted as transaction t-9"):
        sdk(release(in_doubt))
    assert found(in_doubt).state is JournalState.ACCEPTED
    assert sdk(pay(in_doubt)).transaction_id == "t-9"
    assert service.initiations == 0


@pytest.mark.parametrize("state", [JournalState.ACCEPTED, None])
def test_what_is_accepted_or_absent_is_not_released(
    drive: Callable[..., Driver], journal: Journal, state: JournalState | None
) -> None:
    if state is not None:
        put(journal, "r", state, transaction_id="t")
    service = PayoutService()
    with pytest.raises(RequestValidationError, match="was accepted" if state else "not in the journal"):
        drive(transport=service.transport)(release(journal))
    assert service.requests == []


@pytest.mark.parametrize("state", [JournalState.REFUSED, JournalState.NOT_SENT])
def test_what_is_free_needs_no_release(drive: Callable[..., Driver], journal: Journal, state: JournalState) -> None:
    entry = put(journal, "r", state)
    service = PayoutService()
    assert drive(transport=service.transport)(release(journal)) == entry
    assert service.requests == []


def test_a_sender_that_died_is_released_a_minute_after_its_lease(
    drive: Callable[..., Driver], journal: Journal
) -> None:
    service = PayoutService()
    sdk = drive(transport=service.transport)
    with lease_of(journal) as lease:
        begin(journal, lease, "fresh", seconds=-50)
        begin(journal, lease, "old", seconds=-61)
    with pytest.raises(RequestValidationError, match="may be frozen; release it in"):
        sdk(release(journal, "fresh"))
    assert service.requests == []
    assert sdk(release(journal, "old")).state is JournalState.NOT_SENT


def test_a_search_that_fails_releases_nothing(drive: Callable[..., Driver], in_doubt: Journal) -> None:
    with pytest.raises(MomoPayError):
        drive(transport=httpx.MockTransport(lambda _request: httpx.Response(400, text="<html>")))(release(in_doubt))
    assert found(in_doubt).state is JournalState.UNKNOWN


def test_the_list_of_another_account_proves_nothing(drive: Callable[..., Driver], in_doubt: Journal) -> None:
    accounts_of(in_doubt).check(KeyIdentity("live", "api.example", "hash"))
    service = PayoutService()
    with pytest.raises(ConfigurationError):
        drive(transport=service.transport)(release(in_doubt))
    assert service.requests == []


@pytest.mark.parametrize("by", ["", " ", None, 7])
def test_somebody_decides(drive: Callable[..., Driver], in_doubt: Journal, by: Any) -> None:
    with pytest.raises(RequestValidationError, match="by: must be"):
        drive(transport=PayoutService().transport)(release(in_doubt, by=by))


def test_a_release_without_a_search_is_logged(in_doubt: Journal, caplog: pytest.LogCaptureFixture) -> None:
    assert in_doubt.release("r", by="Njeri").released_by == "Njeri"
    assert [(record.levelno, "was released" in record.message) for record in caplog.records] == [
        (logging.WARNING, True)
    ]
