"""B2C payouts: money from the account's B2C wallet to a phone."""

from __future__ import annotations

from collections.abc import AsyncIterable, Iterable, Mapping
from decimal import Decimal
from typing import Any, Literal

from momopay._core.call import Call, Endpoint, PaymentDetails
from momopay._core.operation import Resource, as_operation, operation, run_async, run_sync
from momopay._core.retry import AT_MOST_ONCE
from momopay._core.wiring import BackendT
from momopay._ratelimit.budget import Lane
from momopay.durable.known import reconcile_all, release
from momopay.durable.once import DurableCall
from momopay.durable.pay_all import PayAll, PayoutIterator, PayoutLimits, Source
from momopay.durable.payment import Payment
from momopay.durable.refund import plan_refund
from momopay.errors import RequestValidationError
from momopay.journal import EntryKind, Journal, JournalEntry
from momopay.models.arguments import ChannelRef
from momopay.models.records import Envelope
from momopay.models.requests import PayoutRequest
from momopay.models.transactions import Payout

INITIATE = Endpoint("payouts.initiate", "POST", AT_MOST_ONCE, Lane.PAYMENT, Envelope[Payout])


class Payouts(Resource[BackendT]):
    """B2C payouts (service page, "POST /b2c/payouts").

    No money moved if a call raises another `MomoPayError` than its description names, unless ``.may_have_executed``. Of
    `pay_once`, `refund` and `release`, make the same call again once the cause is fixed. They write to `journal`, by
    default the client's.
    """

    @operation
    async def initiate(
        self,
        *,
        amount: int | Decimal,
        phone: str,
        reference: str,
        description: str | None = None,
        currency: Literal["KES"] = "KES",
        channel_id: ChannelRef | None = None,
        callback_url: str | None = None,
    ) -> Payout:
        """Send money to a phone.

        The B2C wallet is debited as soon as the service accepts. There is no idempotency key, so a failure after which
        the request may have executed is never retried. See the service page, "POST /b2c/payouts".

        Args:
            amount: KES, at least 10, no more than two decimals.
            phone: The recipient's number, in any form that `normalise_phone` takes.
            reference: Your own reference for this payout; unique, since a payout of unknown outcome is found by it. No
                space at an end, no character that nobody sees, and in the Unicode form NFC.
            description: A short purpose.
            currency: KES, the only one.
            channel_id: A payment channel, or its id.
            callback_url: Public HTTPS address that receives the result.

        Returns:
            The payout, PENDING until the provider takes it.

        Raises:
            OutcomeUnknownError: The money may have been sent; look for it with ``transactions.find`` before you send it
                again. ``pay_once`` does that for you.
        """
        request = PayoutRequest.checked(
            on_loopback=self._session.account.on_loopback,
            amount=amount,
            phone=phone,
            reference=reference,
            description=description,
            currency=currency,
            channel_id=channel_id,
            callback_url=self._session.callback_url(callback_url, reference),
        )
        details = PaymentDetails(reference=request.reference, amount=request.amount, phone=request.phone)
        return await Call(self._session, INITIATE, "/b2c/payouts", body=request.to_json(), details=details).run()

    @operation
    async def pay_once(
        self,
        *,
        reference: str,
        amount: int | Decimal,
        phone: str,
        description: str | None = None,
        currency: Literal["KES"] = "KES",
        channel_id: ChannelRef | None = None,
        callback_url: str | None = None,
        metadata: Mapping[str, object] | None = None,
        journal: Journal | None = None,
    ) -> Payment:
        """Send money to a phone, once for each reference, whatever fails and however often this is called.

        Call it again with the same arguments after any error, crash or restart: it sends only if the journal says that
        the payout was refused or not sent and the service's list does not show it, and otherwise returns its
        transaction. One call at a time sends a reference, across processes; a second one waits for the first. See the
        service page, "POST /b2c/payouts" and "GET /transactions".

        Args:
            reference: Your own reference for this payout. It belongs to this amount and phone forever, and must not be
                used for payouts outside the journal. Text as for `initiate`.
            amount: KES, at least 10, no more than two decimals.
            phone: The recipient's number, in any form that `normalise_phone` takes.
            description: A short purpose.
            currency: KES, the only one.
            channel_id: A payment channel, or its id.
            callback_url: Public HTTPS address that receives the result.
            metadata: A JSON object of your own, kept in the journal's entry and never sent.
            journal: The account's journal, by default the client's.

        Returns:
            The payment; ``.is_new`` if this call sent it. One that an earlier call made is as the service has it now,
            and may have ended in any state.

        Raises:
            DuplicatePayoutError: The reference was used with another amount or phone; nothing was sent.
            OutcomeUnknownError: The money may be gone, and the service's list does not show it, shows several
                ``.matches`` or ``.near_matches``, or could not be searched within the deadline. Call again later; if
                it stays so, look into the account console, then `release` what was certainly not paid.
        """
        request = PayoutRequest.checked(
            on_loopback=self._session.account.on_loopback,
            amount=amount,
            phone=phone,
            reference=reference,
            description=description,
            currency=currency,
            channel_id=channel_id,
            callback_url=self._session.callback_url(callback_url, reference),
        )
        journal = self._session.journal_for(journal)
        return await DurableCall(self._session, journal, request.reference, request, metadata=metadata).run()

    def pay_all(
        self,
        payouts: Source,
        *,
        max_total: int | Decimal | None = None,
        max_each: int | Decimal | None = None,
        similar: bool = False,
        journal: Journal | None = None,
    ) -> PayoutIterator[BackendT]:
        """Pay many people, each once, one after another; each payout as `pay_once` makes it.

        Run it again with the same payouts after any error, crash or restart: it continues. It waits for the rate budget
        between payouts, however long. See the service page, "POST /b2c/payouts" and "Limits".

        Args:
            payouts: `PayoutItem`s, or mappings of the arguments of `pay_once`, from any iterable; with an
                `AsyncClient`, from an asynchronous one too. Read one by one as they are paid, unless a limit is given:
                then all are read first.
            max_total: The most that all of them together may come to, KES, those that were paid before included.
            max_each: The most that each may be, KES.
            similar: Whether to pay references that differ from one another, or from one in the journal, only in case,
                dashes or spaces, with the same phone and amount. By default the first such payout ends the run.
            journal: The account's journal, by default the client's.

        Returns:
            An iterable for ``for`` or, from an `AsyncClient`, ``async for``: a `PayoutOutcome` for each payout, in
            order. A refusal of one payout is its outcome, and the next one follows. An error that all others would meet
            too, such as missing funds or a third unknown outcome in a row, is the last outcome, with ``stops``; the
            rest was not begun. No `MomoPayError` is raised for a payout. Iterate once; to run again, call again.

        Raises:
            RequestValidationError: A limit is no amount, or `payouts` no iterable; during the iteration, before
                anything is sent, the payouts exceed a limit, and ``.fields`` says which ones, or two look the same.
        """
        limits = PayoutLimits.checked(max_total, max_each)
        kinds = (Iterable, AsyncIterable) if self._is_async else (Iterable,)
        if not isinstance(payouts, kinds) or isinstance(payouts, str | Mapping):
            raise RequestValidationError({"payouts": "must be an iterable; an asynchronous one needs an AsyncClient"})
        journal = self._session.journal_for(journal)
        return PayoutIterator(self._session, PayAll(self._session, journal, payouts, limits, similar=similar))

    @operation
    async def refund(
        self,
        *,
        of: str,
        amount: int | Decimal | None = None,
        reference: str | None = None,
        description: str | None = None,
        channel_id: ChannelRef | None = None,
        callback_url: str | None = None,
        metadata: Mapping[str, object] | None = None,
        journal: Journal | None = None,
    ) -> Payment:
        """Pay back to the payer what was paid of a collection, or a part, once for each reference.

        It is a payout, made as `pay_once` makes one: call it again with the same arguments after any error. All refunds
        of a collection together never exceed what was paid, in all processes. Unresolved ones count; those that were
        refused, not sent or REVERSED do not. See the service page, "POST /b2c/payouts".

        Args:
            of: The reference of a collection that ``stk.collect_once`` recorded. If its last known status is open, it
                is read first.
            amount: KES, at least 10, no more than two decimals. By default all that is left to refund; where more than
                one prompt was paid, what was paid beyond one. If the reference has a refund already, its amount.
            reference: Of this refund, by default ``<of>-R1``. Give a second refund of the same collection another one.
            description: A short purpose.
            channel_id: A payment channel, or its id.
            callback_url: Public HTTPS address that receives the result.
            metadata: A JSON object of your own, kept in the journal's entry and never sent.
            journal: As for `pay_once`.

        Returns:
            As `pay_once`. A refund that ended FAILED comes back to the B2C wallet; once it reads as REVERSED, refund
            under another reference.

        Raises:
            RequestValidationError: The collection is not in the journal or was not paid, or the amount is below KES 10
                or more than what is left; nothing was sent. ``.fields`` says which refunds count.
            DuplicatePayoutError: The reference was used for something else; or it is the default one, and the
                collection was paid again since that refund. It names the free one; nothing was sent.
            OutcomeUnknownError: The money may have been sent; as for `pay_once`.
        """
        journal = self._session.journal_for(journal)
        until = self._session.backend.now() + self._session.limits.deadline
        plan = await plan_refund(self._session, journal, of=of, amount=amount, reference=reference)
        request = PayoutRequest.checked(
            on_loopback=self._session.account.on_loopback,
            description=description,
            channel_id=channel_id,
            callback_url=self._session.callback_url(callback_url, plan.reference),
            **vars(plan),
        )
        call = DurableCall(
            self._session, journal, plan.reference, request, metadata=metadata, refund_of=of, until=until
        )
        return await call.run()

    @operation
    async def release(
        self,
        *,
        reference: str,
        by: str,
        kind: EntryKind | None = None,
        searched_elsewhere: bool = False,
        journal: Journal | None = None,
    ) -> JournalEntry:
        """Allow, as a person, that an unresolved payment is sent after all, unless the service's list shows it.

        Look into the account console before: the list may lag. It sends no money, but the next `pay_once` or
        ``collect_once`` does. Logged at WARNING; a sweep ten minutes later searches once more. See the service page,
        "GET /transactions".

        Args:
            reference: Of a payout or an order whose outcome is unknown.
            by: Who decided; kept in the entry.
            kind: Payout or collection; by default, whichever there is.
            searched_elsewhere: Whether you have searched in the account console, so that nothing is searched here. It
                skips the search, not the wait.
            journal: The account's journal, by default the client's.

        Returns:
            The entry as it is now, NOT_SENT or REFUSED. It may be sent.

        Raises:
            RequestValidationError: The reference is not in the journal; or it was accepted, as the search may have
                shown; or a minute has not passed since the lease of its latest attempt, and it says how long to wait.
            OutcomeUnknownError: The list shows ``.near_matches`` or several ``.matches``. Compare them by eye. If none
                is this payment, use another reference, or ``searched_elsewhere=True``.
            ValueError: A payout and a collection have the reference: name the kind.
        """
        self._session.before_payment(reference)
        journal = self._session.journal_for(journal)
        return await release(self._session, journal, reference, by, kind, searched_elsewhere=searched_elsewhere)

    def _reconcile_all(self, journal: Journal) -> Any:
        """Do what ``journal.reconcile_all(client)`` promises."""
        coroutine = as_operation(self._session, "payouts.reconcile_all", reconcile_all, None, journal)
        return run_async(coroutine) if self._is_async else run_sync(coroutine)
