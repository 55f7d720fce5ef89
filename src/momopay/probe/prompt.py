"""What one prompt shows. It goes through a journal: it is never sent twice, and what is unclear is never repeated."""

from __future__ import annotations

import secrets
import string
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

import momopay
from momopay._redaction import mask_phone
from momopay.errors import APIError, ConfigurationError
from momopay.probe.answers import Answer, amount_of, field_of
from momopay.probe.channels import Note
from momopay.probe.findings import UNKNOWN, Findings
from momopay.probe.history import Seen
from momopay.probe.reads import BALANCE, read_history, read_one
from momopay.probe.transactions import compare, look_at_list, look_at_read
from momopay.probe.wire import Wire

_PREFIX: Final = "PROBE"
_DESCRIPTION: Final = "momopay probe"
# No such host can exist, so nobody gets a callback.
_CALLBACK_URL: Final = "https://momopay-probe.invalid/"
_SCHEDULE: Final = momopay.PollSchedule()


@dataclass(frozen=True)
class Spend:
    """One prompt that a probe may send.

    Attributes:
        amount: KES, at least 1.
        phone: Whom to prompt, in any form that `momopay.normalise_phone` takes.
        journal: Where the prompt is recorded before it is sent.
    """

    amount: int | Decimal
    phone: str
    journal: momopay.Journal


@dataclass
class _Sent:
    """The prompt, and the answer to it; without a status, if an earlier run sent it."""

    id: str
    answer: Answer


def ask_by_prompt(client: momopay.Client, wire: Wire, findings: Findings, spend: Spend, note: Note) -> Answer | None:
    """Send a prompt, follow it to its end, and return the answer to it; None if an earlier one was followed."""
    earlier = _earlier(client, spend)
    # Letters alone: digits could be taken for a phone, and masked.
    new = _PREFIX + "".join(secrets.choice(string.ascii_uppercase) for _ in range(7))
    reference = new if earlier is None else earlier.reference
    does = "Following an earlier probe's prompt" if earlier else "Sending one prompt"
    note(
        f"{does} for KES {spend.amount} to {mask_phone(momopay.normalise_phone(spend.phone))}, reference {reference}."
        " Pay it, cancel it, or leave it alone: each shows something else."
    )
    wallet = [_balance(wire)]
    known = _prompt_of(earlier)
    sent = _send(client, wire, findings, spend, reference) if known is None else _Sent(known, Answer(None))
    if sent is None:
        note("The service refused the prompt, so the phone shows none.")
        return None
    wallet.append(_balance(wire))
    fee = _look_at(wire, findings, sent.id)
    last, statuses, answer = _follow(wire, sent.id)
    _conclude(findings, last, statuses, answer)
    if _has_ended(last):
        spend.journal.settle(client.transactions.get(sent.id))
        if last.status.upper() != "SUCCESS":
            wire.sleep(_SCHEDULE.every)
            wallet.append(_balance(wire))
            _conclude_fee(findings, wallet, fee, answer)
    return sent.answer if sent.answer.status is not None else None


def _earlier(client: momopay.Client, spend: Spend) -> momopay.JournalEntry | None:
    """Return an earlier probe's prompt that has not ended, None if there is none."""
    if any(entry.reference.startswith(_PREFIX) for entry in spend.journal.unresolved()):
        spend.journal.reconcile_all(client)
    phone = momopay.normalise_phone(spend.phone)
    for entry in (*spend.journal.unresolved(), *spend.journal.open()):
        if entry.kind is not momopay.EntryKind.COLLECTION or not entry.reference.startswith(_PREFIX):
            continue
        known = _prompt_of(entry)
        if known is not None:
            # It may have ended since that probe was stopped.
            transaction = client.transactions.get(known)
            if transaction.status.is_terminal:
                spend.journal.settle(transaction)
                continue
        if (entry.phone, entry.amount) != (phone, Decimal(spend.amount)):
            raise ConfigurationError(
                f"the prompt {entry.reference} of an earlier probe, to another phone or for another amount, has not"
                " ended; nothing was sent"
            )
        return entry
    return None


def _prompt_of(entry: momopay.JournalEntry | None) -> str | None:
    """Return the id of an entry's prompt; None while the service has not shown that it made one."""
    return None if entry is None or entry.status is None else entry.transaction_id


def _send(client: momopay.Client, wire: Wire, findings: Findings, spend: Spend, reference: str) -> _Sent | None:
    """Send the prompt, first without the fields that may be optional. A refusal moved no money."""
    refusals: list[APIError] = []
    for more in (False, True):
        try:
            sent = _prompt_or_find(client, wire, spend, reference, more=more)
        except APIError as error:
            refusals.append(error)
            # A documented code says why, and no field would change that. An unclear outcome is an error of its own.
            if error.may_have_executed or type(error) is not APIError:
                break
            continue
        if not isinstance(sent, momopay.StkTransaction):
            return _Sent(sent, Answer(None))
        response = sent.response
        answer = Answer(response.status_code, {"x-request-id": response.request_id or ""})
        sentence = "A prompt without a description and a callback URL was accepted."
        if more:
            sentence = "A prompt was refused without a description and a callback URL, and accepted with both."
        findings.add("strict_fields", more, sentence, answer)
        findings.add("prompt_created_status", response.status_code, f"A prompt got {response.status_code}.", answer)
        return _Sent(sent.transaction_id, answer)
    shown = ", then ".join(f"{error.status_code} {error.code}" for error in refusals)
    findings.add("strict_fields", UNKNOWN, f"The prompt was refused: {shown}.")
    if any(error.may_have_executed for error in refusals):
        raise refusals[-1]
    return None


def _prompt_or_find(
    client: momopay.Client, wire: Wire, spend: Spend, reference: str, *, more: bool
) -> momopay.StkTransaction | str:
    """Send the prompt once, and return its answer; if that is lost, or an earlier run sent it, its id."""
    try:
        sent = client.stk.collect_once(
            journal=spend.journal,
            reference=reference,
            amount=spend.amount,
            phone=spend.phone,
            transaction_desc=_DESCRIPTION if more else None,
            callback_url=_CALLBACK_URL if more else None,
        )
    except momopay.OutcomeUnknownError:
        wire.sleep(_SCHEDULE.every)
        # The same call would send another prompt, if this one has ended without success meanwhile.
        spend.journal.reconcile_all(client)
        known = _prompt_of(spend.journal.get(reference, momopay.EntryKind.COLLECTION))
        if known is None:
            raise
        return known
    return sent if isinstance(sent, momopay.StkTransaction) else sent.transaction_id


def _look_at(wire: Wire, findings: Findings, identity: str) -> Decimal:
    """Record what the list and a read show of the open prompt; return its fee, 0 if none is shown."""
    history = read_history(wire)
    read, answer = read_one(wire, identity)
    if history.items:
        look_at_list(findings, history)
    if read.id != identity:
        return Decimal(0)
    look_at_read(findings, read, answer)
    item = history.find(identity)
    if item is not None:
        compare(findings, item, history.answer, read, answer)
    return (item.fee if item is not None else None) or read.fee or Decimal(0)


def _follow(wire: Wire, identity: str) -> tuple[Seen, list[str], Answer]:
    """Poll until the prompt ends, or for five minutes; return the last read, and the statuses on the way."""
    statuses: list[str] = []
    waited, pause = 0.0, _SCHEDULE.first
    while True:
        wire.sleep(pause)
        waited, pause = waited + pause, _SCHEDULE.every
        read, answer = read_one(wire, identity)
        if read.status:
            statuses.append(read.status.upper())
        if _has_ended(read) or waited >= _SCHEDULE.limit:
            return read, statuses, answer


def _has_ended(seen: Seen) -> bool:
    return momopay.TransactionStatus(seen.status.upper()).is_terminal


def _conclude(findings: Findings, last: Seen, statuses: list[str], answer: Answer) -> None:
    end, code = last.status.upper(), last.result_code
    sentence = f"The prompt went through {', '.join(dict.fromkeys(statuses))}, with the result code {code or 'none'}."
    if end == "CANCELLED" or (end == "FAILED" and code == momopay.ResultCode.CANCELLED_BY_USER):
        findings.add("cancel_ends_as", end, sentence, answer)
    elif end == "EXPIRED" or (end == "FAILED" and code == momopay.ResultCode.TIMEOUT and "PROCESSING" not in statuses):
        findings.add("expired_reads_as", end, sentence, answer)
        if len(statuses) > 1:
            findings.add("expires_from", statuses[-2], sentence, answer)


def _conclude_fee(findings: Findings, wallet: list[Decimal | None], fee: Decimal, answer: Answer) -> None:
    before, charged, ended = wallet
    if before is None or charged is None or ended is None or not fee or before - charged != fee:
        # No fee, or somebody else paid one meanwhile.
        return
    kept, returned = ended == charged, ended == before
    seen = "kept" if kept else "returned" if returned else "lost among other payments"
    sentence = f"The service wallet paid a fee for a prompt that ended without success, and the fee was {seen}."
    findings.add("fee_refunded_on_failure", returned if kept or returned else UNKNOWN, sentence, answer)


def _balance(wire: Wire) -> Decimal | None:
    return amount_of(field_of(wire.get(BALANCE).data, "availableBalance", "available_balance"))
