"""B2C payouts: money from the account's B2C wallet to a phone."""

from __future__ import annotations

from decimal import Decimal
from typing import Literal

from momopay._budget import Lane
from momopay._colours import IO, Resource, operation
from momopay._endpoint import Endpoint, Facts
from momopay._retry import ONCE
from momopay.models.fields import ChannelRef
from momopay.models.payouts import Payout, PayoutRequest
from momopay.models.records import Envelope

INITIATE = Endpoint("POST", ONCE, Lane.PAYMENT, Envelope[Payout])


class Payouts(Resource[IO]):
    """B2C payouts (SPEC.md, "POST /b2c/payouts")."""

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

        The B2C wallet is debited as soon as the service accepts, and there is no idempotency key, so the
        request is sent at most once: a failure after which it may have been executed is never repeated.
        Rests on SPEC.md, "POST /b2c/payouts".

        Args:
            amount: KES, at least 10, no more than two decimals.
            phone: The recipient's number, in any form that `normalise_phone` takes.
            reference: Your own reference for this payout; make it unique, since a payout whose outcome is
                unknown is found by it.
            description: A short purpose.
            currency: KES, the only one.
            channel_id: A payment channel, or its id.
            callback_url: Public HTTPS address that receives the result.

        Returns:
            The payout, PENDING until the provider takes it.

        Raises:
            RequestValidationError: Refused here, nothing was sent; mend the arguments in ``.fields``.
            OutcomeUnknownError: The money may be gone; look for it with ``transactions.find`` and never
                send it again before you know.
            KycNotVerifiedError: Finish KYC in the account console.
            InsufficientFundsError: Fund the B2C wallet.
            InsufficientServiceBalanceError: Top up the service wallet.
            InvalidPhoneError: The service refused the number.
            RateLimitExceededError: Wait ``.retry_after`` seconds.
            BudgetExhaustedError: The rate budget has no slot within the deadline; nothing was sent.
            APIConnectionError: The service was not reached; nothing was sent; try again.
            APIError: Any other refusal; no money moved.
        """
        request = PayoutRequest.checked(
            on_loopback=self._session.account.on_loopback,
            amount=amount,
            phone=phone,
            reference=reference,
            description=description,
            currency=currency,
            channel_id=channel_id,
            callback_url=callback_url,
        )
        facts = Facts(reference=request.reference, amount=request.amount, phone=request.phone)
        return await self._session.call(INITIATE, "/b2c/payouts", body=request.to_json(), facts=facts)
