"""What the account's transactions show: naming, formats of the list, and how prompts end."""

from __future__ import annotations

from itertools import islice
from typing import Final

from momopay.probe.answers import Answer
from momopay.probe.findings import UNKNOWN, Findings
from momopay.probe.history import History, Seen, hours_ahead, instant
from momopay.probe.reads import read_one
from momopay.probe.wire import Wire

_CANCELLED_BY_USER: Final = "1032"
_SHOW_FEES: Final = frozenset({"SUCCESS", "PENDING"})  # elsewhere a fee is 0, or missing
# The names in a read whose style is specified twice. The fee may be in another style than the rest, as in the list.
_SNAKE: Final = frozenset(
    {
        "transaction_id",
        "phone_number",
        "external_reference",
        "provider_request_id",
        "provider_checkout_id",
        "result_code",
        "result_desc",
        "created_at",
        "updated_at",
    }
)
_CAMEL: Final = frozenset(
    {
        "transactionId",
        "tenantId",
        "channelId",
        "accountReference",
        "transactionDesc",
        "providerRequestId",
        "providerCheckoutId",
        "resultCode",
        "resultDesc",
        "createdAt",
        "updatedAt",
    }
)
FEES: Final = frozenset({"transactionFee", "transaction_fee"})
_MOST_READS: Final = 5
_NAIROBI: Final = 3.0  # hours ahead of UTC


def look_at_history(wire: Wire, findings: Findings, history: History) -> None:
    """Compare an item of the list with the read of the same transaction."""
    if not history.items:
        return
    # An item that shows a fee says more than another one, and one that may show it more than one that does not.
    ended_well = [item for item in history.items if item.status.upper() in _SHOW_FEES] or history.items
    item = next((each for each in ended_well if each.fee), ended_well[0])
    look_at_list(findings, history)
    read, answer = read_one(wire, item.id)
    if read.id == item.id:
        look_at_read(findings, read, answer)
        compare(findings, item, history.answer, read, answer)
    look_for_cancelled(wire, findings, history)


def look_at_list(findings: Findings, history: History) -> None:
    """Record what the list alone shows."""
    items, answer = history.items, history.answer
    names = {name for item in items for name in item.record}
    findings.add("list_fields", sorted(names - FEES), "Items of the list have these fields.", answer)
    fee = ", ".join(sorted(names & FEES)) or "none"
    findings.add("list_fee_field", fee, f"The field of the fee in the list: {fee}.", answer)
    types = {item.type for item in items if item.type}
    styles = {"upper" if each.isupper() else "lower" if each.islower() else "other" for each in types}
    if styles:
        sentence = f"The types in the list are {', '.join(sorted(types))}."
        findings.add("list_type", styles.pop() if len(styles) == 1 else UNKNOWN, sentence, answer)
    phones = {item.phone.lstrip("+").isdigit() for item in items if item.phone}
    if phones:
        value = UNKNOWN if len(phones) > 1 else "whole" if phones.pop() else "masked"
        findings.add("list_phone", value, f"The phones in the list are {value}.", answer)
    top_ups = sorted({item.type for item in items if item.is_top_up})
    if top_ups:
        findings.add("top_up_type", ", ".join(top_ups), "A top-up in the list has this type.", answer)
    if any(item.is_prompt and item.has_expired for item in items):
        findings.add("expired_reads_as", "EXPIRED", "The list has a prompt with the status EXPIRED.", answer)


def look_at_read(findings: Findings, read: Seen, answer: Answer) -> None:
    """Record what the single read alone shows."""
    names = sorted(read.record)
    findings.add("read_fields", [each for each in names if each not in FEES], "A read has these fields.", answer)
    if read.status.upper() in _SHOW_FEES:
        fee = ", ".join(sorted(FEES.intersection(names))) or "none"
        findings.add("read_fee_field", fee, f"The field of the fee in a read: {fee}.", answer)
    # Fields that nothing is specified about, such as `_links`, say nothing about the two styles that are.
    snake, camel = sorted(_SNAKE.intersection(names)), sorted(_CAMEL.intersection(names))
    value = UNKNOWN if bool(snake) == bool(camel) else "snake_case" if snake else "camelCase"
    some = (snake[:2] + camel[:2]) or names[:3]
    findings.add("naming", value, f"A read has fields such as {', '.join(some)}.", answer)
    created = instant(read.created)
    if created is not None:
        zone = "no zone" if created.tzinfo is None else "Z" if read.created.endswith("Z") else "an offset"
        findings.add("read_times", zone, f"The times of the read have {zone}.", answer)
    else:
        findings.add("read_times", UNKNOWN, "The times of the read are not ISO 8601.", answer)


def compare(findings: Findings, item: Seen, listed: Answer, read: Seen, answer: Answer) -> None:
    """Record where an item of the list differs from the read of the same transaction."""
    here, there = instant(item.created), instant(read.created)
    if here is not None and here.tzinfo is not None:
        findings.add("list_times", "utc", "The times of the list name their zone.", listed)
    elif here is not None and there is not None and there.tzinfo is not None:
        hours = hours_ahead(here, there)
        value = "local" if hours == _NAIROBI else UNKNOWN
        findings.add(
            "list_times",
            value,
            f"The times of the list have no zone, and are {hours:g} h ahead of UTC.",
            listed,
            answer,
        )
    else:
        shown = "have no zone, as those of the read" if here is not None and there is not None else "are not comparable"
        findings.add("list_times", UNKNOWN, f"The times of the list {shown}.", listed, answer)
    fee = item.fee or read.fee
    if item.amount is None or read.amount is None or not fee:
        return
    added = item.amount - read.amount
    value = "amount" if not added else "with_fee" if added == fee else UNKNOWN
    more = (
        "that of the read"
        if not added
        else "more by the fee"
        if added == fee
        else "neither that of the read nor that and the fee"
    )
    findings.add("list_amount", value, f"The amount in the list is {more}.", listed, answer)


def look_for_cancelled(wire: Wire, findings: Findings, history: History) -> None:
    """Find a prompt that its customer cancelled: by its status, or by the result code of one that failed."""
    ended = (item for item in history.items if item.is_prompt and item.status.upper() in {"CANCELLED", "FAILED"})
    for item in islice(ended, _MOST_READS):
        if item.status.upper() == "CANCELLED":
            findings.add("cancel_ends_as", "CANCELLED", "The list has a prompt with that status.", history.answer)
            return
        read, answer = read_one(wire, item.id)
        if read.result_code == _CANCELLED_BY_USER:
            sentence = f"A prompt with the result code {_CANCELLED_BY_USER} has the status {read.status}."
            findings.add("cancel_ends_as", read.status.upper(), sentence, answer)
            return
