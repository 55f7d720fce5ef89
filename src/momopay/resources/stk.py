"""STK collections: a PIN prompt on a customer's phone."""

from __future__ import annotations

from decimal import Decimal
from uuid import UUID

from momopay._core.backend import BackendT
from momopay._core.call import call
from momopay._core.endpoint import Endpoint, PaymentDetails
from momopay._core.operation import Resource, operation
from momopay._core.retry import AT_MOST_ONCE
from momopay._ratelimit.budget import Lane
from momopay.models.arguments import ChannelRef
from momopay.models.records import Envelope
from momopay.models.requests import StkRequest
from momopay.models.stk import StkTransaction

__all__ = ["Stk"]

INITIATE = Endpoint("POST", AT_MOST_ONCE, Lane.PAYMENT, Envelope[StkTransaction], prompts=True)


class Stk(Resource[BackendT]):
    """STK collections (service page, "POST /payments/stk")."""

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
        deducted from the service wallet at once. Rests on the service page, "POST /payments/stk" and "Callbacks".

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
            RequestValidationError: Refused locally, nothing was sent; fix the arguments in ``.fields``.
            OutcomeUnknownError: The prompt may have been sent and the customer may pay; look for it with
                ``transactions.find`` before you prompt again.
            InvalidPhoneError: The service refused the number; ask for it again.
            NoPaymentChannelsError: Create a channel.
            NoDefaultChannelError: Give ``channel_id`` or make a channel the default.
            ChannelNotFoundError: The channel is not on the account; list the channels.
            InsufficientServiceBalanceError: Top up the service wallet.
            StkTempBannedError: Wait ``.retry_after`` seconds; until then every prompt is refused locally.
            TransactionHealthBlockedError: As above, for the whole account.
            RateLimitExceededError: Wait ``.retry_after`` seconds.
            BudgetExhaustedError: The rate budget has no slot within the deadline; nothing was sent.
            APIConnectionError: The service was not reached; nothing was sent; try again.
            APIError: Any other refusal; no money moved.
        """
        request = StkRequest.checked(
            on_loopback=self._session.account.on_loopback,
            amount=amount,
            phone=phone,
            account_reference=account_reference,
            transaction_desc=transaction_desc,
            callback_url=callback_url,
            channel_id=channel_id,
            credential_id=credential_id,
        )
        details = PaymentDetails(reference=request.account_reference, amount=request.amount, phone=request.phone)
        return await call(self._session, INITIATE, "/payments/stk", body=request.to_json(), details=details)
