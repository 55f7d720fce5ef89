"""A payout that has a row in the journal: read it, search for it, and record what the service shows."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Generic

from momopay._core.backend import BackendT
from momopay._core.call import call
from momopay._core.session import Session
from momopay._redaction import redacted_repr
from momopay.errors import DuplicatePayoutError, MomoPayError
from momopay.journal.entries import MAY_BE_SENT, JournalEntry
from momopay.journal.evidence import report_of
from momopay.journal.rules import Finding, finding
from momopay.models.matching import RequestedPayment
from momopay.models.requests import Fit, transaction_path
from momopay.models.transactions import Transaction, transaction_from
from momopay.resources.journal_access import JournalAccess
from momopay.resources.reconcile import describe, outcome_unknown, search_for
from momopay.resources.search import GET, Matches, search

if TYPE_CHECKING:  # at run time it needs SQLAlchemy
    from momopay.journal.payments import Payments

logger: logging.Logger = logging.getLogger("momopay")


class KnownPayout(Generic[BackendT]):
    """What one call of ``pay_once`` does about a payout that was attempted before. Nothing here sends a payment."""

    _session: Session[BackendT]

    def __init__(
        self, session: Session[BackendT], payments: Payments, journal: JournalAccess, payment: RequestedPayment
    ) -> None:
        self._session = session
        self._payments = payments
        self._journal = journal
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

    async def find_before_sending(self, entry: JournalEntry) -> Transaction | None:
        """Search for a payout that was refused or not sent; return it if it was made after all, None if it is absent.

        Raises:
            OutcomeUnknownError: The list shows a transaction that may be this payout.
        """
        # A refusal may have been a proxy's, and what a transport calls not sent may have been sent.
        # Where it may have been sent by a clock of which nothing is known, no time bounds the search: if the deadline
        # comes before the end of the list, nothing is sent.
        whole_list = entry.attempts > 0 and entry.clock_offset is None
        matches = await self._search(entry, whole_list=whole_list)
        match finding(matches.exact, matches.near):
            case Finding.MADE:
                return await self._adopt(entry, matches)
            case Finding.UNCLEAR:
                await self._journal.run_or_log(partial(self._payments.sight, entry))
                raise outcome_unknown(entry, describe(matches), matches)
            case Finding.ABSENT:
                return None

    async def read_accepted(self, entry: JournalEntry) -> Transaction:
        """Read the transaction of an accepted payout; raise OutcomeUnknownError if it is another payment."""
        try:
            transaction = await self._get_transaction(entry)
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
            await self._journal.run_or_log(partial(self._payments.contradict, entry))
            why = f"the service's record of transaction {entry.transaction_id} has another {', '.join(differing)}"
            raise outcome_unknown(entry, why)
        if transaction.status != entry.status:
            await self._journal.run_or_log(partial(self._payments.accept, entry.reference, report_of(transaction)))
        return transaction

    async def reconcile(self, entry: JournalEntry) -> Transaction:
        """Search for a payout in doubt, and return it if there is exactly one; else raise OutcomeUnknownError."""
        matches = await self._find_by_id(entry)
        if matches is None:
            try:
                matches = await self._search(entry)
            except MomoPayError as error:
                raise outcome_unknown(entry, f"the search failed: {error.message}") from error
        if finding(matches.exact, matches.near) is Finding.MADE:
            return await self._adopt(entry, matches)
        raise outcome_unknown(entry, describe(matches), matches)

    async def _search(self, entry: JournalEntry, *, whole_list: bool = False) -> Matches:
        # A collection may have the same reference, and is another payment.
        others = await self._journal.run(partial(self._payments.others, entry))
        (matches,) = await search(
            self._session, [search_for(entry, others)], self._journal.deadline, whole_list=whole_list
        )
        return matches

    async def _adopt(self, entry: JournalEntry, matches: Matches) -> Transaction:
        """Record the one transaction that fits, and return it."""
        (found,) = matches.exact
        if await self._journal.run_or_log(partial(self._payments.accept, entry.reference, report_of(found))) is False:
            raise outcome_unknown(entry, "the transaction that fits is already that of another reference", matches)
        return found if isinstance(found, Transaction) else transaction_from(found)

    async def _find_by_id(self, entry: JournalEntry) -> Matches | None:
        """Read the transaction whose id a broken answer showed; None if it is not this payout: the list decides."""
        if entry.transaction_id is None:
            return None
        try:
            transaction = await self._get_transaction(entry)
        except MomoPayError:
            return None
        # The answer was broken, so its id may be that of another payment.
        return Matches(exact=[transaction]) if search_for(entry).fit(transaction) is Fit.EXACT else None

    async def _get_transaction(self, entry: JournalEntry) -> Transaction:
        return await call(self._session, GET, transaction_path(entry.transaction_id), until=self._journal.deadline)
