"""The records of a callback."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

import momopay
from models.kit import ID, MASKED, PHONE, READ
from momopay import Callback, CallbackTransaction, HasTransactionId
from momopay.models.callbacks import is_confirmed, mark_confirmed

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


def test_the_key_is_the_same_for_a_repeat_and_differs_for_another_status() -> None:
    first, repeat = callback(), callback(updated_at="2025-03-01T11:00:00Z")
    assert first.key == repeat.key == (ID, "SUCCESS")
    assert len({first.key, callback(status="FAILED").key, callback(id="other").key}) == 3
    assert pickle.loads(pickle.dumps(first)).key == first.key


@pytest.mark.parametrize("transaction_id", ["", "  ", ".", "..", 5, None])
def test_an_id_that_cannot_be_read_by_is_refused(transaction_id: Any) -> None:
    with pytest.raises(ValueError, match=r"transaction\.id"):
        callback(id=transaction_id)


def test_unknown_fields_and_values_are_kept() -> None:
    found = callback(status="THAWED", type="NEW", result_code="9999", score=[1, "two"])
    assert (found.transaction.status, found.transaction.status.is_terminal) == ("THAWED", False)
    assert (found.transaction.type, found.transaction.result_code) == ("NEW", "9999")
    assert found.transaction.model_extra is not None
    assert found.transaction.model_extra["score"] == [1, "two"]


def test_the_phone_is_masked() -> None:
    for shown in (repr(callback()), str(callback()), repr(callback().transaction)):
        assert MASKED in shown
        assert "712345678" not in shown


def test_camel_case_is_not_read() -> None:
    found = CallbackTransaction.model_validate({**READ.camel, "id": ID})
    assert (found.phone_number, found.created_at) == (None, None)
    assert found.model_extra is not None
    assert {"phone", "createdAt"} <= found.model_extra.keys()
    assert momopay.Callback.model_validate({**PAYLOAD, "eventType": "x"}).event_type == "transaction.success"


def test_a_confirmed_callback_differs_in_nothing_that_is_compared_or_stored() -> None:
    fresh, confirmed = callback(), callback()
    mark_confirmed(confirmed)
    assert (is_confirmed(fresh), is_confirmed(confirmed)) == (False, True)
    assert confirmed == fresh
    assert confirmed.model_dump() == fresh.model_dump()
    assert repr(confirmed) == repr(fresh)
    assert pickle.loads(pickle.dumps(confirmed)) == fresh


def test_a_copy_with_another_transaction_is_not_confirmed() -> None:
    confirmed = callback()
    mark_confirmed(confirmed)
    assert not is_confirmed(confirmed.model_copy(update={"transaction": callback(amount=1).transaction}))
