"""Every error of the SDK itself, raised as a user meets it, so that pages can show its real text."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from momopay import CallbackSigner, Client, Journal, MomoPayError, PollSchedule, RateBudget, parse_callback
from momopay.sandbox import Fault, Outcome, Sandbox, phone_for

PHONE = "0712 345 678"


class Raised:
    """Raises each error against a sandbox. The methods are named as the classes are."""

    def __init__(self, sandbox: Sandbox, folder: Path) -> None:
        self.sandbox = sandbox
        self.folder = folder
        self.client = Client("pk_test_raised", base_url=sandbox.base_url, budget=None, max_attempts=1)

    def catch(self, name: str) -> MomoPayError:
        """Return the error of this class."""
        made: Callable[[], object] = getattr(self, name)
        with pytest.raises(MomoPayError) as caught:
            made()
        assert type(caught.value).__name__ == name
        return caught.value

    def journal(self) -> Journal:
        return Journal(f"sqlite:///{self.folder / 'errors.db'}")

    def answering(self, status: int, text: str) -> Client:
        """Return a client whose service answers so."""
        transport = httpx.MockTransport(lambda _: httpx.Response(status, text=text))
        base_url = "https://api.example/v1"
        return Client("pk_test_raised", base_url=base_url, transport=transport, budget=None, max_attempts=1)

    def ConfigurationError(self) -> None:  # noqa: N802
        saved = os.environ.pop("MOMOPAY_API_KEY", None)
        try:
            Client(base_url=self.sandbox.base_url)
        finally:
            if saved is not None:
                os.environ["MOMOPAY_API_KEY"] = saved

    def RequestValidationError(self) -> None:  # noqa: N802
        self.client.stk.initiate(amount=0, phone="0712")

    def CallbackError(self) -> None:  # noqa: N802
        callback = parse_callback(
            {"event_type": "transaction.success", "transaction": {"id": "5f1c2a9e", "status": "SUCCESS"}}
        )
        with self.journal() as journal, journal.handling(callback), journal.handling(callback):
            pass

    def InvalidCallbackError(self) -> None:  # noqa: N802
        parse_callback(b"<html>")

    def ForgedCallbackError(self) -> None:  # noqa: N802
        CallbackSigner("a secret of more than 16 bytes").verify("https://shop.example/momo")

    def CallbackMismatchError(self) -> None:  # noqa: N802
        prompt = self.client.stk.initiate(amount=5, phone=PHONE)
        body = {
            "event_type": "transaction.success",
            "transaction": {"id": prompt.transaction_id, "status": "SUCCESS", "amount": 500},
        }
        self.client.transactions.confirm(parse_callback(body))

    def APIConnectionError(self) -> None:  # noqa: N802
        with Client("pk_test_raised", base_url="http://127.0.0.1:1/v1", budget=None, max_attempts=1) as client:
            client.wallet.balance()

    def BudgetExhaustedError(self) -> None:  # noqa: N802
        budget = RateBudget(requests=1, window=61.0)
        with Client("pk_test_raised", base_url=self.sandbox.base_url, budget=budget, deadline=5) as client:
            client.wallet.balance()
            client.wallet.balance()

    def OutcomeUnknownError(self) -> None:  # noqa: N802
        self.sandbox.fail_next("POST", "/b2c/payouts", Fault.reset_after_commit)
        self.client.payouts.initiate(amount=2500, phone=PHONE, reference="SAL-7")

    def ProtocolError(self) -> None:  # noqa: N802
        with self.answering(200, "<html>A proxy's page</html>") as client:
            client.wallet.balance()

    def WaitTimeoutError(self) -> None:  # noqa: N802
        prompt = self.client.stk.initiate(amount=5, phone=phone_for(Outcome.by_hand))
        self.client.transactions.wait(prompt, schedule=PollSchedule(first=0.01, every=0.01, limit=0.05))

    def DuplicatePayoutError(self) -> None:  # noqa: N802
        with self.journal() as journal:
            for amount in (100, 200):
                self.client.payouts.pay_once(journal=journal, reference="SAL-8", amount=amount, phone=PHONE)

    def DuplicateCollectionError(self) -> None:  # noqa: N802
        with self.journal() as journal:
            for amount in (100, 200):
                self.client.stk.collect_once(journal=journal, reference="INV-8", amount=amount, phone=PHONE)

    def JournalError(self) -> None:  # noqa: N802
        path = self.folder / "removed.db"
        with Journal(f"sqlite:///{path}") as journal:
            journal.get("SAL-9")
            path.unlink()
            journal.get("SAL-9")

    def ServerError(self) -> None:  # noqa: N802
        with self.answering(502, "<html>Bad gateway</html>") as client:
            client.wallet.balance()
