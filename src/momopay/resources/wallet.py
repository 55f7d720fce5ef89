"""The service wallet, from which the service's fees are deducted."""

from __future__ import annotations

from decimal import Decimal
from uuid import uuid4

from momopay._core.call import Call, Endpoint, PaymentDetails
from momopay._core.operation import Resource, operation
from momopay._core.reads import read_balance
from momopay._core.retry import IDEMPOTENCY_KEYED
from momopay._core.wiring import BackendT
from momopay._ratelimit.budget import Lane
from momopay.models.account import TopUp, WalletBalance
from momopay.models.records import Envelope
from momopay.models.requests import TopUpRequest

TOP_UP = Endpoint("wallet.top_up", "POST", IDEMPOTENCY_KEYED, Lane.PAYMENT, Envelope[TopUp])


class Wallet(Resource[BackendT]):
    """The service wallet (service page, "Service wallet")."""

    @operation
    async def balance(self) -> WalletBalance:
        """Read the spendable and the ledger balance, KES; retried as needed.

        See the service page, "GET /wallets/service/balance".
        """
        return await read_balance(self._session)

    @operation
    async def top_up(
        self,
        *,
        amount: int | Decimal,
        phone: str,
        account_reference: str | None = None,
        transaction_desc: str | None = None,
        idempotency_key: str | None = None,
    ) -> TopUp:
        """Fill the service wallet by an STK prompt to your own phone.

        An ``Idempotency-Key`` is always sent, and kept on every retry, so that a failure whose outcome is unknown
        is retried without a second prompt. See the service page, "POST /wallets/service/topups".

        Args:
            amount: KES, at least 1, no more than two decimals.
            phone: The number that receives the prompt, in any form that `normalise_phone` takes.
            account_reference: At most 120 characters; appears on the statement. No space at an end, no character that
                nobody sees, and in the Unicode form NFC.
            transaction_desc: At most 255 characters; shown in the transaction history.
            idempotency_key: 1 to 255 visible ASCII characters, unique per top-up that you intend; generated if None.

        Returns:
            The top-up, PENDING until the prompt is answered; the balance follows in 1 to 2 minutes.

        Raises:
            OutcomeUnknownError: The prompt may have been sent; call again with ``.idempotency_key``.
            APIError: Any other refusal; ``may_have_executed`` says whether an attempt may have executed: an earlier
                one, or the last one, if its code is not specified.
        """
        request = TopUpRequest.checked(
            amount=amount,
            phone=phone,
            account_reference=account_reference,
            transaction_desc=transaction_desc,
            idempotency_key=str(uuid4()) if idempotency_key is None else idempotency_key,
        )
        # The key is sent in the header only; an OutcomeUnknownError carries it too, for the caller's next attempt.
        key = request.idempotency_key
        details = PaymentDetails(
            reference=request.account_reference, amount=request.amount, phone=request.phone, idempotency_key=key
        )
        headers = {"Idempotency-Key": key}
        path = "/wallets/service/topups"
        return await Call(self._session, TOP_UP, path, body=request.to_json(), headers=headers, details=details).run()
