"""What prompts and a payout show. A journal ensures that no prompt is sent again while its outcome is unknown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from itertools import pairwise
from typing import Any, Final

import momopay
from momopay._redaction import mask_phone
from momopay.errors import APIError, ConfigurationError, OutcomeUnknownError
from momopay.journal.rules import RESEND_WITHIN
from momopay.probe.channels import Note, random_letters
from momopay.probe.profile import Findings
from momopay.probe.reads import BALANCE, PAYOUTS, look_at_end, look_at_list, look_at_read, read_list, read_one
from momopay.probe.wire import Answer, Transaction, Wire, amount_of, field_of

AMOUNTS: Final = (1, 2, 20, 21, 22)
_PREFIX: Final = "PROBE"
_AMOUNT: Final = Decimal(1)  # KES, the minimum of a prompt
_PAYOUT: Final = 10  # KES, the minimum of a payout
_DESCRIPTION: Final = "momopay probe"
_CALLBACK_URL: Final = "https://momopay-probe.invalid/"  # hosts under .invalid cannot exist, so nobody gets a callback
# Seconds after the answer to a prompt, and after its end.
_POLLS: Final = (0, 0, 5, *range(15, 306, 10))
_FEE_LOOKS: Final = (0, 10, 30, 60, 120, 300)


@dataclass(frozen=True)
class Spend:
    """What a probe may send.

    Attributes:
        amount: KES at most. 1 is one prompt for KES 1. With 2, a second one with the same reference follows if the
            first ends without success. 20 is for a payout of KES 10, sent again with the same key; 21 and 22 for both.
        phone: Whom to prompt and to pay, in any form that `momopay.normalise_phone` takes.
        journal: Where each prompt and the payout is recorded before it is sent.
    """

    amount: int | Decimal
    phone: str
    journal: momopay.Journal

    def __post_init__(self) -> None:
        if self.amount not in AMOUNTS:
            raise ConfigurationError(f"a probe spends KES 1 or 2, not {self.amount}; or 20 to 22, with a payout")


def ask_by_spending(client: momopay.Client, wire: Wire, findings: Findings, spend: Spend, note: Note) -> None:
    """Send what `spend` allows. The prompts are first, because their fees are found by the wallet's balance."""
    client.transactions.sweep(journal=spend.journal)  # what an earlier run sent may have ended
    for earlier in (*spend.journal.unresolved(), *spend.journal.open()):
        if earlier.reference.startswith(_PREFIX):
            problem = f"{earlier.reference}, which an earlier probe sent, has not ended; nothing was sent"
            raise ConfigurationError(f"{problem}: probe again when `momopay sweep` has found its end")
    if spend.amount % _PAYOUT:
        _ask_by_prompt(client, wire, findings, spend, note)
    if spend.amount > _PAYOUT:
        _ask_by_payout(client, wire, findings, spend, note)
    client.transactions.sweep(journal=spend.journal)


def _ask_by_prompt(client: momopay.Client, wire: Wire, findings: Findings, spend: Spend, note: Note) -> None:
    """Send a prompt and follow it to its end; then perhaps a second one, if the first one ended without success."""
    order = _Order(client, wire, findings, spend)
    note(
        f"Sending one prompt for KES {_AMOUNT} to {mask_phone(momopay.normalise_phone(spend.phone))}, reference"
        f" {order.reference}. Pay it, cancel it, or leave it alone: each shows something else."
    )
    first = order.send()
    if first is None:
        note("The service refused the prompt, so the phone shows none.")
    elif order.follow(first) and spend.amount % _PAYOUT > _AMOUNT:
        note(f"Sending a second prompt for KES {_AMOUNT}, with the same reference.")
        second = order.send_again(first)
        if second is not None:
            order.follow(second)


def _ask_by_payout(client: momopay.Client, wire: Wire, findings: Findings, spend: Spend, note: Note) -> None:
    """Send a payout, and the same with its key again: at once, and when the SDK relies on the key for the last time."""
    phone, reference = momopay.normalise_phone(spend.phone), _PREFIX + random_letters(7).upper()
    payout: dict[str, Any] = {"reference": reference, "phone": phone, "description": _DESCRIPTION}
    note(
        f"Sending a payout of KES {_PAYOUT} to {mask_phone(phone)}, reference {reference}, and again with the same key,"
        f" at once and after {RESEND_WITHIN / 60:g} minutes. Where it is not honoured, two are paid."
    )
    try:
        sent = client.payouts.pay_once(journal=spend.journal, amount=_PAYOUT, callback_url=_CALLBACK_URL, **payout)
    except APIError as error:
        if error.may_have_executed:
            raise
        findings.add("payout_keys", None, sentence=f"The payout was not accepted: {error}")
        return
    entry = spend.journal.get(reference, momopay.EntryKind.PAYOUT)
    if entry is not None and entry.idempotency_key:  # without the key, a repeat would be another payout
        body = {**payout, "amount": _PAYOUT, "currency": "KES", "callbackUrl": _CALLBACK_URL}
        _repeat(wire, findings, body, entry.idempotency_key, sent.transaction_id)
    read, answer = read_one(wire, sent.transaction_id)
    urls = {name: read.record[name] for name in ("callbackUrl", "callback_url") if name in read.record}
    if urls:
        is_kept = any(urls.values())
        sentence = f"Sent as callbackUrl; a read gives back {'it' if is_kept else 'nothing'} in {', '.join(urls)}."
        findings.add("payout_callback_field", "callbackUrl" if is_kept else "callback_url", answer, sentence=sentence)
        if not is_kept:
            findings.unusable.add("the callback URL of payouts, which the service expects under another name")


def _repeat(wire: Wire, findings: Findings, body: Mapping[str, object], key: str, first: str) -> None:
    """Send the payout with the id `first` again, until the service does not answer with that id."""
    seen: str | None = "honoured"
    answers = list[Answer]()
    for pause, value in ((0, "ignored"), (RESEND_WITHIN, "forgotten")):
        wire.sleep(pause)
        answers.append(wire.send("POST", PAYOUTS, body, headers={"Idempotency-Key": key}))
        identity = Transaction(answers[-1].data).id
        if identity != first:
            seen = value if identity else answers[-1].summary if answers[-1].is_refusal else None
            break
    listed = [each for each in read_list(wire).transactions if body["reference"] in each.record.values()]
    if seen == "honoured" and len(listed) > 1:
        seen = "the same id for two payouts"
    repeats = " and ".join(answer.summary for answer in answers)
    sentence = f"Sent again with its key, it was answered {repeats}. The list shows {len(listed)} with the reference."
    findings.add("payout_keys", seen, *answers, sentence=sentence)


class _Order:
    """The order of one run. Each of its prompts is sent after the previous one has ended."""

    def __init__(self, client: momopay.Client, wire: Wire, findings: Findings, spend: Spend) -> None:
        self._client, self._wire, self._findings, self._spend = client, wire, findings, spend
        self.reference = _PREFIX + random_letters(7).upper()
        self._optional = dict[str, Any]()

    def send(self) -> str | None:
        """Send the prompt, first without the fields that may be optional; return its id, None if it was refused."""
        identity, refusal = self._collect()
        # A documented code has a class of its own and another reason, which these fields would not change.
        if type(refusal) is APIError:
            self._optional = {"transaction_desc": _DESCRIPTION, "callback_url": _CALLBACK_URL}
            identity, refusal = self._collect()
        is_strict = bool(self._optional) if refusal is None else None
        outcome = "accepted" if refusal is None else f"refused: {refusal.status_code} {refusal.code}"
        sentence = f"A prompt with{'' if self._optional else 'out'} a description and a callback URL was {outcome}."
        self._findings.add("strict_fields", is_strict, sentence=sentence)
        return identity

    def send_again(self, first: str) -> str | None:
        """Send another prompt with the same reference; return its id, None if it was refused."""
        try:
            identity, refusal = self._collect()
        except OutcomeUnknownError as error:
            cause = error.__cause__
            seen = f"{cause.status_code} {cause.code}" if isinstance(cause, APIError) else None
            seen = "the same transaction" if error.transaction_id == first else seen
            if seen is not None:
                self._findings.add("duplicate_reference", seen, sentence=str(error))
                self._findings.unusable.add(f"the answer to a reference that was used: {seen}")
            raise
        seen = "another transaction" if refusal is None else f"{refusal.status_code} {refusal.code}"
        self._findings.add("duplicate_reference", seen, sentence=f"A second prompt with the reference got {seen}.")
        return identity

    def _collect(self) -> tuple[str | None, APIError | None]:
        """Send a prompt once, and return its id or the refusal."""
        self._before, self._balance_before = read_list(self._wire), self._balance()
        order: dict[str, Any] = {"reference": self.reference, "phone": self._spend.phone, **self._optional}
        try:
            sent = self._client.stk.collect_once(journal=self._spend.journal, amount=_AMOUNT, **order)
        except APIError as error:
            if error.may_have_executed:
                raise
            return None, error
        record: object = getattr(sent, "transaction", sent)
        if isinstance(record, momopay.StkTransaction):  # else the answer was lost, and the prompt was searched for
            headers = {"x-request-id": record.response.request_id or ""}
            self._findings.add_created(Answer(record.response.status_code, headers, b'{"success": true}'))
        return sent.transaction_id, None

    def follow(self, identity: str) -> bool:
        """Poll a prompt until it ends, or for five minutes; return whether it ended without success."""
        charged, listed, answer, read, look = self._balance(), Answer(None), Answer(None), Transaction({}), 0
        shown, statuses, fee = dict[str, int](), set[str](), None
        for elapsed, look in pairwise(_POLLS):
            self._wire.sleep(look - elapsed)
            if "list_delay" not in shown:
                listed = read_list(self._wire)
            item = next((each for each in listed.transactions if each.id == identity), None)
            read, answer = read_one(self._wire, identity)
            sights = {"list_delay": item is not None, "read_delay": read.id == identity}
            shown = {name: look for name, is_shown in sights.items() if is_shown} | shown
            if item is not None and read.id == identity and fee is None:
                look_at_list(self._findings, listed)
                look_at_read(self._findings, item, listed, read, answer)
                fee = item.fee or read.fee or Decimal(0)
            statuses.add(read.status)
            if momopay.TransactionStatus(read.status).is_terminal:
                break
        for name in ("list_delay", "read_delay"):
            seen = f"up to {shown[name]} s" if name in shown else f"over {look} s"
            self._findings.add(name, seen, listed, sentence=f"A new prompt did not appear for {seen}.")
        # A prompt that fails after the PIN was entered may have the same result code, but is PROCESSING before.
        look_at_end(self._findings, read, answer, is_without_pin="PROCESSING" not in statuses)
        self._client.transactions.sweep(journal=self._spend.journal)
        is_unpaid = momopay.TransactionStatus(read.status).ended_without_success
        if is_unpaid and fee and charged is not None and self._balance_before == charged + fee:
            self._watch_the_fee(identity, charged)
        return is_unpaid

    def _watch_the_fee(self, identity: str, charged: Decimal) -> None:
        """Record whether the fee comes back, unless other payments move the wallet meanwhile."""
        known = {(item.id, item.status) for item in self._before.transactions}
        seen: bool | None = False
        sentence = f"The fee was not back {_FEE_LOOKS[-1]} s after the prompt's end."
        for elapsed, look in pairwise(_FEE_LOOKS):
            self._wire.sleep(look - elapsed)
            balance, listed = self._balance(), read_list(self._wire)
            others = {(item.id, item.status) for item in listed.transactions if item.id != identity}
            if balance != charged or not others <= known:
                is_alone = others <= known and balance == self._balance_before
                seen = True if is_alone else None
                sentence = f"The fee was {'back' if is_alone else 'lost among other payments'} {look} s after the end."
                break
        self._findings.add("fee_refunded_on_failure", seen, sentence=sentence)

    def _balance(self) -> Decimal | None:
        return amount_of(field_of(self._wire.get(BALANCE).data, "availableBalance", "available_balance"))
