"""The history of a payment: each change and each delivery, in the transaction of the change."""

from collections.abc import Generator
from datetime import UTC, datetime

import pytest

from campaign.history import disagreements, killed, live
from forked import forks, in_a_fork
from journal.constants import COLLECTION, NOT_SENT, PAYOUT, PHONE, REFUSED, UNKNOWN
from journal.database_kit import before_each, execute, store_of
from journal.kit import begin, found, lease_of, put, state_of, told
from journal.records import payout, report
from momopay import Journal, JournalError


@pytest.fixture
def lived(journal: Journal) -> Generator[Journal]:
    live(journal)
    yield journal
    assert disagreements(journal) == []


@pytest.mark.both_databases
def test_each_change_and_each_delivery_is_told_in_order(lived: Journal) -> None:
    assert told(lived, "paid") == [
        "begun:  -> SENDING (1, None)",
        "sent: SENDING -> SENDING (t-1, answer)",
        "accepted: SENDING -> ACCEPTED (t-1, answer)",
        "status:  -> PENDING (t-1, answer)",
        "status: PENDING -> SUCCESS (t-1, callback)",
        "receipt:  -> QK12 (t-1, callback)",
        "delivered:  -> SUCCESS (t-1, None)",
    ]
    assert told(lived, "refused")[1:] == [
        "sent: SENDING -> REFUSED (1, answer)",
        "refused: SENDING -> REFUSED (1, answer)",
    ]
    assert told(lived, "lost") == [
        "begun:  -> SENDING (1, None)",
        "unknown: SENDING -> UNKNOWN (1, answer)",
        "released: UNKNOWN -> NOT_SENT (None, person)",
        "begun: NOT_SENT -> SENDING (2, None)",
        "sent: SENDING -> SENDING (t-2, answer)",
        "accepted: SENDING -> ACCEPTED (t-2, answer)",
        "contradicted: ACCEPTED -> UNKNOWN (t-2, read)",
    ]
    assert told(lived, "sighted")[-1] == "unknown: REFUSED -> UNKNOWN (None, search)"
    assert [each for each in told(lived, "order") if "p-0" in each][-3:] == [
        "status: CANCELLED -> SUCCESS (p-0, None)",
        "paid twice:  ->  (p-0, None)",
        "delivery failed:  -> SUCCESS (p-0, None)",
    ]
    assert lived.anonymise(before=datetime(2100, 1, 1, tzinfo=UTC)) > 0
    assert told(lived, "paid", PAYOUT)[-1].startswith("anonymised")
    assert told(lived, "paid", COLLECTION) == told(lived, "nobody's") == told(lived, "\0") == []


def test_who_and_when_are_told_and_no_phone(lived: Journal) -> None:
    (released,) = [each for each in lived.history("lost") if each.what == "released"]
    assert (released.by, released.source) == ("Njeri", "person")
    assert abs((datetime.now(UTC) - released.at).total_seconds()) < 60
    assert {each.reference for each in lived.history("paid")} == {"paid"}
    assert PHONE not in str(execute(lived, "SELECT * FROM momopay_history"))


def test_of_a_new_transaction_is_told_once_by_which_attempt_and_into_which_state(journal: Journal) -> None:
    put(journal, "r", transaction_id="the-id", status="PENDING")
    store_of(journal).record(found(journal), report("the-id", "SUCCESS", source="answer"))
    told_of_it = [(each.what, each.attempt, each.to) for each in journal.history("r") if each.transaction_id]
    accepted = [("sent", 1, "SENDING"), ("accepted", 1, "ACCEPTED"), ("status", 1, "PENDING")]
    assert told_of_it == [*accepted, ("status", None, "SUCCESS")]
    for state in (REFUSED, UNKNOWN):
        put(journal, "o", state, COLLECTION)
    # It is of the first attempt, so the second stays unknown.
    journal.settle(payout("o", transactionId="another", type="STK", status="FAILED"))
    assert told(journal, "o")[-2:] == [
        "accepted: UNKNOWN -> UNKNOWN (another, read)",
        "status:  -> FAILED (another, read)",
    ]


def test_one_query_reads_a_history(lived: Journal) -> None:
    statements = list[str]()
    with before_each(statements.append, lived):
        assert lived.history("paid")
    assert len(statements) == 1


@forks
@pytest.mark.parametrize(
    ("url", "stride"),
    [("sqlite", 9), *(pytest.param(url, 1, marks=pytest.mark.whole) for url in ("sqlite", "postgresql"))],
    indirect=["url"],
)
def test_state_and_history_agree_wherever_a_writer_is_killed(url: str, journal: Journal, stride: int) -> None:
    """Each process goes on with what the one before it left."""
    journal.close()
    assert killed(lambda: Journal(url), in_a_fork, stride) > 60 / stride
    with Journal(url) as left:
        assert disagreements(left) == []
        assert len(list(left.entries())) > 60 / stride


@pytest.mark.parametrize("what", ["accepted", "status", "receipt", "released", "contradicted", "refused"])
def test_the_check_finds_a_change_that_is_not_told(journal: Journal, what: str) -> None:
    journal.get("r")
    _lose(journal, what)
    live(journal)
    assert disagreements(journal) != []


def _lose(journal: Journal, what: str) -> None:
    """Let the database drop what happened, as a faulty trigger does."""
    when = f"CREATE TRIGGER lost BEFORE INSERT ON momopay_history {{}} WHEN (NEW.what = '{what}')"
    if "postgresql" in repr(journal):
        execute(journal, "CREATE FUNCTION lose() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'")
        execute(journal, f"{when.format('FOR EACH ROW')} EXECUTE FUNCTION lose()")
    else:
        execute(journal, f"{when.format('FOR EACH ROW')} BEGIN SELECT RAISE(IGNORE); END")


def test_a_payment_whose_beginning_is_not_told_is_not_begun(journal: Journal) -> None:
    journal.get("r")
    _lose(journal, "begun")
    with lease_of(journal) as lease, pytest.raises(JournalError, match="its history"):
        begin(journal, lease)
    assert state_of(journal) is NOT_SENT
