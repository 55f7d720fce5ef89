"""Enumerations: known values are members, unknown ones keep their text and are never terminal."""

import copy
import json
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import momopay
from in_turn import in_turn
from momopay.models.enums import Stage, end_of, has_settled, stage_of

ENUMS: dict[Any, list[str]] = {
    momopay.TransactionStatus: ["PENDING", "PROCESSING", "SUCCESS", "FAILED", "REVERSED", "CANCELLED", "EXPIRED"],
    momopay.TransactionType: ["STK", "B2C", "WALLET_TOPUP"],
    momopay.ChannelType: ["PAYBILL", "TILL_NUMBER", "SEND_MONEY"],
    momopay.EventType: ["transaction.success", "transaction.failed", "transaction.cancelled", "transaction.expired"],
    momopay.ResultCode: ["0", "1", "17", "20", "1032", "1037"],
}
each_enum = in_turn("kind", ENUMS)


@each_enum
def test_an_enum_has_the_values_of_the_service_and_no_more(kind: Any) -> None:
    kind("SEEN_BEFORE")
    assert sorted(each.value for each in kind) == sorted(ENUMS[kind])
    assert all(kind(value) is kind(value) for value in ENUMS[kind])


@in_turn(
    ("text", "member"),
    [
        *(("b2c", momopay.TransactionType.B2C), ("STK_PUSH", momopay.TransactionType.STK)),
        *(("stk-push", momopay.TransactionType.STK), ("wallet_top_up", momopay.TransactionType.WALLET_TOPUP)),
        *(("Success", momopay.TransactionStatus.SUCCESS), ("canceled", momopay.TransactionStatus.CANCELLED)),
        ("Transaction.SUCCESS", momopay.EventType.SUCCESS),
    ],
)
def test_another_spelling_that_is_unmistakable_is_known(text: str, member: Any) -> None:
    assert type(member)(text) is member


@each_enum
@pytest.mark.parametrize("text", ["WEIRD", "SUCCESS ", "\u017fuccess", "0000", "", "ünïcode", "name", "__class__"])
def test_an_unknown_value_keeps_its_text(kind: Any, text: str) -> None:
    member = kind(text)
    assert isinstance(member, kind)
    assert member == text == member.value == str(member) == f"{member}" == json.loads(json.dumps(member))
    assert {text: 1}[member] == 1
    assert member != ENUMS[kind][0]


@each_enum
def test_members_survive_copying(kind: Any) -> None:
    for unknown in (copy.copy(kind("WEIRD")), copy.deepcopy(kind("WEIRD")), pickle.loads(pickle.dumps(kind("WEIRD")))):
        assert (type(unknown), unknown.value, hash(unknown)) == (kind, "WEIRD", hash("WEIRD"))
    for member in kind:
        assert copy.copy(member) is copy.deepcopy(member) is pickle.loads(pickle.dumps(member)) is member


@in_turn("value", [None, 5, b"SUCCESS", ["SUCCESS"]])
def test_what_is_no_text_is_no_member(value: Any) -> None:
    with pytest.raises(ValueError, match="not a valid"):
        momopay.TransactionStatus(value)


TERMINAL = {"SUCCESS", "FAILED", "REVERSED", "CANCELLED", "EXPIRED"}


@given(st.text() | st.sampled_from(ENUMS[momopay.TransactionStatus]))
def test_only_the_known_ends_are_terminal(text: str) -> None:
    status = momopay.TransactionStatus(text)
    assert status.is_terminal is (status in TERMINAL)
    assert (status in TERMINAL) is (text.upper() in {*TERMINAL, "CANCELED"} and text.isascii())
    assert status.ended_without_success is (status in TERMINAL - {"SUCCESS"})
    assert has_settled(momopay.TransactionType.B2C, status) is (status in TERMINAL - {"FAILED"})
    assert has_settled(momopay.TransactionType.STK, status) is (status in TERMINAL)
    assert end_of(status) == ("FAILED" if status in TERMINAL - {"SUCCESS", "REVERSED"} else status)
    assert stage_of(status) is (
        Stage.PAID if status == "SUCCESS" else Stage.ENDED if status in TERMINAL else Stage.OPEN
    )
    assert stage_of(None) is Stage.OPEN
