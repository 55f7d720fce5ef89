"""A merchant's app whose handler, sync or async, confirms each callback with a real client and counts its effects."""

from typing import Any

import momopay
from momopay import Callback, CallbackSigner, Journal
from momopay.sandbox import Sandbox

SECRET = "a shop's own secret, long enough"


class Shop:
    """The signer and journal of the app, the callbacks it received, and their effects."""

    def __init__(self, sandbox: Sandbox, key: str, journal: Journal) -> None:
        self.signer = CallbackSigner(SECRET)
        self.journal = journal
        self.url = ""
        self.calls: list[Callback] = []
        self.effects: list[tuple[str, str]] = []
        self._account: dict[str, Any] = {"api_key": key, "base_url": sandbox.base_url, "budget": None}

    def handle(self, callback: Callback) -> None:
        self.calls.append(callback)
        with momopay.Client(**self._account) as client:
            self._act_on(client.transactions.confirm(callback))

    async def handle_async(self, callback: Callback) -> None:
        self.calls.append(callback)
        async with momopay.AsyncClient(**self._account) as client:
            self._act_on(await client.transactions.confirm(callback))

    def pay(self, reference: str = "INV-42", **fields: Any) -> str:
        """Prompt for a payment with a signed callback URL; return its id."""
        url = self.signer.url(self.url, reference=reference)
        asked: dict[str, Any] = {"amount": 100, "phone": "0712345678", "account_reference": reference, **fields}
        with momopay.Client(**self._account) as client:
            prompt = client.stk.initiate(**asked, callback_url=url)
        return prompt.transaction_id

    def _act_on(self, transaction: momopay.Transaction) -> None:
        self.effects.append((transaction.transaction_id, transaction.status))
