"""B2C payouts: money from the account's B2C wallet to a phone."""

from __future__ import annotations

from collections.abc import AsyncIterable, Iterable, Mapping
from decimal import Decimal
from typing import Any, Literal
from uuid import UUID

from momopay._core.call import Call
from momopay._core.endpoint import Endpoint, PaymentDetails
from momopay._core.operation import Resource, as_operation, operation, run_async, run_sync
from momopay._core.retry import AT_MOST_ONCE
from momopay._core.wiring import BackendT
from momopay._ratelimit.budget import Lane
from momopay.durable.call import DurableCall
from momopay.durable.pay_all import PayAll, PayoutIterator, PayoutLimits, Source
from momopay.durable.payment import journal_for
from momopay.durable.refund import plan_refund
from momopay.durable.release import release
from momopay.durable.sweep import Sweep
from momopay.errors import RequestValidationError
from momopay.journal import EntryKind, Journal, JournalEntry
from momopay.models.arguments import ChannelRef
from momopay.models.payments import Payment
from momopay.models.records import Envelope
from momopay.models.requests import PayoutRequest
from momopay.models.transactions import Payout

INITIATE = Endpoint("payouts.initiate", "POST", AT_MOST_ONCE, Lane.PAYMENT, Envelope[Payout])


class Payouts(Resource[BackendT]):
    """B2C payouts (service page, "POST /b2c/payouts").

    A call may raise other `MomoPayError`s than it lists: no money moved then, unless ``error.may_have_executed``. Once
    the cause is fixed, you can repeat the same call of `pay_once`, `refund` or `release`.
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
        credential_id: str | UUID | None = None,
    ) -> Payout:
        """Send money to a phone, at most once per call.

        The B2C wallet is debited as soon as the service accepts the payout. This call sends no idempotency key, so a
        request that may have executed is never retried. See the service page, "POST /b2c/payouts".

        Args:
            amount: KES, at least 10, with at most two decimals.
            phone: The recipient's number, in any form that `normalise_phone` takes.
            reference: Your own unique reference. Unicode NFC, without outer spaces or invisible characters.
            description: A short purpose.
            currency: Only KES.
            channel_id: A payment channel, or its id.
            callback_url: Public HTTPS URL that receives the result.
            credential_id: The id of a ``MERCHANT_BYOC`` credential profile; the specification names none.

        Returns:
            The payout, PENDING until the provider takes it.

        Raises:
            OutcomeUnknownError: The money may have been sent. Search with ``transactions.find`` before you send again;
                `pay_once` does this for you.
        """
        request = self._request(
            reference,
            callback_url,
            channel_id,
            amount=amount,
            phone=phone,
            description=description,
            currency=currency,
            credential_id=credential_id,
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
        credential_id: str | UUID | None = None,
        metadata: Mapping[str, object] | None = None,
        journal: Journal | None = None,
    ) -> Payment:
        """Send money to a phone once for each reference, however often you call this.

        After any error, crash or restart, call it again with the same arguments. A payout that was attempted before is
        sent again only if the journal has it as refused or not sent and the service's list does not show it; otherwise
        its transaction is returned. With the client's ``payout_keys``, an unresolved one is sent again, too, with its
        Idempotency-Key, within 15 minutes. A call waits for another one with the same reference, even in another
        process. See the service page, "POST /b2c/payouts" and "GET /transactions".

        Args:
            reference: Your own reference. It belongs to this amount and phone forever. Do not use it for payouts
                outside the journal. Text as for `initiate`.
            amount: KES, at least 10, with at most two decimals.
            phone: The recipient's number, in any form that `normalise_phone` takes.
            description: A short purpose.
            currency: Only KES.
            channel_id: A payment channel, or its id.
            callback_url: Public HTTPS URL that receives the result.
            credential_id: The id of a ``MERCHANT_BYOC`` credential profile; the specification names none.
            metadata: Your own JSON object, kept in the journal's entry and never sent.
            journal: The account's journal, by default the client's.

        Returns:
            The payment; ``.is_new`` if this call sent it. Otherwise it is as the service has it now, in any status.

        Raises:
            DuplicatePayoutError: The reference was used with another amount or phone; nothing was sent.
            OutcomeUnknownError: The money may be gone. The service's list does not show the payout, shows several
                ``.matches`` or ``.near_matches``, or could not be searched within the deadline. Call again later. If
                the error persists, look into the account console, then `release` what was certainly not paid.
        """
        request = self._request(
            reference,
            callback_url,
            channel_id,
            amount=amount,
            phone=phone,
            description=description,
            currency=currency,
            credential_id=credential_id,
        )
        journal = journal_for(self._session, journal)
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
        """Pay many people one after another, each as `pay_once` does.

        After any error, crash or restart, run it again with the same payouts, and it continues. Between payouts it
        waits for the rate budget, however long. See the service page, "POST /b2c/payouts" and "Limits".

        Args:
            payouts: An iterable (with an `AsyncClient`, also an asynchronous one) of `PayoutItem`s, or of mappings of
                `pay_once`'s arguments. It is read one by one as they are paid, or completely first if there is a limit.
            max_total: Maximum sum of all payouts, in KES, including those that were paid before.
            max_each: Maximum amount of each payout, in KES.
            similar: Whether to pay references that differ from one another, or from one in the journal, only in case,
                dashes or spaces, with the same phone and amount. By default the first such payout ends the run.
            journal: The account's journal, by default the client's.

        Returns:
            An iterable for ``for`` or, from an `AsyncClient`, ``async for``, which gives a `PayoutOutcome` for each
            payout, in order. If one payout is refused, the run continues. An error that all others would meet too, such
            as missing funds or a third unknown outcome in a row, is the last outcome, with ``stops``. No `MomoPayError`
            is raised for a payout. Iterate once; to run again, call `pay_all` again.

        Raises:
            RequestValidationError: A limit is not an amount, or `payouts` is not iterable. With a limit, raised during
                the iteration before anything is sent: the payouts exceed it (see ``.fields``), or two look the same.
        """
        limits = PayoutLimits.checked(max_total=max_total, max_each=max_each)
        kinds = (Iterable, AsyncIterable) if self._session.backend.is_async else (Iterable,)
        if not isinstance(payouts, kinds) or isinstance(payouts, str | Mapping):
            raise RequestValidationError({"payouts": "must be an iterable; an asynchronous one needs an AsyncClient"})
        journal = journal_for(self._session, journal)
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
        credential_id: str | UUID | None = None,
        metadata: Mapping[str, object] | None = None,
        journal: Journal | None = None,
    ) -> Payment:
        """Pay back to the payer what was paid of a collection, or a part of it, once for each reference.

        A refund is a payout as by `pay_once`: after any error, call again with the same arguments. All refunds of a
        collection together, from any process, never exceed what was paid. Unresolved refunds count; refused, unsent and
        REVERSED ones do not. See the service page, "POST /b2c/payouts".

        Args:
            of: The reference of a collection of ``stk.collect_once``. If the journal has it as open, it is read first.
            amount: KES, at least 10, with at most two decimals. By default what is left to the phone that paid last;
                if more than one prompt was paid, what was paid beyond one; if the reference has a refund, its amount.
            reference: The refund's own reference, by default ``<of>-R1``. A second refund needs another one.
            description: A short purpose.
            channel_id: A payment channel, or its id.
            callback_url: Public HTTPS URL that receives the result.
            credential_id: The id of a ``MERCHANT_BYOC`` credential profile; the specification names none.
            metadata: Your own JSON object, kept in the journal's entry and never sent.
            journal: The account's journal, by default the client's.

        Returns:
            The payment, as from `pay_once`. If it ends FAILED, wait until it is REVERSED, then use another reference.

        Raises:
            RequestValidationError: The collection is not in the journal or was not paid, or the amount is below KES 10
                or more than what is left; nothing was sent. ``.fields`` says which refunds count.
            DuplicatePayoutError: The reference was used for something else; or it is the default one, more is left to
                pay back, and its refund has another amount, or is older than the last payment of the collection.
                Nothing was sent; the message names a free reference.
            OutcomeUnknownError: The money may have been sent; as for `pay_once`.
        """
        journal = journal_for(self._session, journal)
        until = self._session.backend.now() + self._session.limits.deadline
        plan = await plan_refund(self._session, journal, of=of, amount=amount, reference=reference)
        request = self._request(
            callback_url=callback_url,
            channel_id=channel_id,
            credential_id=credential_id,
            description=description,
            currency="KES",
            **vars(plan),
        )
        name = plan.reference
        call = DurableCall(self._session, journal, name, request, metadata=metadata, refund_of=of, until=until)
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
        """Allow an unresolved payment to be sent again, on a person's decision, unless the service's list shows it.

        Check the account console first: the list may lag. The next `pay_once` or ``collect_once`` may then send money.
        Logged at WARNING. A sweep searches again ten minutes later. See the service page, "GET /transactions".

        Args:
            reference: The reference of a payout or an order whose outcome is unknown.
            by: Who decided; kept in the entry.
            kind: Payout or collection; needed only if both have the reference.
            searched_elsewhere: Whether you have searched in the account console. Skips the search here, not the wait.
            journal: The account's journal, by default the client's.

        Returns:
            The entry, now NOT_SENT or REFUSED: it may be sent.

        Raises:
            RequestValidationError: The reference is not in the journal, the payment was accepted (the search may have
                found it), or it must wait for a minute after its latest attempt's lease (see the message).
            OutcomeUnknownError: The list shows ``.near_matches`` or several ``.matches``. Compare them by eye. If none
                is this payment, use another reference, or ``searched_elsewhere=True``.
            BudgetExhaustedError: The list is too long for the deadline; use
                ``client.with_options(deadline=3600, max_wait=None)``. Nothing was changed.
            ValueError: A payout and a collection have the reference: pass `kind`.
        """
        if self._session.hooks.before_release is not None:
            self._session.hooks.before_release(reference)
        journal = journal_for(self._session, journal)
        return await release(self._session, journal, reference, by, kind, searched_elsewhere=searched_elsewhere)

    def _request(
        self, reference: str, callback_url: str | None, channel_id: ChannelRef | None, **arguments: Any
    ) -> PayoutRequest:
        """Return the checked body of a payout, with the callback URL that the client makes if none is given."""
        return PayoutRequest.checked(
            on_loopback=self._session.account.on_loopback,
            reference=reference,
            callback_url=self._session.callback_url(callback_url, reference),
            channel_id=channel_id,
            **arguments,
        )

    def _reconcile_all(self, journal: Journal) -> Any:
        """Implement ``journal.reconcile_all(client)``."""
        coroutine = as_operation(
            self._session, "payouts.reconcile_all", lambda session: Sweep(session, journal).reconcile_all()
        )
        return run_async(coroutine) if self._session.backend.is_async else run_sync(coroutine)
