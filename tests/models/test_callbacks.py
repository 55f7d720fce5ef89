"""The records of a callback."""

import pickle
from typing import Any

import pytest

from in_turn import in_turn
from models.kit import ID, PHONE, READ, parse
from momopay import Callback
from momopay.models.callbacks import as_read, mark_confirmed, record_of
from momopay.types import HasTransactionId

RECORD = parse(READ.kind, READ.camel)
STATED: dict[str, Any] = {**READ.snake, "id": ID, "momo_receipt": "RCPT1"}
PAYLOAD = {"event_type": "transaction.success", "transaction": STATED}


def callback(**changes: Any) -> Callback:
    return Callback.model_validate({**PAYLOAD, "transaction": {**STATED, **changes}})


def test_a_callback_has_the_names_of_other_records_too() -> None:
    found = callback()
    assert (found.event, found.transaction_id, found.transaction.transaction_id) == ("transaction.updated", ID, ID)
    assert (found.transaction.phone, found.transaction.account_reference) == (PHONE, "INV-42")
    assert isinstance(found, HasTransactionId)
    assert isinstance(found.transaction, HasTransactionId)
    assert "555" not in repr(callback(phone_number="+1 202 555 0100"))
    least = {name: STATED[name] for name in ("id", "status", "created_at", "updated_at")}
    assert Callback.model_validate({**PAYLOAD, "transaction": least}).transaction.currency == "KES"
    with pytest.raises(ValueError, match="event_type\n  Field required"):
        Callback.model_validate({"transaction": STATED})


def test_the_key_is_the_same_for_a_repeat_and_differs_for_another_status() -> None:
    first, repeat = callback(), callback(updated_at="2025-03-01T11:00:00Z")
    assert first.key == repeat.key == (ID, "SUCCESS")
    assert len({first.key, callback(status="FAILED").key, callback(id="other").key}) == 3
    assert pickle.loads(pickle.dumps(first)).key == first.key


@in_turn("transaction_id", ["", "  ", ".", "..", 5, None])
def test_an_id_that_cannot_be_read_by_is_refused(transaction_id: Any) -> None:
    with pytest.raises(ValueError, match=r"transaction\.id"):
        callback(id=transaction_id)


def test_a_confirmed_callback_differs_in_nothing_that_is_compared_or_stored() -> None:
    fresh, confirmed = callback(), callback()
    mark_confirmed(confirmed, RECORD)
    assert (record_of(fresh), record_of(confirmed)) == (None, RECORD)
    assert confirmed == fresh
    assert confirmed.model_dump() == fresh.model_dump()
    assert repr(confirmed) == repr(fresh)
    assert pickle.loads(pickle.dumps(confirmed)) == fresh


def test_a_copy_with_another_transaction_is_not_confirmed() -> None:
    confirmed = callback()
    mark_confirmed(confirmed, RECORD)
    changed = confirmed.model_copy(update={"transaction": callback(amount=1).transaction})
    assert record_of(changed) is None
    assert as_read(changed) is changed


def test_what_the_record_says_replaces_what_the_callback_states() -> None:
    """And what it does not say, such as the receipt, is kept of the same end alone."""
    told = callback(status="EXPIRED", momo_receipt="forged", transaction_fee=9, result_desc="forged", tenant_id="t")
    reads: list[tuple[dict[str, Any], Any]] = [
        ({"status": "CANCELLED", "resultCode": "1032", "resultDesc": None}, ("CANCELLED", "1032", None, None)),
        ({"status": "EXPIRED", "resultCode": "1037", "resultDesc": None}, ("EXPIRED", "1037", "forged", "forged")),
    ]
    for fields, expected in reads:
        mark_confirmed(told, record := parse(READ.kind, {**READ.camel, **fields}))
        read = as_read(told)
        found = read.transaction
        assert (found.status, found.result_code, found.momo_receipt, found.result_desc) == expected
        assert (found.id, found.tenant_id, found.updated_at) == (told.transaction_id, "t", record.updated_at)
        assert record_of(read) is record
