"""The records of transactions: a page of the list, and a transaction that was made from a list item."""

import pickle
from typing import Any

import momopay
from models.kit import ITEM, PAGE, parse
from momopay.models.records import note_response
from momopay.models.transactions import transaction_from

INFO = momopay.types.ResponseInfo("r-1", 200, {}, attempts=1, elapsed=0.0)


def test_a_page_iterates_over_its_items_and_is_otherwise_as_other_records() -> None:
    page = parse(momopay.types.TransactionPage, {**PAGE, "items": [ITEM.camel, ITEM.camel]})
    assert list(page) == page.items
    assert parse(momopay.types.TransactionPage, page.model_dump(mode="json")) == page == page.model_copy()
    assert pickle.loads(pickle.dumps(page)) == page
    assert "items=" in repr(page)


def summary(**more: Any) -> momopay.types.TransactionSummary:
    item: momopay.types.TransactionSummary = parse(momopay.types.TransactionSummary, {**ITEM.camel, **more})
    note_response(item, INFO)
    return item


def test_a_transaction_from_a_list_item_has_its_fields_and_no_others() -> None:
    transaction = transaction_from(summary(loyalty="gold"))
    assert type(transaction) is momopay.Transaction
    assert {name: getattr(transaction, name) for name in ITEM.fields} == ITEM.fields
    assert (transaction.result_code, transaction.channel_id, transaction.provider) == (None, None, None)
    assert transaction.model_extra == {"loyalty": "gold"}
    assert transaction.response is INFO


def test_a_field_that_the_list_shows_of_its_own_accord_is_taken_over_if_it_parses() -> None:
    assert transaction_from(summary(resultCode="17")).result_code == "17"
    assert transaction_from(summary(resultCode=["17"], provider=5)).result_code is None
