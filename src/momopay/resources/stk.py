"""STK collections: a PIN prompt on a customer's phone."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from uuid import UUID

from momopay._core.call import Call
from momopay._core.endpoint import Endpoint, PaymentDetails
from momopay._core.operation import Resource, operation
from momopay._core.retry import AT_MOST_ONCE
from momopay._core.wiring import BackendT
from momopay._ratelimit.budget import Lane
from momopay.durable.call import DurableCall
from momopay.durable.payment import journal_for
from momopay.journal import Journal
from momopay.models.arguments import ChannelRef
from momopay.models.payments import Payment
from momopay.models.records import Envelope
from momopay.models.requests import OrderRequest, StkRequest
from momopay.models.transactions import StkTransaction

INITIATE = Endpoint("stk.initiate", "POST", AT_MOST_ONCE, Lane.PAYMENT, Envelope[StkTransaction], prompts=True)


class Stk(Resource[BackendT]):
    """STK collections (service page, "POST /payments/stk").

    A call may raise other `MomoPayError`s than it lists: no prompt was sent then, unless ``error.may_have_executed``.
    Once the cause is fixed, you can repeat the same call of `collect_once`.
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
        """Send a PIN prompt to a customer's phone, at most once per call.

        Every call is a new prompt and a new transaction. A request that may have executed is never retried. The result
        comes to `callback_url`, or from ``transactions.wait``. The fee is deducted from the service wallet at once. See
        the service page, "POST /payments/stk" and "Callbacks".

        Args:
            amount: KES, at least 1, with at most two decimals.
            phone: The customer's number, in any form that `normalise_phone` takes.
            account_reference: At most 12 characters, shown on the statement. Text as for ``payouts.initiate``.
            transaction_desc: At most 13 characters, shown on the PIN prompt.
            callback_url: Public HTTPS URL that receives the result.
            channel_id: A payment channel, or its id; by default the default channel.
            credential_id: The id of a ``MERCHANT_BYOC`` credential profile.

        Returns:
            The transaction, PENDING until the customer acts.

        Raises:
            OutcomeUnknownError: The prompt may have been sent, and the customer may pay. Search with
                ``transactions.find`` before you prompt again; `collect_once` does this for you.
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
        """Collect an order once, with as many prompts as it takes, of which at most one is open.

        Call it again with the same arguments when the customer tries again, and after any error, crash or restart. It
        sends a prompt only if each earlier one ended without success, or was refused or not sent and the service's list
        does not show it. Otherwise it returns the open or paid prompt. A call waits for another one for the same order,
        even in another process. See the service page, "POST /payments/stk" and "GET /transactions".

        Args:
            reference: Your own reference for the order, bound to its amount forever. Text as for ``payouts.initiate``.
            amount: KES, at least 1, with at most two decimals.
            phone: The customer's number, in any form that `normalise_phone` takes. You may change it while no prompt is
                open or unresolved.
            transaction_desc: At most 13 characters, shown on the PIN prompt.
            account_reference: The reference that the service gets, at most 12 characters, shown on the customer's
                statement. Prompts are found by it: an order keeps its first one, and orders that share one (a meter, an
                admission number) wait for each other if their amounts are the same. By default `reference` if it fits,
                else a token of 12 letters and digits derived from it (the entry's ``wire_reference``).
            callback_url: Public HTTPS URL that receives the result.
            channel_id: A payment channel, or its id; by default the default channel.
            credential_id: The id of a ``MERCHANT_BYOC`` credential profile.
            abandon_after: Seconds after which an open prompt no longer blocks another one; by default it always does. A
                customer who answers both pays twice: the entry is then ``paid_twice``, and it is logged at CRITICAL. It
                does not apply to a prompt whose outcome is unknown.
            metadata: Your own JSON object, kept in the journal's entry and never sent.
            journal: The account's journal, by default the client's.

        Returns:
            The open or paid prompt, as the service has it now; PENDING and ``.is_new`` if this call sent it.

        Raises:
            RequestValidationError: The arguments in ``.fields`` are invalid; nothing was sent. For `account_reference`:
                another order with the same amount is open under it.
            DuplicateCollectionError: Nothing was sent: the order has another amount, or is open on another phone.
            OutcomeUnknownError: The customer may have a prompt, and may pay. The service's list does not show it, shows
                ``.near_matches``, or could not be searched within the deadline. Call again later. If the error
                persists, look into the account console, then ``payouts.release(reference=...)``.
        """
        order = OrderRequest.checked(reference=reference, abandon_after=abandon_after)
        request = StkRequest.checked(
            on_loopback=self._session.account.on_loopback,
            amount=amount,
            phone=phone,
            account_reference=account_reference or order.wire_reference,  # prompts could not be found without one
            transaction_desc=transaction_desc,
            callback_url=self._session.callback_url(callback_url, order.reference),
            channel_id=channel_id,
            credential_id=credential_id,
        )
        journal, after = journal_for(self._session, journal), order.abandon_after
        call = DurableCall(self._session, journal, order.reference, request, metadata=metadata, abandon_after=after)
        return await call.run()
