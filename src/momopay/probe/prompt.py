"""What one or two prompts show. A journal ensures that none is sent twice, or again while its outcome is unknown."""

from __future__ import annotations

import secrets
import string
from dataclasses import dataclass
from decimal import Decimal
from itertools import pairwise
from typing import Final

import momopay
from momopay._redaction import mask_phone
from momopay.errors import APIError, ConfigurationError, OutcomeUnknownError
from momopay.probe.channels import Note
from momopay.probe.profile import Findings
from momopay.probe.reads import BALANCE, look_at_list, look_at_read, read_list, read_one
from momopay.probe.wire import Answer, Transaction, Wire, amount_of, field_of

_PREFIX: Final = "PROBE"
_AMOUNT: Final = Decimal(1)  # KES, the minimum of a prompt
# The description and the callback URL. Hosts under .invalid cannot exist, so nobody gets a callback.
_OPTIONAL: Final = ("momopay probe", "https://momopay-probe.invalid/")
# Seconds after the answer to a prompt, and after its end.
_POLLS: Final = (0, 0, 5, *range(15, 306, 10))
_FEE_LOOKS: Final = (0, 10, 30, 60, 120, 300)


@dataclass(frozen=True)
class Spend:
    """The prompts that a probe may send.

    Attributes:
        amount: KES in all. 1 is one prompt for KES 1. With 2, a second one with the same reference follows if the
            first ends without success.
        phone: Whom to prompt, in any form that `momopay.normalise_phone` takes.
        journal: Where each prompt is recorded before it is sent.
    """

    amount: int | Decimal
    phone: str
    journal: momopay.Journal

    def __post_init__(self) -> None:
        if self.amount not in {1, 2}:
            raise ConfigurationError(f"a probe spends KES 1 or 2, not {self.amount}")


def ask_by_prompt(client: momopay.Client, wire: Wire, findings: Findings, spend: Spend, note: Note) -> None:
    """Send a prompt and follow it to its end, then perhaps a second one; or follow the prompt of an earlier run."""
    phone = momopay.normalise_phone(spend.phone)
    client.transactions.sweep(journal=spend.journal)  # an earlier run's prompt may have ended
    unfinished = [*spend.journal.unresolved(), *spend.journal.open()]
    earlier = next((entry for entry in unfinished if entry.reference.startswith(_PREFIX)), None)
    if earlier is not None and (earlier.phone, earlier.amount) != (phone, _AMOUNT):
        raise ConfigurationError(
            f"the prompt {earlier.reference} of an earlier probe, to another phone, has not ended; nothing was sent"
        )
    # Only letters, because digits could look like a phone and be masked.
    new = _PREFIX + "".join(secrets.choice(string.ascii_uppercase) for _ in range(7))
    order = _Order(client, wire, findings, spend, earlier.reference if earlier else new)
    does = "Following an earlier probe's prompt" if earlier else "Sending one prompt"
    note(
        f"{does} for KES {_AMOUNT} to {mask_phone(phone)}, reference {order.reference}."
        " Pay it, cancel it, or leave it alone: each shows something else."
    )
    first = order.send()
    if first is None:
        note("The service refused the prompt, so the phone shows none.")
    elif order.follow(first) and spend.amount > _AMOUNT:
        note(f"Sending a second prompt for KES {_AMOUNT}, with the same reference.")
        second = order.send_again(first)
        if second is not None:
            order.follow(second)


class _Order:
    """The order of one run. Each of its prompts is sent after the previous one has ended."""

    def __init__(self, client: momopay.Client, wire: Wire, findings: Findings, spend: Spend, reference: str) -> None:
        self._client, self._wire, self._findings, self._spend = client, wire, findings, spend
        self.reference = reference
        self._optional: tuple[str | None, str | None] = (None, None)

    def send(self) -> str | None:
        """Send the prompt, first without the fields that may be optional; return its id, None if it was refused."""
        identity, refusal = self._collect()
        # A documented code has a class of its own and another reason, which these fields would not change.
        if refusal is not None and type(refusal) is APIError:
            self._optional = _OPTIONAL
            identity, refusal = self._collect()
        is_strict = self._optional is _OPTIONAL
        sentence = f"Accepted {'with' if is_strict else 'without'} a description and a callback URL."
        if refusal is not None:
            sentence = f"The prompt was refused: {refusal.status_code} {refusal.code}."
        self._findings.add("strict_fields", is_strict if self._is_new else None, sentence=sentence)
        return identity

    def send_again(self, first: str) -> str | None:
        """Send another prompt with the same reference; return its id, None if it was refused."""
        try:
            identity, refusal = self._collect(first)
        except OutcomeUnknownError as error:
            self._findings.add("duplicate_reference", None, sentence=str(error))
            raise
        seen = "another transaction" if refusal is None else f"{refusal.status_code} {refusal.code}"
        self._findings.add("duplicate_reference", seen, sentence=f"A second prompt with the reference got {seen}.")
        return identity

    def _collect(self, earlier: str | None = None) -> tuple[str | None, APIError | None]:
        """Send a prompt once and return its id or the refusal; search for it if the answer is lost."""
        self._before, self._balance_before, self._is_new = read_list(self._wire), self._balance(), False
        description, callback_url = self._optional
        try:
            sent = self._client.stk.collect_once(
                journal=self._spend.journal,
                reference=self.reference,
                amount=_AMOUNT,
                phone=self._spend.phone,
                transaction_desc=description,
                callback_url=callback_url,
            )
        except APIError as error:
            if error.may_have_executed:
                raise
            return None, error
        except OutcomeUnknownError:
            self._wire.sleep(momopay.PollSchedule().every)
            # Not by the same call, which would send another prompt if this one has failed meanwhile.
            self._client.transactions.sweep(journal=self._spend.journal)
            entry = self._spend.journal.get(self.reference, momopay.EntryKind.COLLECTION)
            if entry is None or entry.status is None or entry.transaction_id in {None, earlier}:
                raise
            return entry.transaction_id, None
        record: object = getattr(sent, "transaction", sent)
        if isinstance(record, momopay.StkTransaction):  # else an earlier run sent it
            self._is_new = True
            headers = {"x-request-id": record.response.request_id or ""}
            answer = Answer(record.response.status_code, headers, b'{"success": true}')
            self._findings.add_created("prompt_created_status", answer)
        return sent.transaction_id, None

    def follow(self, identity: str) -> bool:
        """Poll a prompt until it ends, or for five minutes; return whether it ended without success."""
        charged, listed, answer, read, look = self._balance(), Answer(None), Answer(None), Transaction({}), 0
        shown: dict[str, int] = {}
        statuses: list[str] = []
        fee: Decimal | None = None
        for elapsed, look in pairwise(_POLLS):
            self._wire.sleep(look - elapsed)
            if "list_delay" not in shown:
                listed = read_list(self._wire)
            item = next((each for each in listed.transactions if each.id == identity), None)
            read, answer = read_one(self._wire, identity)
            if item is not None:
                shown.setdefault("list_delay", look)
            if read.id == identity:
                shown.setdefault("read_delay", look)
            if item is not None and read.id == identity and fee is None:
                look_at_list(self._findings, listed)
                look_at_read(self._findings, item, listed, read, answer)
                fee = item.fee or read.fee or Decimal(0)
            statuses += [read.status] if read.status else []
            if momopay.TransactionStatus(read.status).is_terminal:
                break
        if self._is_new:
            for name in ("list_delay", "read_delay"):
                seen = f"up to {shown[name]} s" if name in shown else f"over {look} s"
                self._findings.add(name, seen, listed, sentence=f"A new prompt did not appear for {seen}.")
        self._conclude(read, statuses, answer)
        self._client.transactions.sweep(journal=self._spend.journal)
        is_unpaid = momopay.TransactionStatus(read.status).ended_without_success
        if is_unpaid and fee and charged is not None and self._balance_before == charged + fee:
            self._watch_the_fee(identity, charged)
        return is_unpaid

    def _conclude(self, last: Transaction, statuses: list[str], answer: Answer) -> None:
        end, code = last.status, last.result_code
        sentence = f"The prompt went through {', '.join(dict.fromkeys(statuses))}, result code {code or 'none'}."
        if end == "CANCELLED" or (end == "FAILED" and code == momopay.ResultCode.CANCELLED_BY_USER):
            self._findings.add("cancel_ends_as", end, answer, sentence=sentence)
        is_timeout = end == "FAILED" and code == momopay.ResultCode.TIMEOUT and "PROCESSING" not in statuses
        if end == "EXPIRED" or is_timeout:
            self._findings.add("expired_reads_as", end, answer, sentence=sentence)

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
