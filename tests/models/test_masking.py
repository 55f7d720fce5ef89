"""Models show phones masked wherever they are, and everything else whole."""

from __future__ import annotations

from typing import Any

import pytest

import momopay
from models.kit import ID, MASKED, PAGE, PHONE, READ, SAMPLES, TENANT, Sample, parse

WITH_PHONE = {name: sample for name, sample in SAMPLES.items() if "phone" in sample.camel}


def shown(record: Any) -> list[str]:
    return [repr(record), str(record), f"{record}", repr([record])]


@pytest.mark.parametrize("sample", WITH_PHONE.values(), ids=WITH_PHONE)
def test_the_phone_is_masked_wherever_a_record_is_shown(sample: Sample) -> None:
    record = parse(sample.kind, sample.camel)
    for text in shown(record):
        assert MASKED in text
        assert "712345678" not in text
    assert record.phone == PHONE


def test_the_phones_of_a_page_are_masked() -> None:
    page = parse(momopay.TransactionPage, PAGE)
    for text in shown(page):
        assert text.count(MASKED) == 2
        assert "712345678" not in text


@pytest.mark.parametrize(
    "value",
    [
        *(PHONE, f"+{PHONE}", "0712345678", "254112345678", int(PHONE), float(PHONE), f"paid by {PHONE}, thanks"),
        *({"msisdn": PHONE}, {PHONE: "payer"}, [PHONE], [{"payers": [{"phone": f"+{PHONE}"}]}]),
    ],
    ids=repr,
)
def test_a_phone_in_an_unknown_field_is_masked(value: Any) -> None:
    record = parse(READ.kind, {**READ.camel, "phone": "", "payer": value})
    for text in shown(record):
        assert "12345678" not in "".join(each for each in text if each.isdigit())
    assert record.payer == value


@pytest.mark.parametrize(
    "text", [PHONE, f"+{PHONE}", "for 254712345678.", "0712-345-678", "A254712345678", "wage0712345678"]
)
@pytest.mark.parametrize("name", ["accountReference", "transactionDesc", "resultDesc", "provider"])
def test_a_phone_in_a_text_field_is_masked(name: str, text: str) -> None:
    record = parse(READ.kind, {**READ.camel, name: text})
    assert all(text not in each for each in shown(record))
    assert text in record.model_dump(by_alias=True).values()


@pytest.mark.parametrize("name", ["transactionId", "tenantId", "channelId", "orderId"])
def test_ids_are_shown_whole(name: str) -> None:
    assert f"'{PHONE}'" in repr(parse(READ.kind, {**READ.camel, name: PHONE}))


def test_what_is_no_phone_is_shown_whole() -> None:
    text = repr(parse(READ.kind, READ.camel))
    for part in (ID, TENANT, "INV-42", "100.5", "SUCCESS"):
        assert part in text
