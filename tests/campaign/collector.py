"""The processes of a campaign of collections: those that collect, the one that sweeps, and the one that hears."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, replace
from itertools import count
from threading import Thread
from typing import Any

from campaign import controls, receiver
from campaign.clocks import SKEWS
from campaign.collect_judge import Said, Word
from campaign.orders import Order, make_orders
from campaign.settings import DEADLINE, LANES, TIMEOUT, Settings, end_with_the_parent
from campaign.till import BY_HAND
from campaign.worker import CANCELLED, JUMPS, Worker
from momopay import (
    AsyncClient,
    Client,
    EntryKind,
    ForgedCallbackError,
    JournalEntry,
    JournalError,
    MomoPayError,
    parse_callback,
)

SWEEPS_EVERY = 0.7
"""Seconds between two passes of a sweep."""
ROUNDS = 4
"""How often a process goes through its orders, twice each time."""
FORGOTTEN = 0.1
"""How likely an order is asked for again that is paid."""


def collections_of(seed: int, size: int) -> list[Order]:
    """Make so many orders, each of a customer who decides; every third is too long for the wire."""
    made = make_orders(seed, size)
    return [
        replace(
            order,
            reference=f"{order.reference}-of-a-shop" if number % 3 == 0 else order.reference[-12:],
            phone=f"{order.phone[:8]}{BY_HAND}",
        )
        for number, order in enumerate(made)
    ]


class Heard:
    """Takes what a call returned."""

    record: Any = None


@contextmanager
def heard(log: Callable[[Word], None], call: str, reference: str) -> Generator[Heard]:
    """Hear how one call ends, and tell. A kill is not heard."""
    ear, begun, error, said = Heard(), time.monotonic(), "", Said.OPEN
    try:
        yield ear
        said = Said.PAID if ear.record.status == "SUCCESS" else Said.OPEN
    except MomoPayError as failure:
        said, error = (Said.UNKNOWN if failure.may_have_executed else Said.FAILED), f"{type(failure).__name__}"
    except asyncio.CancelledError:
        said = Said.CANCELLED
    except Exception as failure:  # noqa: BLE001  an untyped error is what is looked for
        said, error = Said.UNTYPED, repr(failure)
    identity = None if ear.record is None else ear.record.transaction_id
    log(Word(call, reference, said, begun, time.monotonic(), error, identity))


class Collector(Worker):
    """A process that collects the campaign's orders, until it has been through them or is killed."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.orders = collections_of(settings.seed, settings.orders)
        self._numbers = count()

    def entry(self, reference: str) -> JournalEntry | None:
        """Read the journal; what cannot be read is asked for."""
        try:
            return self.journal.get(reference, EntryKind.COLLECTION)
        except JournalError:
            return None

    def lane(self, number: int) -> list[Order]:
        """Give the orders of one lane again and again: customers try again, and somebody looks what became of them."""
        return super().lane(number) * ROUNDS

    def tell(self, word: Word) -> None:
        """Write down what a call said."""
        self.log._write({"collected": asdict(word)})

    def wants(self, order: Order) -> bool:
        """Return whether to ask for an order: nearly always, unless it is paid."""
        entry = self.entry(order.reference)
        return entry is None or entry.status != "SUCCESS" or self.rng.random() < FORGOTTEN

    def arguments(self, order: Order) -> dict[str, Any]:
        """Give the arguments of `collect_once`; the description names the call. The clock may jump before it."""
        if self.rng.random() < JUMPS:
            self.clock.skew = self.rng.choice(SKEWS)
        return {
            "journal": self.journal,
            "reference": order.reference,
            "amount": order.amount,
            "phone": order.phone,
            "transaction_desc": f"{self.settings.name}#{next(self._numbers)}",
            "callback_url": self.signer.url(self.settings.hook, reference=order.reference),
        }


def work_blocking(worker: Collector) -> None:
    """Collect from threads that share one client."""
    client, cut_off = worker.client(Client, worker.settings.base_url), worker.client(Client, worker.dead_url)

    def collect_lane(number: int) -> None:
        for order in worker.lane(number):
            if worker.wants(order):
                arguments = worker.arguments(order)
                with heard(worker.tell, arguments["transaction_desc"], order.reference) as ear:
                    chosen = client if worker.reachable() else cut_off
                    ear.record = chosen.stk.collect_once(**arguments)
            time.sleep(worker.pause())

    threads = [Thread(target=collect_lane, args=(number,)) for number in range(LANES)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


async def work_async(worker: Collector) -> None:
    """Collect from tasks that share one client; some are cancelled at any moment."""
    client = worker.client(AsyncClient, worker.settings.base_url)
    cut_off = worker.client(AsyncClient, worker.dead_url)
    loop = asyncio.get_running_loop()

    async def collect_lane(number: int) -> None:
        for order in worker.lane(number):
            if await asyncio.to_thread(worker.wants, order):
                arguments = worker.arguments(order)
                with heard(worker.tell, arguments["transaction_desc"], order.reference) as ear:
                    chosen = client if worker.reachable() else cut_off
                    call = asyncio.ensure_future(chosen.stk.collect_once(**arguments))
                    if worker.rng.random() < CANCELLED:
                        loop.call_later(worker.rng.expovariate(1 / 0.03), call.cancel)
                    ear.record = await call
            await asyncio.sleep(worker.pause())

    await asyncio.gather(*(collect_lane(number) for number in range(LANES)))


def run(settings_json: str) -> None:
    """Collect, as a process of its own."""
    _prepare()
    settings = Settings.from_json(settings_json)
    worker = Collector(settings)
    with controls.broken(settings.control) if settings.control else nullcontext():
        if settings.client_kind == "async":
            asyncio.run(work_async(worker))
        else:
            work_blocking(worker)


def sweep(settings_json: str) -> None:
    """Sweep again and again, as a process of its own, with one kind of client after the other."""
    _prepare()
    settings = Settings.from_json(settings_json)
    worker = Collector(settings)
    options: dict[str, Any] = {"base_url": settings.base_url, "budget": None, "timeout": TIMEOUT, "deadline": DEADLINE}

    def told(make: Callable[[], Any]) -> None:
        try:
            report = make()
        except MomoPayError as error:
            worker.log.event(f"sweep: {type(error).__name__}")
        else:
            worker.log.event("sweep: done, with failures" if report.failed else "sweep: done")

    async def swept() -> Any:
        async with AsyncClient(settings.key, **options) as client:
            return await client.transactions.sweep(journal=worker.journal, handler=_nothing)

    with controls.broken(settings.control) if settings.control else nullcontext():
        while True:
            with Client(settings.key, **options) as client:
                told(lambda: client.transactions.sweep(journal=worker.journal, handler=lambda _: None))
            time.sleep(SWEEPS_EVERY)
            told(lambda: asyncio.run(swept()))
            time.sleep(SWEEPS_EVERY)


async def _nothing(_transaction: Any) -> None:
    pass


class PromptReceiver(receiver.Receiver):
    """Hears of prompts."""

    def _handle(self, path: str, body: bytes) -> str:
        reference = self._signer.verify(path)
        callback = parse_callback(body)
        with self._journal.handling(callback) as first:
            if not first:
                return "seen before"
            entry = self._journal.settle(self._client.transactions.confirm(callback))
            if entry is not None and entry.reference != reference:
                raise ForgedCallbackError("the token is another order's")
            return "none of the journal's" if entry is None else "settled"


def hear(settings_json: str) -> None:
    """Listen, as a process of its own."""
    _prepare()
    settings = Settings.from_json(settings_json)
    with controls.broken(settings.control) if settings.control else nullcontext():
        receiver.serve(settings, PromptReceiver)


def _prepare() -> None:
    logging.getLogger("momopay").setLevel(logging.CRITICAL + 1)
    end_with_the_parent()
