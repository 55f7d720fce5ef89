"""`Journal`, as its users see it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from journal.kit import PHONE, begin, callback, found, lease_of, payout, put
from momopay import ConfigurationError, Journal, JournalState, Payout, RequestValidationError


@pytest.fixture
def url(tmp_path: Path) -> str:
    """SQLite: what differs between the databases has tests of its own."""
    return f"sqlite:///{tmp_path / 'payouts.db'}"


@pytest.mark.parametrize("url", ["mysql://h/d", "payouts.db", "", "sqlite+aiosqlite:///payouts.db", "postgresql://h:x"])
def test_what_is_no_url_of_a_journal_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationError):
        Journal(url)


WITHOUT = """
import sys, typing
sys.modules.update(sqlalchemy=None, filelock=None, psycopg=None)
from momopay import Client, Journal
pay_once = Client("pk_test_x", base_url="http://127.0.0.1:1/v1").payouts.pay_once
assert typing.get_type_hints(pay_once)["journal"] is Journal
try:
    Journal("sqlite:///payouts.db")
except ModuleNotFoundError as error:
    print(error, error.__cause__ is not None)
"""


def test_without_the_extra_it_can_be_named_and_says_what_to_install(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True, cwd=tmp_path, check=True)
    assert done.stdout.strip() == "the journal needs an extra: pip install 'momopay[journal]' True"


def test_its_repr_shows_no_password() -> None:
    with Journal("postgresql+psycopg://me:secret@127.0.0.1:1/d") as journal:
        assert repr(journal) == "Journal('postgresql+psycopg://me:***@127.0.0.1:1/d')"


def test_the_url_of_a_failed_parse_is_not_shown() -> None:
    with pytest.raises(ConfigurationError) as caught:
        Journal("postgresql+psycopg://me:pass@word:secret@h/d")
    assert "secret" not in f"{caught.value} {caught.value.__cause__!r} {caught.value.__context__!r}"


def test_a_release_is_logged_and_returns_the_entry(journal: Journal, caplog: pytest.LogCaptureFixture) -> None:
    put(journal, PHONE, JournalState.UNKNOWN)
    assert journal.release(PHONE) == found(journal, PHONE)
    assert found(journal, PHONE).state is JournalState.NOT_SENT
    assert [each.levelname for each in caplog.records] == ["WARNING"]
    assert "2547*****678' was released" in caplog.text
    assert journal.release(PHONE) == found(journal, PHONE)
    assert len(caplog.records) == 1


def test_what_must_not_be_sent_is_not_released(journal: Journal) -> None:
    accepted = put(journal, "accepted", JournalState.ACCEPTED, transaction_id="t")
    with lease_of(journal) as lease:
        begin(journal, lease, "being sent")
        for reference, problem in [
            ("accepted", "accepted as transaction t"),
            ("being sent", "is being sent"),
            ("nobody's", "not in the journal"),
        ]:
            with pytest.raises(RequestValidationError, match=problem):
                journal.release(reference)
    assert found(journal, "accepted") == accepted


ANSWER = Payout.model_validate(
    {"transactionId": "the-id", "status": "PENDING", "amount": 10, "phone": PHONE, "reference": "r"}
    | {"type": "B2C", "createdAt": "2026-11-20T10:00:00Z", "updatedAt": "2026-11-20T10:00:00Z"}
)


@pytest.mark.parametrize("evidence", [payout(), callback(), callback(status="FAILED"), ANSWER])
@pytest.mark.parametrize("state", [JournalState.UNKNOWN, JournalState.REFUSED])
def test_a_record_of_the_service_is_recorded_as_accepted(journal: Journal, state: JournalState, evidence: Any) -> None:
    put(journal, "r", state, code="c")
    entry = journal.settle(evidence)
    assert entry is not None
    assert (entry.state, entry.transaction_id, entry.code) == (JournalState.ACCEPTED, "the-id", None)
    assert found(journal) == entry


@pytest.mark.parametrize(
    "fields",
    [{"amount": 11}, {"phone": "254712345679"}, {"type": "STK"}, {"accountReference": "s"}, {"accountReference": None}],
)
def test_a_record_of_something_else_changes_nothing(
    journal: Journal, caplog: pytest.LogCaptureFixture, fields: dict[str, Any]
) -> None:
    entry = put(journal, "r", JournalState.UNKNOWN)
    assert journal.settle(payout(**fields)) is None
    assert found(journal) == entry
    assert len(caplog.records) == len(fields.keys() & {"amount", "phone"})
