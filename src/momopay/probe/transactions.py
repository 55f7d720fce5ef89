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
FEES: Final = frozenset({"transactionFee", "transaction_fee"})
_MOST_READS: Final = 5
_NAIROBI: Final = 3.0  # hours ahead of UTC


def look_at_history(wire: Wire, findings: Findings, history: History) -> None:
    """Compare an item of the list with the read of the same transaction."""
    if not history.items:
        return
    # An item that shows a fee says more than another one.
    with_fee = (item for item in history.items if item.fee and item.status.upper() in _SHOW_FEES)
    item = next(with_fee, history.items[0])
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
    top_ups = sorted({each for each in types if "top" in each.lower()})
    if top_ups:
        findings.add("top_up_type", ", ".join(top_ups), "A top-up in the list has this type.", answer)
    if any(item.is_prompt and item.status.upper() == "EXPIRED" for item in items):
        findings.add("expired_reads_as", "EXPIRED", "The list has a prompt with the status EXPIRED.", answer)


def look_at_read(findings: Findings, read: Seen, answer: Answer) -> None:
    """Record what the single read alone shows."""
    names = sorted(read.record)
    findings.add("read_fields", [each for each in names if each not in FEES], "A read has these fields.", answer)
    if read.status.upper() in _SHOW_FEES:
        fee = ", ".join(sorted(FEES.intersection(names))) or "none"
        findings.add("read_fee_field", fee, f"The field of the fee in a read: {fee}.", answer)
    # The fee may be in another style than the rest, as in the list.
    rest = [name for name in names if name not in FEES]
    snake, camel = any("_" in name for name in rest), any(not name.islower() for name in rest)
    value = UNKNOWN if snake == camel else "snake_case" if snake else "camelCase"
    some = [name for name in names if "_" in name or not name.islower()][:3]
    findings.add("naming", value, f"A read has fields such as {', '.join(some)}.", answer)
    created = instant(read.created)
    if created is not None:
        zone = "no zone" if created.tzinfo is None else "Z" if read.created.endswith("Z") else "an offset"
        findings.add("read_times", zone, f"The times of the read have {zone}.", answer)


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
    fee = item.fee or read.fee
    if item.amount is None or read.amount is None or not fee:
        return
    added = item.amount - read.amount
    value = "amount" if not added else "with_fee" if added == fee else UNKNOWN
    more = "the same" if not added else "more by the fee" if added == fee else "another one"
    findings.add("list_amount", value, f"The amount in the list is {more} as in the read.", listed, answer)


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
