"""Callbacks of the simulation: delivered, lost with their receiver, sent again, and forged."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from campaign.bank import FORGERIES, forged
from campaign.orders import Order
from campaign.port import KilledError, awaited
from campaign.scheduler import Task
from momopay import CallbackError, CallbackSigner, ForgedCallbackError, MomoPayError, parse_callback

if TYPE_CHECKING:
    from campaign.world import Process, World

HOOK = "https://shop.example/momo"


class Callbacks:
    """What arrives at the processes of a world."""

    def __init__(self, world: World) -> None:
        self.counts: Counter[str] = Counter()
        self.signer = CallbackSigner("a secret of the simulation")
        self._world = world

    def url(self, reference: str) -> str:
        return self.signer.url(HOOK, reference=reference)

    def deliver(self, url: str, body: bytes, *, forgery: str = "", attempt: int = 0) -> None:
        process = self._world.rng.choice(list(self._world.processes.values()))
        if not process.alive:
            self._again(url, body, forgery, attempt)
            return

        async def hear(_task: Task) -> None:
            try:
                heard = await self._hear(process, url, body)
            except CallbackError as error:
                heard = type(error).__name__
            except (MomoPayError, KilledError) as error:
                heard = f"to come again: {type(error).__name__ if process.alive else 'the receiver was killed'}"
                self._again(url, body, forgery, attempt)
            self.counts[f"forged, {forgery}: {heard}" if forgery else heard] += 1

        self._world.scheduler.spawn(process, hear)

    def _again(self, url: str, body: bytes, forgery: str, attempt: int) -> None:
        if attempt < 5:
            self._world.bank.at(10, lambda: self.deliver(url, body, forgery=forgery, attempt=attempt + 1))

    async def _hear(self, process: Process, url: str, body: bytes) -> str:
        reference = self.signer.verify(url)
        callback = parse_callback(body)
        if callback.transaction.account_reference != reference:
            raise ForgedCallbackError("the token is another payment's")
        with process.journal.handling(callback) as first:
            if not first:
                return "seen before"
            transaction = await awaited(process.client.transactions.confirm(callback))
            entry = process.journal.settle(transaction)
            return "settled" if entry is not None else "none of the journal's"

    def forge(self) -> None:
        rng = self._world.rng
        kind, order = rng.choice(FORGERIES), rng.choice(self._worth_forging())
        url, body = forged(kind, order, f"{rng.getrandbits(48):x}", self.url, HOOK, rng, self._world.bank.ledger)
        self.deliver(url, body, forgery=kind, attempt=5)

    def _worth_forging(self) -> list[Order]:
        """Whoever forges knows which payouts are under way or in doubt: a settled one cannot be shaken."""
        open_now: list[Order] = []
        for process in self._world.processes.values():
            if process.alive:
                doubtful = {entry.reference for entry in process.journal.unresolved()}
                open_now = [order for order in self._world.orders if order.reference in doubtful]
                break
        return [*self._world.under_way, *open_now] or self._world.orders
