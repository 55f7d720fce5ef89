"""STK collections: a PIN prompt on a customer's phone."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from uuid import UUID

from momopay._core.call import Call, Endpoint, PaymentDetails
from momopay._core.operation import Resource, operation
from momopay._core.retry import AT_MOST_ONCE
from momopay._core.wiring import BackendT
from momopay._ratelimit.budget import Lane
from momopay.durable.once import DurableCall
from momopay.durable.payment import Payment
from momopay.journal import Journal
from momopay.models.arguments import ChannelRef
from momopay.models.records import Envelope
from momopay.models.requests import OrderRequest, StkRequest
from momopay.models.transactions import StkTransaction

INITIATE = Endpoint("stk.initiate", "POST", AT_MOST_ONCE, Lane.PAYMENT, Envelope[StkTransaction], prompts=True)


class Stk(Resource[BackendT]):
    """STK collections (service page, "POST /payments/stk").

    No prompt was sent if a call raises another `MomoPayError` than its description names, unless
    ``.may_have_executed``. Of `collect_once`, make the same call again once the cause is fixed.
    """

    @operation
    async def initiate(
        self,
        *,
        amount: int | Decimal,
        phone: str,
        account_reference: str | None = None,
        transaction_desc: str | None = None,
        callback_url: str | None = None,
        channel_id: ChannelRef | None = None,
        credential_id: str | UUID | None = None,
    ) -> StkTransaction:
        """Send a PIN prompt to a customer's phone.

        Every call is a new prompt and a new transaction; a failure after which it may have executed is never retried,
        so it is sent at most once. The result arrives at ``callback_url``, or by ``transactions.wait``. The fee is
        deducted from the service wallet at once. See the service page, "POST /payments/stk" and "Callbacks".

        Args:
            amount: KES, at least 1, no more than two decimals.
            phone: The customer's number, in any form that `normalise_phone` takes.
            account_reference: At most 12 characters; shown on the customer's statement. No space at an end, no
                character that nobody sees, and in the Unicode form NFC.
            transaction_desc: At most 13 characters; shown on the PIN prompt.
            callback_url: Public HTTPS address that receives the result.
            channel_id: The payment channel, or its id; the default channel if not given.
            credential_id: The id of a ``MERCHANT_BYOC`` credential profile.

        Returns:
            The transaction, PENDING until the customer acts.

        Raises:
            OutcomeUnknownError: The prompt may have been sent and the customer may pay; look for it with
                ``transactions.find`` before you prompt again. ``collect_once`` does that for you.
        """
        request = StkRequest.checked(
            on_loopback=self._session.account.on_loopback,
            amount=amount,
            phone=phone,
            account_reference=account_reference,
            transaction_desc=transaction_desc,
            callback_url=self._session.callback_url(callback_url, account_reference),
            channel_id=channel_id,
            credential_id=credential_id,
        )
        details = PaymentDetails(reference=request.account_reference, amount=request.amount, phone=request.phone)
        return await Call(self._session, INITIATE, "/payments/stk", body=request.to_json(), details=details).run()

    @operation
    async def collect_once(
        self,
        *,
        reference: str,
        amount: int | Decimal,
        phone: str,
        transaction_desc: str | None = None,
        account_reference: str | None = None,
        callback_url: str | None = None,
        channel_id: ChannelRef | None = None,
        credential_id: str | UUID | None = None,
        abandon_after: float | None = None,
        metadata: Mapping[str, object] | None = None,
        journal: Journal | None = None,
    ) -> Payment:
        """Collect an order once, with as many prompts as it takes, at most one of them open.

        Call it again with the same arguments whenever the customer tries again, and after any error, crash or restart.
        It prompts only if every earlier prompt ended without success, or was refused or not sent and the service's list
        does not show it. Otherwise it returns the prompt that is open or was paid. One call at a time prompts for an
        order, across processes; a second one waits for the first. See the service page, "POST /payments/stk" and
        "GET /transactions".

        Args:
            reference: Your own reference for the order. It belongs to this amount forever. Text as for
                ``payouts.initiate``.
            amount: KES, at least 1, no more than two decimals.
            phone: The customer's number, in any form that `normalise_phone` takes. It may be another one than the last
                prompt's once no prompt is open or unresolved.
            transaction_desc: At most 13 characters; shown on the PIN prompt.
            account_reference: What the service gets as the reference, at most 12 characters; shown on the customer's
                statement. Prompts are found by it, so the order keeps its first one, and orders that share one (a
                meter, an admission number) wait for each other if they have the same amount. By default the order's
                reference where it fits, else a token of 12 letters and digits derived from it, which the entry has as
                ``wire_reference``.
            callback_url: Public HTTPS address that receives the result.
            channel_id: The payment channel, or its id; the default channel if not given.
            credential_id: The id of a ``MERCHANT_BYOC`` credential profile.
            abandon_after: Seconds after which a prompt that is still open does not block another one. By default it
                blocks for ever. A customer who answers both pays twice: the entry is ``paid_twice`` then, and it is
                logged at CRITICAL. It does not apply to a prompt whose outcome is unknown.
            metadata: A JSON object of your own, kept in the journal's entry and never sent.
            journal: The account's journal, by default the client's.

        Returns:
            The payment, PENDING until the customer acts; ``.is_new`` if this call sent the prompt. Else what was paid,
            or is open, as the service has it now.

        Raises:
            RequestValidationError: Nothing was sent; fix the arguments in ``.fields``. For ``account_reference``:
                another order with the same amount is open under it.
            DuplicateCollectionError: The order was used with another amount, or has an open prompt on another phone;
                nothing was sent.
            OutcomeUnknownError: The customer may have been prompted and may pay, and the service's list does not show
                it, shows ``.near_matches``, or could not be searched within the deadline. Call again later; if it stays
                so, look into the account console, then ``payouts.release(reference=...)``.
        """
        order = OrderRequest.checked(reference=reference, abandon_after=abandon_after)
        request = StkRequest.checked(
            on_loopback=self._session.account.on_loopback,
            amount=amount,
            phone=phone,
            account_reference=order.wire_reference if account_reference is None else account_reference,
            transaction_desc=transaction_desc,
            callback_url=self._session.callback_url(callback_url, order.reference),
            channel_id=channel_id,
            credential_id=credential_id,
        )
        journal, after = self._session.journal_for(journal), order.abandon_after
        call = DurableCall(self._session, journal, order.reference, request, metadata=metadata, abandon_after=after)
        return await call.run()
