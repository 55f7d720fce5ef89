"""Whoever forges callbacks: POSTs to the receiver what the service never sent, for payouts under way or in doubt."""

from __future__ import annotations

import http.client
import random
import threading
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from uuid import UUID

from campaign.bank import FORGERIES, forged
from campaign.judge import Payment
from campaign.orders import Order
from campaign.settings import SECRET, Settings
from momopay import CallbackSigner

EVERY = 0.4
"""Seconds between two pairs of forgeries."""


class Forger:
    """Knows every callback URL, and every payment that was made, and may not settle anything with it."""

    def __init__(
        self,
        settings: Settings,
        orders: Callable[[], Sequence[Order]],
        payments: Callable[[], Sequence[Payment]],
    ) -> None:
        self.rng = random.Random(f"forger {settings.seed}")
        self.answers: Counter[str] = Counter()
        self._settings = settings
        self._signer = CallbackSigner(SECRET)
        self._orders = orders
        self._payments = payments
        self._over = threading.Event()

    @contextmanager
    def at_work(self) -> Generator[None]:
        thread = threading.Thread(target=self._run)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()

    def _run(self) -> None:
        while not self._over.wait(EVERY):
            orders = self._orders()
            for order in self.rng.sample(orders, min(2, len(orders))):
                kind = self.rng.choice(FORGERIES)
                self.answers[f"{kind}: {self._post(*self._forged(kind, order))}"] += 1

    def _forged(self, kind: str, order: Order) -> tuple[str, bytes]:
        identity = str(UUID(int=self.rng.getrandbits(128), version=4))
        hook, paid = self._settings.hook, list(self._payments()[-50:])
        return forged(kind, order, identity, lambda each: self._signer.url(hook, reference=each), hook, self.rng, paid)

    def _post(self, url: str, body: bytes) -> str:
        connection = http.client.HTTPConnection("127.0.0.1", self._settings.hook_port, timeout=5)
        try:
            connection.request("POST", url.partition(str(self._settings.hook_port))[2], body)
            return f"answered {connection.getresponse().status}"
        except OSError:
            return "not heard"
        finally:
            connection.close()
