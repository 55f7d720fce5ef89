"""A payout that has a row in the journal: read it, search for it, and record what the service shows."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from momopay._core.backend import BackendT
from momopay._core.session import Session
from momopay._redaction import redacted_repr
from momopay.errors import DuplicatePayoutError, MomoPayError
from momopay.journal.entries import MAY_BE_SENT, JournalEntry, JournalState
from momopay.journal.evidence import report_of
from momopay.journal.rules import Finding, finding
from momopay.models.matching import RequestedPayment
from momopay.models.transactions import Transaction, transaction_from
from momopay.resources.journal_access import JournalAccess
from momopay.resources.known_payment import KnownPayment
from momopay.resources.reconcile import describe, outcome_unknown
from momopay.resources.search import Matches

if TYPE_CHECKING:  # at run time it needs SQLAlchemy
    from momopay.journal.payments import Payments

logger: logging.Logger = logging.getLogger("momopay")


class KnownPayout(KnownPayment[BackendT]):
    """What one call of ``pay_once`` does about a payout that was attempted before."""

    def __init__(
        self, session: Session[BackendT], payments: Payments, journal: JournalAccess, payment: RequestedPayment
    ) -> None:
        super().__init__(session, payments, journal)
        self._payment = payment

    def check_same_payout(self, entry: JournalEntry, body_hash: str) -> None:
        """Raise DuplicatePayoutError if the reference was used with another amount or phone, or for another purpose."""
        is_same = entry.amount == self._payment.amount and entry.phone == self._payment.phone
        if entry.is_anonymised and entry.amount == self._payment.amount:
            if entry.state in MAY_BE_SENT:
                raise DuplicatePayoutError(
                    f"reference {entry.reference!r} was anonymised after it was refused or not sent: use another one",
                    reference=entry.reference,
                )
            is_same = True  # the service's record has the phone, with which `read_accepted` compares
        # A refund that was not sent must not be sent without its limit, and what is no refund must not pass for one.
        if not is_same or entry.refund_of != self._payments.refund_of:
            what = "for another refund, or for none," if is_same else "with another amount or phone"
            raise DuplicatePayoutError(
                f"reference {entry.reference!r} was used {what} on {entry.sent_at:%Y-%m-%d}:"
                " give each payout a reference of its own",
                reference=entry.reference,
            )
        # A description or a callback URL may change between two runs of one program. No money depends on it.
        if not entry.is_anonymised and entry.body_hash != body_hash:
            logger.info(
                "reference %s: the first payout counts, and differs in more than money", redacted_repr(entry.reference)
            )

    async def read_accepted(self, entry: JournalEntry) -> Transaction:
        """Read the transaction of an accepted payout; raise OutcomeUnknownError if it is another payment."""
        try:
            transaction = await self._get(entry.transaction_id)
        except MomoPayError as error:
            error.may_have_executed = True  # the read failed, but the payout was made
            raise
        differing = self._payment.differences(transaction.account_reference, transaction)
        if transaction.transaction_id != entry.transaction_id:
            differing.append("id")
        if differing == ["phone"] and entry.is_anonymised:  # this call's phone is wrong, not the journal
            raise DuplicatePayoutError(
                f"reference {entry.reference!r} was used with another phone on {entry.sent_at:%Y-%m-%d}:"
                " give each payout a reference of its own",
                reference=entry.reference,
            )
        if differing:
            changed = await self._journal.run_or_log(partial(self._payments.contradict, entry))
            if changed:
                self._journal.report(entry.state, JournalState.UNKNOWN)
            why = f"the service's record of transaction {entry.transaction_id} has another {', '.join(differing)}"
            raise outcome_unknown(entry, why)
        if transaction.status != entry.status:
            accept = partial(self._payments.accept, entry.reference, report_of(transaction))
            if await self._journal.run_or_log(accept):
                self._journal.report(entry.state, entry.state, transaction)
        return transaction

    async def reconcile(self, entry: JournalEntry) -> Transaction:
        """Search for a payout in doubt, and return it if there is exactly one; else raise OutcomeUnknownError."""
        matches = await self._find(entry)
        if self._finding(matches) is Finding.MADE:
            return await self._adopt(entry, matches)
        raise outcome_unknown(entry, describe(matches), matches)

    def _finding(self, matches: Matches) -> Finding:
        return finding(matches.exact, matches.near)

    async def _adopt(self, entry: JournalEntry, matches: Matches) -> Transaction:
        """Record the one transaction that fits, and return it."""
        (found,) = matches.exact
        accepted = await self._journal.run_or_log(partial(self._payments.accept, entry.reference, report_of(found)))
        if accepted is False:
            raise outcome_unknown(entry, "the transaction that fits is already that of another reference", matches)
        if accepted:
            self._journal.report(entry.state, JournalState.ACCEPTED, found)
        return transaction_from(found)
