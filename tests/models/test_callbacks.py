"""The records of a callback."""

import pickle

from models.kit import ID, PHONE, callback_with
from momopay.types import HasTransactionId


def test_a_callback_has_the_names_of_other_records_too() -> None:
    found = callback_with()
    assert (found.event, found.transaction_id, found.transaction.transaction_id) == ("transaction.updated", ID, ID)
    assert (found.transaction.phone, found.transaction.account_reference) == (PHONE, "INV-42")
    assert isinstance(found, HasTransactionId)
    assert isinstance(found.transaction, HasTransactionId)
    assert "555" not in repr(callback_with(phone_number="+1 202 555 0100"))


def test_the_key_is_the_same_for_a_repeat_and_differs_for_another_status() -> None:
    first, repeat = callback_with(), callback_with(updated_at="2025-03-01T11:00:00Z")
    assert first.key == repeat.key == pickle.loads(pickle.dumps(first)).key == (ID, "SUCCESS")
    assert len({first.key, callback_with(status="FAILED").key, callback_with(id="other").key}) == 3
