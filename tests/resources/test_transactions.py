"""Transactions that are read, listed and walked; callbacks that are confirmed. Waits are tested in `polling`."""

import json
import pickle
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import httpx
import pydantic
import pytest

import momopay
from bodies import REQUEST_ID, refusal
from drivers import Drive
from events_kit import Watcher
from in_turn import in_turn
from models.kit import CHANNEL, ID, ITEM, PAGE, PAYBILL, PAYOUT, PHONE, READ, callback_with, parse
from momopay.durable.payment import payment_of
from momopay.journal.evidence import Draft
from resources.kit import AT_ONCE, Recorder, assert_came_with_its_response, assert_sent, exchange


def test_the_id_of_a_callback_stays_one_segment_of_the_path(drive: Drive) -> None:
    service = Recorder({**READ.camel, "transactionId": "../wallets?x=1"})
    told, seen = callback_with(id="../wallets?x=1"), Watcher()
    drive(transport=service.transport, on_event=seen)(lambda client: client.transactions.confirm(told))
    assert "CallbackReceived accepted SUCCESS" in seen.take()
    assert_sent(service.requests[0], "GET", "/v1/transactions/..%2Fwallets%3Fx%3D1")
    other = callback_with(id="../wallets?x=1", amount=7)
    with pytest.raises(momopay.CallbackMismatchError):
        drive(transport=service.transport)(lambda client: client.transactions.confirm(other))
    with pytest.raises(momopay.RequestValidationError, match="from parse_callback"):
        drive(transport=service.transport)(lambda client: client.transactions.confirm(other.transaction))


async def never(_: momopay.Transaction) -> bool:
    return False


@pytest.mark.parametrize("wrong", [{"until": never}, {"until": True}, {"schedule": 60}])
def test_a_wait_that_could_not_end_rightly_is_refused_at_once(drive: Drive, wrong: Any) -> None:
    service = Recorder(READ.camel)
    with pytest.raises(momopay.ConfigurationError, match=f"{next(iter(wrong))} must be"):
        drive(transport=service.transport)(lambda client: client.transactions.wait(ID, **wrong))
    assert service.requests == []


@in_turn(("status", "requests"), [("SUCCESS", 0), ("FAILED", 1)])
def test_a_wait_for_a_payment_reads_what_a_callback_knew_better(drive: Drive, status: str, requests: int) -> None:
    known: dict[str, Any] = {"kind": "COLLECTION", "reference": "r", "transaction_id": ID, "amount": 1, "phone": PHONE}
    known |= {"status": status, "is_new": False, "transaction": parse(READ.kind, READ.camel)}
    service, paid = Recorder(READ.camel), momopay.Payment.model_validate(known)
    drive(transport=service.transport)(lambda client: client.transactions.wait(paid, schedule=AT_ONCE))
    assert len(service.requests) == requests


SINCE = datetime(2025, 3, 1, 10, 0, tzinfo=UTC)


def test_a_transaction_is_read_by_its_id_or_by_a_record(drive: Drive) -> None:
    target = f"/v1/transactions/{ID}"
    read = exchange(drive, READ, lambda client: client.transactions.get(ID), "GET", target)
    exchange(drive, READ, lambda client: client.transactions.get(read), "GET", target)


@in_turn(
    ("status", "code", "error"),
    [
        *((400, "INVALID_UUID", "TransactionNotFoundError"), (400, "OTHER", "APIError")),
        *((404, code, "TransactionNotFoundError") for code in ("INVALID_UUID", "TRANSACTION_NOT_FOUND")),
    ],
)
def test_an_id_of_another_form_is_a_transaction_that_does_not_exist(
    drive: Drive, status: int, code: str, error: str
) -> None:
    sdk = drive(transport=Recorder(httpx.Response(status, json=refusal(code))).transport)
    with pytest.raises(momopay.APIError) as caught:
        sdk(lambda client: client.transactions.get("7"))
    found = pickle.loads(pickle.dumps(caught.value))
    assert (type(found).__name__, found.code, found.status_code, found.request_id) == (error, code, status, REQUEST_ID)
    assert getattr(found, "transaction_id", "7") == "7"


def test_a_page_is_listed_with_its_default_limit(drive: Drive) -> None:
    service = Recorder(PAGE)
    page = drive(transport=service.transport)(lambda client: client.transactions.list())
    assert_sent(service.requests[0], "GET", "/v1/transactions?limit=20")
    assert type(page) is momopay.types.TransactionPage
    for record in (page, page.overview, *page.items):
        assert_came_with_its_response(record)


FILTERS: dict[str, Any] = {
    "status": "SUCCESS",
    "type": momopay.TransactionType.B2C,
    "from_": "2025-03-01",
    "to": "2025-03-02",
    "q": "jane",
} | {"channel_id": parse(PAYBILL.kind, PAYBILL.camel), "amount_min": 10, "amount_max": Decimal("99.99")}
FILTERED = (
    f"status=SUCCESS&type=B2C&from=2025-03-01&to=2025-03-02&channelId={CHANNEL}&amountMin=10&amountMax=99.99&q=jane"
)


def test_every_filter_reaches_the_service_for_each_page(drive: Drive) -> None:
    service = Recorder(PAGE)
    driver = drive(transport=service.transport)
    driver(lambda client: client.transactions.list(limit=50, cursor="c2", **FILTERS))
    assert_sent(service.requests[0], "GET", f"/v1/transactions?{FILTERED}&limit=50&cursor=c2")

    def walk(client: Any) -> Any:
        service.requests.clear()
        return client.transactions.iter(page_size=7, **FILTERS)

    with pytest.raises(momopay.ProtocolError, match="cursor"):  # the page names itself as the next one
        driver.collect(walk)
    assert_sent(service.requests[0], "GET", f"/v1/transactions?{FILTERED}&limit=7")
    assert_sent(service.requests[1], "GET", f"/v1/transactions?{FILTERED}&limit=7&cursor=c2")
    service.answers = [{**PAGE, "nextCursor": None}]
    # The page has the same transaction twice.
    assert [type(item) for item in driver.collect(walk)] == [momopay.types.TransactionSummary]


def test_a_payment_is_searched_for_in_pages_of_a_hundred(drive: Drive, caplog: pytest.LogCaptureFixture) -> None:
    service = Recorder({**PAGE, "items": [ITEM.camel], "nextCursor": None})
    driver = drive(transport=service.transport)
    found = driver(lambda client: client.transactions.find(reference="INV-42", since=SINCE))
    driver(lambda client: client.transactions.find(reference="INV-42", since=SINCE, type="B2C"))
    assert [item.transaction_id for item in found] == [ID]
    assert [each.args for each in caplog.records] == [(ID, "'INV-42'")], "of another type"
    for request in service.requests:  # a filter would hide what has the reference and another type
        assert_sent(request, "GET", "/v1/transactions?limit=100")


def test_a_walk_refuses_wrong_arguments_before_it_begins(drive: Drive) -> None:
    service = Recorder(PAGE)
    with pytest.raises(momopay.RequestValidationError) as caught:
        drive(transport=service.transport)(lambda client: client.transactions.iter(page_size=101, to=5))
    assert set(caught.value.fields) == {"page_size", "to"}
    assert service.requests == []


def test_each_loop_walks_anew_and_pages_can_be_had_too(drive: Drive) -> None:
    last = {**PAGE, "items": [{**ITEM.camel, "transactionId": "t-2"}], "nextCursor": None}
    service = Recorder(*[PAGE, last] * 3)
    sdk = drive(transport=service.transport)
    iterator = sdk(lambda client: client.transactions.iter())
    for _ in range(2):
        assert [item.transaction_id for item in sdk.collect(lambda _client: iterator)] == [ID, "t-2"]
    assert [len(page.items) for page in sdk.collect(lambda _client: iterator.pages())] == [2, 1]
    assert len(service.requests) == 6


# Pages of the service as it is met: with either naming, without counts, with items that cannot be read.


def a_page(*items: Any, **more: Any) -> dict[str, Any]:
    return {"items": list(items), "next_cursor": None, **more}


@in_turn(("item", "cursor"), [(ITEM.camel, "next_cursor"), (ITEM.snake, "next_cursor"), (ITEM.snake, "nextCursor")])
def test_a_page_needs_no_counts_but_a_cursor(drive: Drive, item: Any, cursor: str) -> None:
    data = {"items": [item], cursor: "c2"}
    page = drive(transport=Recorder(data).transport)(lambda client: client.transactions.list())
    assert (page.overview, page.next_cursor, page.unread) == (None, "c2", ())
    assert [{name: getattr(each, name) for name in ITEM.fields} for each in page] == [ITEM.fields]
    # No page that may not be the last proves absence.
    both: dict[str, Any] = {"items": [], "nextCursor": None, "next_cursor": "c3"}
    sdk = drive(transport=Recorder(both).transport)
    assert sdk(lambda client: client.transactions.list()).next_cursor == "c3"
    without: list[dict[str, Any]] = [{"items": [item]}, {"items": [item, {}]}, {**PAGE, "nextCursor": ...}]
    for neither in without:
        neither.pop("nextCursor", None)
        sdk = drive(transport=Recorder(neither).transport)
        with pytest.raises(momopay.ProtocolError, match="nextCursor"):
            sdk(lambda client: client.transactions.list())
        with pytest.raises(momopay.ProtocolError):
            sdk(lambda client: client.transactions.find(reference="INV-42", since=SINCE))


FAULTS: list[tuple[str, Any]] = [
    *((name, None) for name in ("phone", "amount", "type", "status", "currency", "createdAt", "updatedAt")),
    *(("amount", each) for each in ("ten", True, "1E+999999999", "-1E+999999999", float("inf"), float("nan"))),
    *(("createdAt", "yesterday"), ("phone", 254712345678), ("transactionId", ".."), ("accountReference", ["a"])),
]


@in_turn(("name", "value"), FAULTS)
def test_an_item_that_cannot_be_read_hides_no_other(
    drive: Drive, caplog: pytest.LogCaptureFixture, name: str, value: Any
) -> None:
    bad = {**ITEM.camel, "transactionId": "bad-1", "accountReference": PHONE, name: value}
    caplog.clear()
    text = json.dumps({"success": True, "data": a_page(ITEM.camel, bad, overview={"total": "?"})})
    text = text.replace("Infinity", "1E+400").replace("NaN", "9" * 5000)
    sdk = drive(transport=Recorder(httpx.Response(200, text=text)).transport)
    page = sdk(lambda client: client.transactions.list())
    assert ([each.transaction_id for each in page], page.overview) == ([ID], None)
    (unread,) = page.unread
    assert unread.id == (None if name == "transactionId" else "bad-1")
    assert unread.reference == (None if name == "accountReference" else PHONE)
    assert unread.raw.keys() == bad.keys()
    assert name in unread.problem
    assert PHONE not in f"{unread} {unread!r} {caplog.text}"
    with pytest.raises(pydantic.ValidationError):
        unread.id = "another"
    assert len(sdk.collect(lambda client: client.transactions.iter())) == 1
    assert [each.levelname for each in caplog.records].count("WARNING") == 1  # for both calls


@in_turn("items", [[{}], [None, 5, "text", []], [{"transaction_id": 5}]])
def test_what_is_no_item_is_unread_without_an_id(drive: Drive, items: list[Any]) -> None:
    page = drive(transport=Recorder(a_page(*items)).transport)(lambda client: client.transactions.list())
    assert (page.items, [each.raw for each in page.unread]) == ([], items)
    assert {(each.id, each.reference) for each in page.unread} == {(None, None)}


@in_turn("items", [[0] * 10_000, [ITEM.camel] * 1001, "text", None])
def test_a_page_with_too_many_items_or_none_is_refused(drive: Drive, items: Any) -> None:
    sdk = drive(transport=Recorder({"items": items, "nextCursor": None}).transport)
    with pytest.raises(momopay.ProtocolError):
        sdk(lambda client: client.transactions.list())


# Reads that lack something.


@in_turn("is_null", [True, False])
def test_a_read_needs_its_id_status_and_amount_alone(drive: Drive, is_null: bool) -> None:
    for name in READ.camel:
        data = {key: value for key, value in READ.camel.items() if key != name} | ({name: None} if is_null else {})
        sdk = drive(transport=Recorder(data).transport)
        if name in {"transactionId", "status", "amount"}:
            with pytest.raises(momopay.ProtocolError):
                sdk(lambda client: client.transactions.get(ID))
        else:
            read = sdk(lambda client: client.transactions.get(ID))
            assert (read.transaction_id, read.status, read.amount) == (ID, "SUCCESS", Decimal("100.5"))


def test_what_a_read_lacks_is_taken_from_the_record_that_was_passed(drive: Drive) -> None:
    service = Recorder({"transactionId": ID, "status": "FAILED", "amount": "100.50", "createdAt": "?"})
    known = parse(PAYOUT.kind, PAYOUT.camel)
    paid = payment_of(Draft(momopay.EntryKind.PAYOUT, "PAY-7", known.amount, PHONE, "PAY-7"), known)
    sdk = drive(transport=service.transport)
    read = sdk(lambda client: client.transactions.get(known))
    assert sdk(lambda client: client.transactions.get(paid)) == read
    assert (read.type, read.phone, read.created_at) == ("B2C", PHONE, known.created_at)
    assert (read.status, read.response.status_code) == ("FAILED", 200)
    assert not momopay.settled(read)  # as it would seem without its type
    alone = sdk(lambda client: client.transactions.get(ID))
    assert (alone.type, alone.phone, alone.created_at, alone.updated_at) == (None, None, None, None)


@in_turn(
    ("fields", "receipt"),
    [
        *(({name: "QK1"}, "QK1") for name in ("receipt", "pesa_receipt", "acmeReceipt", "ACME_RECEIPT")),
        *(({"acme_receipt": value}, None) for value in (None, "", " ", "N/A", 0, ["QK1"])),
        ({"acme_receipt": 1234567890}, "1234567890"),
        *(({"acme_receipt": "QK1", "acmeReceipt": value}, "QK1") for value in ("QK1", None, "")),
        ({"acme_receipt": "QK1", "receipt": "QK2"}, None),
        *(({name: "QK1"}, None) for name in ("receipt_url", "receiptNumber")),
    ],
)
def test_the_field_that_is_named_so_is_the_receipt(drive: Drive, fields: dict[str, Any], receipt: str | None) -> None:
    read = drive(transport=Recorder(READ.camel | fields).transport)(lambda client: client.transactions.get(ID))
    page = drive(transport=Recorder(a_page(ITEM.snake | fields)).transport)(lambda client: client.transactions.list())
    told = callback_with(**{"momo_receipt": None, **fields})
    found = read.receipt, page.items[0].receipt, told.receipt, told.transaction.receipt, told.transaction.momo_receipt
    assert found == (receipt,) * 5
