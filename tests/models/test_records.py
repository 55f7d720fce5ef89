"""What all records do: parse in both styles, keep what is unknown, stay as they are, and know their response."""

import copy
import pickle
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pydantic
import pytest

import momopay
from in_turn import in_turn
from models.kit import (
    CREATED_AT,
    ID,
    ITEM,
    MASKED,
    PAYOUT,
    PHONE,
    READ,
    SAMPLES,
    STK,
    TOP_UP,
    UPDATED_AT,
    Sample,
    parse,
    with_literal,
)
from momopay.models import records
from momopay.models.requests import StkRequest

INFO = momopay.types.ResponseInfo("r-1", 200, {"x-served-by": "node-7"}, attempts=2, elapsed=0.5)
each_record = in_turn("sample", SAMPLES.values())


def received(sample: Sample, **changes: Any) -> Any:
    record = parse(sample.kind, {**sample.camel, **changes})
    records.note_response(record, INFO)
    return record


@each_record
@pytest.mark.parametrize("style", ["camel", "snake"])
def test_a_record_parses_in_either_naming_style(sample: Sample, style: str) -> None:
    record = parse(sample.kind, getattr(sample, style))
    assert type(record) is sample.kind
    assert {name: getattr(record, name) for name in sample.fields} == sample.fields
    assert not record.model_extra


@in_turn(("sample", "own"), [(STK, "account_reference"), (READ, "account_reference"), (PAYOUT, "reference")])
@in_turn("spelling", ["reference", "accountReference", "account_reference", "externalReference", "external_reference"])
@in_turn("phone", ["phone", "phone_number", "phoneNumber"])
def test_every_name_of_reference_and_phone_is_understood(sample: Sample, own: str, spelling: str, phone: str) -> None:
    others = {"accountReference", "reference", "phone"}
    data = {name: value for name, value in sample.camel.items() if name not in others}
    record = parse(sample.kind, {**data, spelling: "REF-9", phone: "07XX"})
    assert (getattr(record, own), record.phone) == ("REF-9", "07XX")
    other = {"accountReference": "", "reference": 7, "externalReference": "the last that counts"}
    assert received(READ, **(other | {spelling: "REF-9"})).account_reference == "REF-9"
    assert received(PAYOUT, reference="", externalReference="REF-9").reference == "REF-9"


@each_record
def test_unknown_fields_are_kept(sample: Sample) -> None:
    record = parse(sample.kind, {**sample.camel, "loyaltyTier": {"name": "gold", "points": [1, 2]}})
    assert (
        record.model_extra == {"loyaltyTier": record.loyaltyTier} == {"loyaltyTier": {"name": "gold", "points": [1, 2]}}
    )


@in_turn("name", ["customer_name", "customerName", "payer_name", "recipientFullName", "lastName"])
def test_a_persons_name_and_the_query_of_a_callback_url_are_masked(name: str) -> None:
    url = "https://shop.example/momo?a=1\n&momo_token=494e.0f9a"
    for url_name in ("callback_url", "callbackUrl"):
        record = parse(STK.kind, {**STK.camel, name: "Jane", url_name: url, "provider_name": "M"})
        assert f"{name}='*****'" in repr(record)
        assert "Jane" not in str(record)
        assert f"{url_name}='https://shop.example/momo?*****', provider_name='M'" in repr(record)
        assert (getattr(record, name), getattr(record, url_name)) == ("Jane", url)
    request = StkRequest.checked(amount=1, phone=PHONE, callback_url="https://shop.example/momo?token=secret")
    assert "secret" not in repr(request)


@in_turn("name", ["response", "_response", "model_config", "model_extra", "model_fields", "__dict__", "__class__", ""])
def test_an_unknown_field_of_an_awkward_name_does_no_harm(name: str) -> None:
    record = received(READ, **{name: {"request_id": "forged"}})
    assert record.response == INFO
    assert record.status == "SUCCESS"
    assert MASKED in repr(record)
    assert pickle.loads(pickle.dumps(record)).transaction_id == ID


@each_record
def test_a_record_is_frozen(sample: Sample) -> None:
    record = received(sample)
    for name in [*sample.fields, "response", "brand_new"]:
        with pytest.raises((pydantic.ValidationError, AttributeError)):
            setattr(record, name, "changed")


COPIES: dict[str, Callable[[Any], Any]] = {
    "pickle": lambda record: pickle.loads(pickle.dumps(record)),
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "model_copy": lambda record: record.model_copy(),
}


@each_record
@pytest.mark.parametrize("duplicate", COPIES.values(), ids=COPIES)
def test_a_copy_equals_the_record_and_keeps_all(sample: Sample, duplicate: Callable[[Any], Any]) -> None:
    record = received(sample, type="NEW_TYPE", status="NEW_STATUS", loyalty="gold")
    twin = duplicate(record)
    assert twin == record
    assert (type(twin), twin.loyalty, twin.response) == (sample.kind, "gold", INFO)
    assert repr(twin) == repr(record)
    assert len({twin, record}) == 1
    assert record != received(sample, type="NEW_TYPE", status="NEW_STATUS", loyalty="silver")
    records.note_response(twin, momopay.types.ResponseInfo("r-2", 200, {}, attempts=1, elapsed=0.1))
    assert (twin == record, "_response" in record.model_dump()) == (True, False)


def test_a_record_that_was_made_by_hand_has_no_response() -> None:
    with pytest.raises(AttributeError, match="did not come from the service"):
        _ = parse(READ.kind, READ.camel).response


AMOUNTS = ["1", "100", "99.99", "0.1", "0.07", "100.10", "1e2", "1234567.89", "9999999999999.99"]


@in_turn("literal", AMOUNTS)
def test_an_amount_is_exact(literal: str) -> None:
    amount = parse(READ.kind, with_literal(READ.camel, "amount", literal)).amount
    assert (type(amount), amount) == (Decimal, Decimal(literal))


@in_turn("literal", ["NaN", "Infinity", "-Infinity", "true", "null", '"much"', "[]", "{}"])
def test_an_amount_that_is_no_number_is_refused(literal: str) -> None:
    with pytest.raises(pydantic.ValidationError):
        parse(READ.kind, with_literal(READ.camel, "amount", literal))


@pytest.mark.usefixtures("in_nairobi")
@in_turn(
    ("text", "instant"),
    [
        ("2025-03-01T10:15:30Z", datetime(2025, 3, 1, 10, 15, 30, tzinfo=UTC)),
        ("2025-03-01T10:15:30.123456Z", datetime(2025, 3, 1, 10, 15, 30, 123456, tzinfo=UTC)),
        ("2025-03-01T13:15:30+03:00", datetime(2025, 3, 1, 13, 15, 30, tzinfo=timezone(timedelta(hours=3)))),
        ("2025-03-01T10:15:30", datetime(2025, 3, 1, 10, 15, 30, tzinfo=UTC)),
    ],
)
def test_times_are_aware(text: str, instant: datetime) -> None:
    created = parse(READ.kind, {**READ.camel, "createdAt": text}).created_at
    assert created.utcoffset() is not None
    assert created == instant


@in_turn("code", ['"1032"', "1032"])
def test_a_result_code_may_be_text_or_a_number(code: str) -> None:
    found = parse(READ.kind, with_literal(READ.camel, "resultCode", code)).result_code
    assert found is momopay.ResultCode.CANCELLED_BY_USER


@in_turn("success", ["false", "null", '"true"'])
def test_an_envelope_that_is_no_success_is_refused(success: str) -> None:
    with pytest.raises(pydantic.ValidationError, match="success"):
        records.Envelope[dict[str, int]].model_validate_json(f'{{"success": {success}, "data": {{}}}}')


def test_half_a_character_costs_no_more_than_itself(caplog: pytest.LogCaptureFixture) -> None:
    body = b'{"success": true, "data": {"text": "a\\ud83db"}}'
    assert records.parse_json(records.Envelope[dict[str, str]], body).data == {"text": "a\ufffdb"}
    assert "no Unicode" in caplog.text
    with pytest.raises(pydantic.ValidationError):
        records.parse_json(records.Envelope[dict[str, str]], body[:-1])


class Numbers(records.Record):
    numbers: records.Items[int]


@pytest.mark.parametrize("style", ["camel", "snake"])
def test_what_a_record_says_is_not_replaced_by_what_is_known(style: str) -> None:
    data = {**getattr(STK, style), "currency": 7}
    record = records.parse_incomplete(STK.kind, data, {"phone": "0700", "created_at": UPDATED_AT}, ["amount"])
    assert (record.phone, record.created_at, record.currency) == (PHONE, CREATED_AT, "KES")
    with pytest.raises(pydantic.ValidationError, match="amount"):
        records.parse_incomplete(STK.kind, {**data, "amount": "much"}, {"amount": 5}, ["amount"])


def test_a_list_is_refused_at_its_first_error() -> None:
    with pytest.raises(pydantic.ValidationError) as caught:
        Numbers.model_validate({"numbers": ["no"] * 1000})
    assert caught.value.error_count() == 1


def test_problems_are_described_by_place_and_without_values() -> None:
    with pytest.raises(pydantic.ValidationError) as caught:
        parse(ITEM.kind, {"transactionId": "", "amount": "254712345678x"})
    text = records.describe(caught.value)
    assert "data.transactionId: " in text
    assert [each.partition(".")[0] for each in text.split("; ")] == ["data"] * 5  # the first five of more
    with pytest.raises(pydantic.ValidationError) as alone:
        READ.kind.model_validate({"amount": "254712345678x"})
    with pytest.raises(pydantic.ValidationError) as broken:
        records.parse_json(READ.kind, b"[")
    assert records.describe(broken.value).startswith("body: ")
    assert "712345678" not in f"{text}{caught.value}{caught.value!r}{alone.value}"


@in_turn(("sample", "kind"), [(STK, "STK"), (TOP_UP, "WALLET_TOPUP"), (PAYOUT, "B2C")])
def test_a_payment_needs_no_more_than_its_id_status_amount_phone_and_times(sample: Sample, kind: str) -> None:
    needed = ("transactionId", "status", "amount", "phone", "createdAt", "updatedAt")
    record = parse(sample.kind, {name: sample.camel[name] for name in needed})
    assert (record.type, record.currency, record.channel_id) == (kind, "KES", None)


# Models show phones masked wherever they are, and everything else whole.


WITH_PHONE = [sample for sample in SAMPLES.values() if "phone" in sample.camel]


def shown(record: Any) -> list[str]:
    return [repr(record), str(record), f"{record}", repr([record])]


@in_turn("sample", WITH_PHONE)
@in_turn("phone", [PHONE, "07XX", "", "+1 202 555 0100"])
def test_any_phone_is_read_and_masked_wherever_a_record_is_shown(sample: Sample, phone: str) -> None:
    record = parse(sample.kind, {**sample.camel, "phone": phone})
    for text in shown(record):
        assert f"phone='{phone[:4]}*****{phone[-3:]}'" in text
        assert "712345678" not in text
    assert record.phone == phone


@in_turn(
    "value",
    [
        *(PHONE, f"+{PHONE}", "0712345678", "254112345678", int(PHONE), float(PHONE), f"paid by {PHONE}, thanks"),
        *({"msisdn": PHONE}, {PHONE: "payer"}, [PHONE], [{"payers": [{"phone": f"+{PHONE}"}]}]),
    ],
)
def test_a_phone_in_an_unknown_field_is_masked(value: Any) -> None:
    record = parse(READ.kind, {**READ.camel, "phone": "", "payer": value})
    for text in shown(record):
        assert "12345678" not in "".join(each for each in text if each.isdigit())
    assert record.payer == value


@in_turn("name", ["transactionId", "tenantId", "channelId", "orderId", "id"])
def test_ids_are_shown_whole(name: str) -> None:
    assert f"'{PHONE}'" in repr(parse(READ.kind, {**READ.camel, name: PHONE}))


@pytest.mark.parametrize(
    "number", ["1E+999999999", "-1e999999999", "1E-999999999", "1E300", "9" * 300, f"0.{'1' * 298}"]
)
def test_a_number_of_absurd_size_stays_text(number: str) -> None:
    """To make an int of it, as a field for a time does, would take minutes."""
    assert records.parse_plain(f'{{"a": {number}, "b": 1.50}}'.encode()) == {"a": number, "b": Decimal("1.50")}
    assert records.parse_plain(b"9" * 299) == 10**299 - 1
