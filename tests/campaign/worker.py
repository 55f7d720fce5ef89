"""A process that pays the campaign's orders, with one kind of client, until it has been through them or is killed."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import random
import signal
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Any

from campaign import controls
from campaign.clocks import SKEWS, Clock, hasten, wind
from campaign.judge import Said, Word
from campaign.orders import Order, make_orders
from campaign.settings import DEADLINE, LANES, SECRET, TIMEOUT, Log, Note, Settings, end_with_the_parent
from campaign.words import heard
from momopay import AsyncClient, CallbackSigner, Client, Journal, JournalEntry, JournalError, JournalState, MomoPayError
from safety.struck import Striker

PASSES = 2
UNREACHABLE = 0.04
IMPOSTOR = 0.03
CANCELLED = 0.15
JUMPS = 0.01
"""How likely the clock of the process jumps before a call."""
AGAIN = {JournalState.ACCEPTED: 0.03, JournalState.UNKNOWN: 0.15}
"""How likely an order is asked for once more that is paid, or in doubt."""

STRIKE = 0.06
"""Seconds within which a signal strikes a call, about as many as a payout takes."""
HANG = 50
"""Tenths of a second that a call has at most: much more than its deadline."""


class Worker:
    """What both kinds of client do alike."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.rng = settings.rng()
        self.journal = Journal(settings.database)
        self.log = Log(settings.log)
        self.orders = make_orders(settings.seed, settings.orders)
        self.signer = CallbackSigner(SECRET)
        self.clock = Clock(settings.epoch, settings.speed, settings.skew)
        wind(self.clock)
        hasten()
        self._calls = count()

    def client(self, kind: Callable[..., Any], base_url: str) -> Any:
        """Make a client through which this process may die, or stop, at the worst moments."""
        client = kind(
            self.settings.key, base_url=base_url, budget=None, timeout=TIMEOUT, deadline=DEADLINE, max_attempts=3
        )
        io: Any = client._session.backend
        send = io.send

        async def mortal(
            method: str, url: str, headers: Any, body: bytes | None, *, timeout: float, progress: Any
        ) -> Any:
            if method == "POST" and body is not None:
                sent = json.loads(body)
                reference = sent.get("reference") or sent["accountReference"]
                self._watch(progress, reference)
                self._act("row written", reference)
                answer = await send(method, url, headers, body, timeout=timeout, progress=progress)
                self._act("answer came", reference)
                return answer
            return await send(method, url, headers, body, timeout=timeout, progress=progress)

        io.send = mortal
        return client

    def _watch(self, progress: Any, reference: str) -> None:
        """Stop, now and then, between the head and the body of a payout, and behind the body."""
        told = progress.trace_async

        async def trace(event: str, info: Any) -> None:
            if event.endswith("send_request_body.started") and self.rng.random() < self.settings.cuts:
                self._ask_for_a_cut(reference)
            elif event.endswith("send_request_body.started"):
                self._act("head sent", reference, may_die=False)
            elif event.endswith("send_request_body.complete"):
                self._act("body sent", reference, may_die=False)
            await told(event, info)

        progress.trace_async = trace

    def _ask_for_a_cut(self, reference: str) -> None:
        """Go on when the network has failed, or a little later."""
        path = Note(reference, "cut").leave(self.settings.folder, f"cut-{os.getpid()}-{threading.get_ident()}")
        give_up = time.monotonic() + TIMEOUT / 2
        while path.exists() and time.monotonic() < give_up:
            time.sleep(0.002)
        path.unlink(missing_ok=True)

    def _act(self, point: str, reference: str, *, may_die: bool = True) -> None:
        """Be killed here, be stopped here, or go on."""
        drawn = self.rng.random()
        if may_die and drawn < self.settings.dies:
            Note(reference, point).leave(self.settings.folder, f"dead-{os.getpid()}")
            os.kill(os.getpid(), signal.SIGKILL)
        _, points = controls.OF_FREEZING.get(self.settings.control or "", (None, (point,)))
        if drawn > 1 - self.settings.freezes and point in points:
            Note(reference, point).leave(self.settings.folder, str(os.getpid()))
            os.kill(os.getpid(), signal.SIGSTOP)

    def entry(self, reference: str) -> JournalEntry | None:
        """Read the journal; what cannot be read is asked for."""
        try:
            return self.journal.get(reference)
        except JournalError:
            return None

    def reachable(self) -> bool:
        """Draw whether the next call finds the service."""
        return self.rng.random() >= UNREACHABLE

    @property
    def dead_url(self) -> str:
        """An address that refuses every connection."""
        return f"http://127.0.0.1:{self.settings.dead_port}/v1"

    def lane(self, number: int) -> list[Order]:
        """Give the orders of one lane, for every worker in nearly the same order, so that they meet."""
        share = self.orders[number::LANES]
        passes = [random.Random(f"{self.settings.seed} {n}").sample(share, len(share)) for n in range(PASSES)]
        return [order for each in passes for order in each]

    def next_call(self, order: Order, entry: JournalEntry | None) -> Order | None:
        """Choose what to ask for: the order, another amount under its reference, or nothing if it is done."""
        if entry is not None and self.rng.random() < IMPOSTOR:
            return replace(order, amount=order.amount + 1)
        again = 1.0 if entry is None else AGAIN.get(entry.state, 1.0)
        return order if self.rng.random() < again else None

    def arguments(self, order: Order) -> dict[str, Any]:
        """Give the arguments of `pay_once`; the description names the call. The clock may jump before it."""
        if self.rng.random() < JUMPS:
            self.clock.skew = self.rng.choice(SKEWS)
        return {
            "journal": self.journal,
            "reference": order.reference,
            "amount": order.amount,
            "phone": order.phone,
            "description": f"{self.settings.name}#{next(self._calls)}",
            "callback_url": self.signer.url(self.settings.hook, reference=order.reference),
        }

    def pause(self) -> float:
        """Draw the pause before the next call, seconds."""
        return self.rng.uniform(0, 2 * self.settings.pace)


def work_blocking(worker: Worker) -> None:
    """Pay from threads that share one client."""
    client, cut_off = worker.client(Client, worker.settings.base_url), worker.client(Client, worker.dead_url)
    try:
        worker.journal.reconcile_all(client)
    except MomoPayError as error:
        worker.log.event(f"reconciliation at the start: {type(error).__name__}")

    def pay_lane(number: int) -> None:
        for order in worker.lane(number):
            asked = worker.next_call(order, worker.entry(order.reference))
            if asked is None:
                continue
            arguments = worker.arguments(asked)
            with heard(worker.log.word, arguments["description"], asked.reference, time.monotonic) as ear:
                payer = client if worker.reachable() else cut_off
                ear.record = payer.payouts.pay_once(**arguments)
            time.sleep(worker.pause())

    threads = [threading.Thread(target=pay_lane, args=(number,)) for number in range(LANES)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def work_struck(worker: Worker) -> None:
    """Pay from the main thread, while signals raise into it; each order again in peace, when nothing may hang."""
    client = worker.client(Client, worker.settings.base_url)
    striker = Striker(worker.rng.getrandbits(32), STRIKE)
    under_way = [Word("", "", Said.HUNG, time.monotonic())]
    threading.Thread(target=_end_if_hung, args=(worker, under_way), daemon=True).start()

    def pay(order: Order) -> None:
        arguments = worker.arguments(order)
        under_way[0] = Word(arguments["description"], order.reference, Said.HUNG, time.monotonic())
        with heard(worker.log.word, arguments["description"], order.reference, time.monotonic) as ear:
            ear.record = client.payouts.pay_once(**arguments)

    def pay_once_until_struck(order: Order) -> None:
        pay(order)
        time.sleep(STRIKE)

    pay(worker.lane(0)[0])  # in peace: it imports what is imported on first use
    for number in range(LANES):
        for order in worker.lane(number):
            asked = worker.next_call(order, worker.entry(order.reference))
            if asked is not None:
                striker.strike(partial(pay_once_until_struck, asked))
                pay(asked)
                time.sleep(worker.pause())


def _end_if_hung(worker: Worker, under_way: list[Word]) -> None:
    """End the process when a call does not end. It counts, for while a process is frozen the clock goes on."""
    seen, times = under_way[0], 0
    while times < HANG:
        time.sleep(0.1)
        times = times + 1 if under_way[0] is seen else 0
        seen = under_way[0]
    worker.log.word(seen)
    os._exit(0)


async def work_async(worker: Worker) -> None:
    """Pay from tasks that share one client; some are cancelled at any moment."""
    client = worker.client(AsyncClient, worker.settings.base_url)
    cut_off = worker.client(AsyncClient, worker.dead_url)
    loop = asyncio.get_running_loop()
    try:
        await worker.journal.reconcile_all(client)
    except MomoPayError as error:
        worker.log.event(f"reconciliation at the start: {type(error).__name__}")

    async def pay_lane(number: int) -> None:
        for order in worker.lane(number):
            entry = await asyncio.to_thread(worker.entry, order.reference)
            asked = worker.next_call(order, entry)
            if asked is None:
                continue
            arguments = worker.arguments(asked)
            with heard(worker.log.word, arguments["description"], asked.reference, time.monotonic) as ear:
                payer = client if worker.reachable() else cut_off
                call = asyncio.ensure_future(payer.payouts.pay_once(**arguments))
                if worker.rng.random() < CANCELLED:
                    loop.call_later(worker.rng.expovariate(1 / 0.03), call.cancel)
                ear.record = await call
            await asyncio.sleep(worker.pause())

    await asyncio.gather(*(pay_lane(number) for number in range(LANES)))


def run(settings_json: str) -> None:
    """Work, as a process of its own."""
    logging.getLogger("momopay").setLevel(logging.CRITICAL + 1)
    end_with_the_parent()
    settings = Settings.from_json(settings_json)
    worker = Worker(settings)
    with nullcontext() if settings.control is None else controls.broken(settings.control):
        if settings.client_kind == "async":
            asyncio.run(work_async(worker))
        elif settings.fault == "struck":
            work_struck(worker)
        else:
            work_blocking(worker)
