"""What reads show: records and how their values are written, refusals, the list's parameters, and the rate limit."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final
from urllib.parse import quote
from uuid import uuid4

from pydantic import ValidationError

from momopay import ResultCode, TransactionStatus, TransactionType
from momopay.errors import APIConnectionError, InvalidApiKeyError, ProtocolError
from momopay.models.records import describe
from momopay.models.requests import read_partly
from momopay.models.transactions import Transaction as ReadableTransaction
from momopay.models.transactions import TransactionPage
from momopay.probe.profile import BY_NAME, Findings, Value
from momopay.probe.wire import MAX_TEXT, THROTTLED, UNAUTHORIZED, WINDOW, Answer, Transaction, Wire, amount_of, field_of

BALANCE: Final = "/wallets/service/balance"
CHANNELS: Final = "/payment-wallet/channels"
LIST: Final = "/transactions"
PAYOUTS: Final = "/b2c/payouts"
_OF_NOTHING: Final = ("transaction_not_found", "malformed_transaction_id", "unknown_path")
_FIRST_ROWS: Final = ("balance_read", "channels_read", "list_read", "payout_wallet_read", *_OF_NOTHING)
_NONSENSE: Final = "MOMOPAY_PROBE"
# Values that are invalid, or that are not specified.
_PARAMETERS: Final = (
    ("limit_of_zero", "limit", "0"),
    ("limit_above_100", "limit", "101"),
    ("unknown_status_filter", "status", _NONSENSE),
    ("invalid_cursor", "cursor", _NONSENSE),
    ("invalid_time_filter", "from", _NONSENSE),
    ("invalid_amount_filter", "amountMin", _NONSENSE),
    ("invalid_channel_filter", "channelId", _NONSENSE),
    ("unknown_parameter", "momopayProbe", _NONSENSE),
)
_SHOW_FEES: Final = frozenset({"SUCCESS", "PENDING"})  # in other statuses the fee is 0 or missing
_NAIROBI: Final = 3.0  # hours ahead of UTC
_FEES, _CURSORS = ("transactionFee", "transaction_fee"), ("nextCursor", "next_cursor")
_BALANCES: Final = ("availableBalance", "available_balance", "ledgerBalance", "ledger_balance")
_TIMES: Final = ("createdAt", "created_at", "updatedAt", "updated_at")
_PHONES: Final = ("phone", "phoneNumber", "phone_number")
_LIMIT_HEADERS: Final = ("x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset")
_RECEIPT: Final = re.compile("[A-Za-z_]{0,32}([Rr]eceipt|RECEIPT)")  # the names that the sandbox's switch can have
_TOP_UPS: Final = ("WALLET_TOPUP", "WALLET_TOPUP_SERVICE_TOKENS")


def _instant(text: str) -> datetime | None:
    """Return a time, which may have no zone; None if the text is not ISO 8601."""
    try:
        return None if text.isdigit() else datetime.fromisoformat(text)  # 20261120 may be seconds
    except ValueError:
        return None


def _style_of_time(value: object) -> str:
    """Return how a time is written: with Z, with an offset or without a zone; or else its pattern."""
    when = _instant(str(value))
    if when is None:
        return _pattern(value)
    return "no zone" if when.tzinfo is None else "Z" if str(value).endswith("Z") else "an offset"


def _style_of_phone(value: object) -> str:
    """Return how a phone is written: "whole" as specified, "masked", or else its pattern."""
    if isinstance(value, str) and re.fullmatch(r"254[0-9]{9}", value):
        return "whole"
    return "masked" if re.fullmatch(r"\+?[0-9]+[*xX\u2022.]+[0-9]*", str(value)) else _pattern(value)


def _style_of_amount(value: object) -> str:
    """Return how an amount is written: as a number or as text, or else its pattern."""
    if amount_of(value) is None:
        return re.sub("#+", "#", _pattern(value))  # so that 1,000 KES and 500,000 KES have the same pattern
    return "text" if isinstance(value, str) else "numbers"


def _style_of_word(word: object, specified: Container[str]) -> str:
    """Return the case of a word that the service page lists; any other word is returned as it is."""
    text = str(word)
    if text.upper() not in specified:
        return text[:MAX_TEXT]
    return "upper" if text.isupper() else "lower" if text.islower() else "mixed case"


def _pattern(value: object) -> str:
    # Each digit becomes "#" and each word "a", so that the pattern holds no personal data.
    pattern = re.sub(r"[^\W\d]+", "a", re.sub(r"\d", "#", str(value)))[:MAX_TEXT]
    return pattern if isinstance(value, str) else f"{type(value).__name__} {pattern}"


# For each style of a value: the end of the row's name, the function that finds it, and the names of the fields.
_STYLES: Final[tuple[tuple[str, Callable[[object], str], tuple[str, ...]], ...]] = (
    ("amounts", _style_of_amount, ("amount", *_FEES, *_BALANCES)),
    ("phone", _style_of_phone, _PHONES),
    ("status", partial(_style_of_word, specified=TransactionStatus.__members__), ("status",)),
    ("type", partial(_style_of_word, specified=(*TransactionType, *_TOP_UPS, "WALLET_TOPUP_B2C")), ("type",)),
    ("time_format", _style_of_time, _TIMES),
    ("result_codes", _style_of_amount, ("resultCode", "result_code")),
)
_HALF: Final = 30.0  # seconds
_EARLY: Final = 5
_MOST: Final = 100  # requests that are sent to find the limit
# Fields that the service page names in both styles. The fee is left out: its style may differ, as in the list.
_STYLED: Final = ("transactionId", "transaction_id", "resultCode", "result_code", *_TIMES)


def read_account(wire: Wire, findings: Findings) -> tuple[Answer, Answer]:
    """Read the wallet, the channels, the list, and paths that do not exist; return the channels and the list."""
    balance = wire.get(BALANCE)
    if balance.status is None and wire.send("GET", LIST).status is None:  # nothing answers, which no repeat changes
        raise APIConnectionError(f"the service was not reached, or failed at every read ({balance.summary})")
    balance, channels, listed = first = [balance, wire.get(CHANNELS), read_list(wire)]
    if all(answer.status == UNAUTHORIZED for answer in first):
        raise InvalidApiKeyError("the service refused the key", code=balance.code or None, status_code=UNAUTHORIZED)
    paths = ("/wallets/b2c/balance", f"{LIST}/{uuid4()}", f"{LIST}/momopay-probe", "/momopay-probe")
    payout_wallet, missing, malformed, nowhere = others = [wire.get(path) for path in paths]
    # Checked before anything is written or sent, and before a proxy's pages could replace an earlier profile.
    shown = ", ".join(sorted({answer.summary for answer in wire.reads}))
    if all(answer.is_failure for answer in wire.reads):
        raise APIConnectionError(f"the service was not reached, or failed at every read ({shown})")
    if not any("success" in answer.envelope for answer in wire.reads):
        raise ProtocolError(f"no answer has the service's envelope ({shown})", status_code=balance.status)
    for name, answer in zip(_FIRST_ROWS, (*first, *others), strict=True):
        findings.add_outcome(name, answer)
    for name, answer in (("channel_reads", channels), ("more_endpoints", payout_wallet)):
        is_missing = answer.is_refusal and answer.summary == nowhere.summary
        findings.add(name, True if answer.is_success else False if is_missing else None, answer)
    for what, answer in (("a transaction that does not exist", missing), ("an id that is no UUID", malformed)):
        if answer.is_refusal and answer.code not in {"TRANSACTION_NOT_FOUND", "INVALID_UUID"}:
            findings.unusable.add(f"the refusal of {what}: {answer.summary}")
    forms = {missing.summary: False, "400 INVALID_UUID": True}
    seen = forms.get(malformed.summary, malformed.summary) if malformed.is_refusal else None
    findings.add("invalid_uuid", seen, malformed)
    if not wire.key.startswith("pk_") and any(answer.is_success for answer in first):
        findings.add("key_prefixes", "any", *first, sentence="The key does not begin with pk_, and was accepted.")
    raw = wire.send("GET", BALANCE, headers={"Authorization": f"Basic {wire.key}"})
    is_known = balance.is_success and raw.status in {balance.status, UNAUTHORIZED}
    findings.add("raw_keys", raw.is_success if is_known else None, raw)
    is_service = "success" in missing.envelope or missing.is_failure  # not a proxy's page
    findings.add("transaction_not_found_status", missing.status if is_service else None, missing)
    _add_records(findings, "balance", [balance.data], balance)
    _add_records(findings, "channel_page", [channels.data], channels)
    _add_records(findings, "channel", channels.items, channels)
    return channels, listed


def read_list(wire: Wire) -> Answer:
    """Return the newest transactions."""
    return wire.get(LIST, limit="100")


def read_one(wire: Wire, transaction_id: str) -> tuple[Transaction, Answer]:
    """Read one transaction by its id."""
    answer = wire.get(f"{LIST}/{quote(transaction_id, safe='')}")
    return Transaction(answer.data), answer


def look_at_transactions(wire: Wire, findings: Findings, listed: Answer) -> None:
    """Record what the list and reads of its transactions show, and how the list treats its parameters."""
    look_at_list(findings, listed)
    if listed.is_success:
        _ask_for_parameters(wire, findings, listed)
    if not listed.transactions:
        return
    # The newest of the transactions that show most: one with a fee or that may have one, and one that has ended.
    item = max(
        listed.transactions, key=lambda each: (bool(each.fee), each.status in _SHOW_FEES, each.status != "PENDING")
    )
    look_at_read(findings, item, listed, *read_one(wire, item.id))
    here = _instant(item.created)
    if here is not None and findings.found["list_times"].seen is None:
        # The read has no time to compare with. Ask for what was created when it was that time in Nairobi.
        moments = (here - timedelta(hours=_NAIROBI, seconds=-seconds) for seconds in (0, 1))
        since, until = (f"{moment.isoformat()}Z" for moment in moments)
        answer = wire.get(LIST, **{"from": since, "to": until})
        is_local = item.id in {each.id for each in answer.transactions}
        findings.add("list_times", "local" if is_local else None, answer, sentence="A filter compared them with UTC.")
    for prompt in [each for each in listed.transactions if each.is_prompt and each.status == "FAILED"][:5]:
        if findings.found["cancel_ends_as"].seen is None:
            look_at_end(findings, *read_one(wire, prompt.id))


def look_at_list(findings: Findings, listed: Answer) -> None:
    """Record what the list alone shows."""
    _add_records(findings, "page", [listed.data], listed)
    if listed.is_success and listed.envelope:
        _look_for_unusable(findings, "a page of the list", TransactionPage, listed)
        findings.add("overview", "overview" in listed.data if "items" in listed.data else None, listed)
    top_ups = sorted({item.type for item in listed.transactions if item.type in _TOP_UPS})
    findings.add("topup_type", one_or_all(top_ups), listed)
    _add_naming(findings, "item_naming", listed.items, listed)
    cursor = next((name for name in _CURSORS if name in listed.data), None)
    findings.add("cursor_field", cursor, listed)
    _add_records(findings, "list", listed.items, listed)
    for item in listed.transactions:
        if item.is_prompt:
            look_at_end(findings, item, listed)


def look_at_end(findings: Findings, prompt: Transaction, answer: Answer, *, is_without_pin: bool = False) -> None:
    """Record how a prompt ended, if it was cancelled or has expired."""
    code = prompt.result_code if prompt.status == "FAILED" else ""
    is_cancelled = prompt.status == "CANCELLED" or code == ResultCode.CANCELLED_BY_USER
    is_expired = prompt.status == "EXPIRED" or (is_without_pin and code == ResultCode.TIMEOUT)
    row = "cancel_ends_as" if is_cancelled else "expired_reads_as"
    sentence = f"A prompt has the status {prompt.status} and the result code {prompt.result_code or 'none'}."
    if is_cancelled or is_expired:
        findings.add(row, prompt.status, answer, sentence=sentence)


def look_at_read(findings: Findings, item: Transaction, listed: Answer, read: Transaction, answer: Answer) -> None:
    """Record what the read of a transaction shows, and where the list's item differs from it."""
    findings.add_outcome("transaction_read", answer)
    if not answer.is_success:
        return
    _add_records(findings, "read", [read.record], answer)
    _look_for_unusable(findings, "a read by id", ReadableTransaction, answer)
    _add_naming(findings, "naming", [read.record], answer)
    findings.add("customer_in_reads", _which(("customer_name", "callback_url"), read.record), answer)
    basic = {"type": read.type, "phone": field_of(read.record, *_PHONES), "times": read.created}
    left_out = _which(basic, [name for name, value in basic.items() if not value])
    findings.add("minimal_answers", left_out, answer)
    receipts = {where: set(filter(_RECEIPT.fullmatch, each.record)) for where, each in (("list", item), ("read", read))}
    names = set[str]().union(*receipts.values())
    findings.add("receipt_field", names.pop() if len(names) == 1 else None, listed, answer)
    shown = [where for where, found in receipts.items() if found]
    if shown or item.status == "SUCCESS":  # other payments may have none for that
        findings.add("receipt_in_reads", _which(receipts, shown), listed, answer)
    _compare_times(findings, item, listed, read, answer)
    fee = item.fee or read.fee
    if item.amount is not None and read.amount is not None and fee:
        added = item.amount - read.amount
        amount = "amount" if not added else "with_fee" if added == fee else "neither"
        findings.add("list_amount", amount, listed, answer, sentence=f"The list has the read's amount and {added:f}.")


def _compare_times(findings: Findings, item: Transaction, listed: Answer, read: Transaction, answer: Answer) -> None:
    """Record how the list's times are written; if they state no zone, by comparing them with the read's."""
    styles = sorted({_style_of_time(item.record[name]) for name in _TIMES if item.record.get(name) is not None})
    seen: str | None = "utc" if {"Z", "an offset"}.issuperset(styles) else ", ".join(styles)
    if styles == ["no zone"]:
        here, there = _instant(item.created), _instant(read.created)
        seen = None
        if here is not None and there is not None and there.tzinfo is not None:
            hours = round((here.replace(tzinfo=UTC) - there) / timedelta(minutes=30)) / 2
            seen = "local" if hours == _NAIROBI else f"{hours:g} h ahead of UTC"
    sentence = f"The times of the list have {', '.join(styles)}; compared with those of the read: {seen or 'unknown'}."
    findings.add("list_times", seen if styles else None, listed, answer, sentence=sentence)


def _ask_for_parameters(wire: Wire, findings: Findings, listed: Answer) -> None:
    """Ask the list with parameters that are invalid, not specified, or no filters of every service."""
    cursor = wire.get(LIST, limit="100", cursor=_NONSENSE)
    findings.add("more_codes", cursor.code == "INVALID_CURSOR" if cursor.is_refusal else None, cursor)
    for name, query in (("time_filters", {"from": "2099-01-01"}), ("more_filters", {"status": "EXPIRED"})):
        answer = wire.get(LIST, limit="100", **query)
        is_ignored = any(each.status != "EXPIRED" for each in answer.transactions)
        taken = (answer.is_success and bool(listed.items)) or None  # an empty list proves no filter
        findings.add(name, False if answer.status in {400, 422} else "ignored" if is_ignored else taken, answer)
    for name, parameter, value in _PARAMETERS:
        answer = cursor if parameter == "cursor" else wire.get(LIST, **{"limit": "100", parameter: value})
        if name == "limit_of_zero" and answer.is_refusal:
            message = answer.error.get("message")
            style = "text" if isinstance(message, str) else "array" if isinstance(message, list) else None
            findings.add("error_messages", style, answer)
        if parameter == "limit" or not (answer.is_success and answer.envelope):
            findings.add_outcome(name, answer)
        else:  # an empty list shows what a filter does only if the list without it has items
            effect = "ignored" if answer.items else "nothing listed"
            findings.add(name, f"accepted, {effect}" if listed.items else None, answer)


def _add_records(findings: Findings, kind: str, records: Sequence[Mapping[str, Any]], answer: Answer) -> None:
    """Record the names of the records' fields, and how their values are written."""
    # Left out, because not every page has a cursor and not every payment has a fee.
    names = {field for record in records for field in record}.difference(_CURSORS, _FEES)
    if records and answer.is_success and answer.envelope:
        findings.add(f"{kind}_fields", sorted(names) or "none", answer)
    for end, style_of, fields in _STYLES:
        found = sorted({style_of(each[name]) for each in records for name in fields if each.get(name) is not None})
        if found and f"{kind}_{end}" in BY_NAME:
            sentence = f"In {len(records)} records: {', '.join(found)}."
            findings.add(f"{kind}_{end}", one_or_all(found), answer, sentence=sentence)


def _add_naming(findings: Findings, row: str, records: Sequence[Mapping[str, Any]], answer: Answer) -> None:
    """Record in which style the fields are named. Other fields than these, such as `_links`, say nothing about it."""
    styled = [name for name in _STYLED if any(name in record for record in records)]
    naming = " and ".join(sorted({"snake_case" if "_" in name else "camelCase" for name in styled})) or "neither"
    if records:
        findings.add(row, naming, answer, sentence=f"It has fields such as {', '.join(styled[:3])}.")


def _look_for_unusable(findings: Findings, what: str, model: type, answer: Answer) -> None:
    """Record what the SDK cannot read of a page or a read, and the statuses that it does not know."""
    try:
        read = read_partly(model, answer.data, {})
    except ValueError as error:
        problem = describe(error) if isinstance(error, ValidationError) else str(error)
        findings.unusable.add(f"{what}: {problem}")
        return
    findings.unusable.update(f"an item of the list: {each.problem}" for each in getattr(read, "unread", ()))
    statuses = {each.status for each in getattr(read, "items", [read])}.difference(TransactionStatus)
    findings.unusable.update(f"the status {status}" for status in statuses)


def one_or_all(found: list[str]) -> Value | None:
    """Return the only one, or all if there are several; None if there is none."""
    return found if len(found) > 1 else found[0] if found else None


def _which(names: Collection[str], there: Container[str]) -> bool | list[str]:
    """Return whether all of the names are there; if only some are, which."""
    found = [name for name in names if name in there]
    return found if 0 < len(found) < len(names) else bool(found)


def add_what_is_common(findings: Findings, reads: Iterable[Answer]) -> None:
    """Record what all answers have in common."""
    sentence = "What the SDK cannot read or use of what was answered."
    findings.add("unusable", sorted(findings.unusable), sentence=sentence)
    # A response without the envelope may come from a proxy.
    enveloped = [each for each in reads if "success" in each.envelope and each.status != THROTTLED]
    successes = [each for each in enveloped if each.is_success]
    if successes:
        findings.add("read_statuses", sorted({str(each.status) for each in successes}), *successes)
        _add_records(findings, "envelope", [each.envelope for each in successes], successes[0])
    headers = {name for each in enveloped for name in each.headers}
    findings.add("rate_limit_headers", _which(_LIMIT_HEADERS, headers), *enveloped)


class _UnclearError(Exception):
    """The window could not be found; the message says why."""


def ask_for_window(wire: Wire, findings: Findings, note: Callable[[str], object]) -> None:
    """Find out how the service counts a minute's requests, by using them up.

    This sends a few requests, and the rest of the limit half a minute later. Once requests pass again, a fixed window
    lets a whole limit through, and a sliding one only as many as were sent first.
    """
    what = "Using up a minute's requests of this key, for three to six minutes"
    note(f"{what}: until a minute after it, other programs with the key get 429.")
    try:
        _find(wire, findings)
    except _UnclearError as error:
        findings.add("rate_window", None, sentence=str(error))
    finally:
        wire.hold(WINDOW)


def _find(wire: Wire, findings: Findings) -> None:
    for _ in range(2):
        wire.sleep(WINDOW)  # so that the window is empty
        _, refused = _send(wire, _EARLY)
        if refused is not None:
            raise _UnclearError("Other programs use the key: the limit was reached too early.")
        wire.sleep(_HALF)
        passed, refused = _send(wire, _MOST)
        if refused is None:
            raise _UnclearError(f"{_MOST} requests in a row got no 429.")
        after, stated = refused.headers.get("retry-after"), refused.details.get("limit")
        findings.add("rate_limit_code", refused.code or None, refused)
        findings.add("retry_after", _style_of_amount(after) if after else "missing", refused)
        limit = stated if isinstance(stated, int) else passed + _EARLY
        pause = refused.pause or WINDOW - _HALF
        if pause > WINDOW:  # waiting for an hour would show nothing about a minute
            raise _UnclearError(f"A 429 asked to wait for {pause:g} s.")
        wire.sleep(pause + 1)
        if passed + _EARLY <= limit:
            break
        # A window that follows the wall clock may have ended in between. The next attempt begins with a new one.
    else:
        raise _UnclearError(f"The first {_EARLY} requests did not count any more half a minute later.")
    again, refused = _send(wire, _MOST)
    # If requests pass before the first ones are a minute old, it is a token bucket, which fills evenly.
    is_a_minute = _HALF + pause >= WINDOW - 3
    value = "fixed" if again >= limit else "sliding" if is_a_minute and again <= _EARLY + 1 else "neither"
    sentence = f"{_EARLY} requests, then {passed} after {_HALF:g} s, and {again} after {pause:g} s more passed."
    answers = [] if refused is None else [refused]
    findings.add("rate_window", value if again else None, *answers, sentence=sentence)
    if value != "neither":
        findings.add("rate_limit", limit, *answers, sentence=sentence)


def _send(wire: Wire, count: int) -> tuple[int, Answer | None]:
    """Send up to `count` requests until a 429; return how many passed, and the 429 if there was one."""
    for passed in range(count):
        answer = wire.send("GET", BALANCE, at_once=True)
        if answer.status == THROTTLED:
            return passed, answer
        if not answer.is_success:
            raise _UnclearError(f"A request of the burst got {answer.summary}.")
    return count, None
