"""The processes of a campaign: one that pays or collects its orders until it is through them or killed, one that
sweeps, and one that hears callbacks over HTTP.
"""

import asyncio
import json
import logging
import multiprocessing
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count, cycle
from typing import Any

from campaign import controls
from campaign.clocks import SKEWS, Clock, own_time
from campaign.judge import Order
from campaign.orders import JUMPS, Ear, asking, heard, lane_of, next_call, orders_of
from campaign.settings import DEADLINE, LANES, SIGNER, TIMEOUT, Log, Settings
from momopay import AsyncClient, Client, EntryKind, Journal, JournalEntry, JournalError, MomoPayError

UNREACHABLE = 0.04
CANCELLED = 0.15
FORGOTTEN = 0.1
"""How likely an order is asked for again that was collected."""
ROUNDS = 4
"""How often a process goes through the orders that it collects: customers try again."""

RECOVERS = 20.0
"""Seconds within which a server that crashed can be used again, at most."""
SWEEPS_EVERY = 0.7
"""Seconds between two passes of a sweep."""


class Worker:
    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.plan = settings.plan
        self.rng = random.Random(f"{self.plan.seed} {settings.name}")
        self.journal = Journal(settings.database)
        self.log = Log(settings.log)
        self.kind = self.plan.kind
        self.orders = orders_of(self.kind, self.plan.seed, self.plan.size)
        self.clock = Clock(settings.epoch, settings.skew)
        self._calls = count()

    def clients(self, kind: Callable[..., Any]) -> Callable[[], Any]:
        """Return what draws the client of the next call: one that finds the service, or one that nobody answers."""
        found = self.mortal(kind)
        cut_off = self.mortal(kind, base_url=f"http://127.0.0.1:{self.settings.dead_port}/v1")
        return lambda: cut_off if self.rng.random() < UNREACHABLE else found

    def client(self, kind: Callable[..., Any], **options: Any) -> Any:
        options = {"base_url": self.settings.base_url, "max_attempts": 3, **options}
        return kind(**self.plan.client, timeout=TIMEOUT, deadline=DEADLINE, **options)

    def mortal(self, kind: Callable[..., Any], **options: Any) -> Any:
        """Make a client through which this process may die, or stop, at the worst moments."""
        client = self.client(kind, **options)
        io: Any = client._session.backend
        send = io.send

        async def mortal(method: str, url: str, headers: Any, body: bytes | None, *, progress: Any, **rest: Any) -> Any:
            sent: dict[str, Any] = json.loads(body) if method == "POST" and body is not None else {}
            reference: Any = sent.get("reference") or sent.get("accountReference")
            if reference:
                self._watch(progress, reference)
                self._act("row written", reference)
            answer = await send(method, url, headers, body, progress=progress, **rest)
            if reference:
                self._act("answer came", reference)
            return answer

        io.send = mortal
        return client

    def _watch(self, progress: Any, reference: str) -> None:
        """Stop, now and then, between the head and the body of a payout, and behind the body."""
        told = progress.trace_async

        async def trace(event: str, info: Any) -> None:
            if event.endswith("send_request_body.started") and self.rng.random() < self.settings.cuts:
                self._ask_for_a_cut()
            elif event.endswith("send_request_body.started"):
                self._act("head sent", reference, may_die=False)
            elif event.endswith("send_request_body.complete"):
                self._act("body sent", reference, may_die=False)
            await told(event, info)

        progress.trace_async = trace

    def _ask_for_a_cut(self) -> None:
        """Go on when the network has failed, or a little later."""
        path = self.settings.folder / f"cut-{os.getpid()}-{threading.get_ident()}"
        path.touch()
        give_up = time.monotonic() + TIMEOUT / 2
        while path.exists() and time.monotonic() < give_up:
            time.sleep(0.002)
        path.unlink(missing_ok=True)

    def _act(self, point: str, reference: str, *, may_die: bool = True) -> None:
        drawn = self.rng.random()
        if may_die and drawn < self.settings.dies:
            os.kill(os.getpid(), signal.SIGKILL)
        if drawn > 1 - self.settings.freezes:
            (self.settings.folder / f"frozen-{os.getpid()}").write_text(f"{point}: {reference}")
            os.kill(os.getpid(), signal.SIGSTOP)

    def entry(self, reference: str) -> JournalEntry | None:
        """Read the journal; what cannot be read is asked for."""
        try:
            return self.journal.get(reference, self.kind)
        except JournalError:
            return None

    def lane(self, number: int) -> Iterator[Order]:
        """Yield what to ask for in one lane."""
        rounds = 1 if self.kind is EntryKind.PAYOUT else ROUNDS
        for order in lane_of(self.orders, self.plan.seed, number, LANES) * rounds:
            wanted = self.next_call(order)
            if wanted is not None:
                yield wanted

    def wait_for_journal(self) -> None:
        """Wait while the server recovers from a crash: whoever starts a process at such a moment tries again."""
        latest = time.monotonic() + RECOVERS
        while True:
            try:
                self.journal.unresolved()
            except MomoPayError as error:
                if time.monotonic() > latest:
                    raise
                self.log.event(f"journal at the start: {type(error).__name__}")
                time.sleep(0.1)
            else:
                return

    def next_call(self, order: Order) -> Order | None:
        entry = self.entry(order.reference)
        if self.kind is EntryKind.COLLECTION:
            is_wanted = entry is None or entry.status != "SUCCESS" or self.rng.random() < FORGOTTEN
            return order if is_wanted else None
        return next_call(self.rng, order, entry)

    @contextmanager
    def call(self, client: Any, order: Order) -> Generator[tuple[Ear, Callable[[], Any]]]:
        """Yield what makes a call and what takes its result; log how it ends. The clock may jump before it."""
        if self.rng.random() < JUMPS:
            self.clock.skew = self.rng.choice(SKEWS)
        name = f"{self.settings.name}#{next(self._calls)}"
        url = self.settings.hook(order.reference)
        call = asking(client, self.kind, order, name, journal=self.journal, callback_url=url)
        with heard(self.log.word, name, order.reference, time.monotonic) as ear:
            yield ear, call

    def pause(self) -> float:
        return self.rng.uniform(0, 2 * self.settings.pace)


@contextmanager
def at_work(settings: Settings) -> Generator[Worker]:
    """Log nothing, end with the campaign that started this process, and break the safety that it breaks."""
    logging.getLogger("momopay").setLevel(logging.CRITICAL + 1)
    threading.Thread(target=_end_with_the_parent, daemon=True).start()
    with controls.broken(settings.plan.control):
        worker = Worker(settings)
        worker.wait_for_journal()
        with own_time(worker.clock, hastened=True):
            yield worker


def _end_with_the_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def work_blocking(worker: Worker) -> None:
    """Pay from threads that share one client."""
    client = worker.clients(Client)
    with reconciliation(worker):
        worker.journal.reconcile_all(client())

    def pay_lane(number: int) -> None:
        for order in worker.lane(number):
            with worker.call(client(), order) as (ear, call):
                ear.record = call()
            time.sleep(worker.pause())

    with ThreadPoolExecutor(LANES) as pool:
        list(pool.map(pay_lane, range(LANES)))


@contextmanager
def reconciliation(worker: Worker) -> Generator[None]:
    """Note how the reconciliation at the start failed, if it did."""
    try:
        yield
    except MomoPayError as error:
        worker.log.event(f"reconciliation at the start: {type(error).__name__}")


async def work_async(worker: Worker) -> None:
    """Pay from tasks that share one client; some are cancelled at any moment."""
    client = worker.clients(AsyncClient)
    loop = asyncio.get_running_loop()
    with reconciliation(worker):
        await worker.journal.reconcile_all(client())

    async def pay_lane(number: int) -> None:
        orders = worker.lane(number)
        while (order := await asyncio.to_thread(next, orders, None)) is not None:
            with worker.call(client(), order) as (ear, call):
                under_way = asyncio.ensure_future(call())
                if worker.rng.random() < CANCELLED:
                    loop.call_later(worker.rng.expovariate(1 / 0.03), under_way.cancel)
                ear.record = await under_way
            await asyncio.sleep(worker.pause())

    await asyncio.gather(*(pay_lane(number) for number in range(LANES)))


def run(settings: Settings) -> None:
    with at_work(settings) as worker:
        if settings.is_async:
            asyncio.run(work_async(worker))
        else:
            work_blocking(worker)


def ignore(_payment: Any) -> None:
    """Handle a payment that has ended."""


def sweep(settings: Settings) -> None:
    """Sweep again and again, as a process of its own, with one kind of client after the other."""
    with at_work(settings) as worker:

        async def sweep_async() -> Any:
            async with worker.client(AsyncClient) as client:
                return await client.transactions.sweep(journal=worker.journal, handler=ignore)

        def sweep_blocking() -> Any:
            with worker.client(Client) as client:
                return client.transactions.sweep(journal=worker.journal, handler=ignore)

        for is_async in cycle((False, True)):
            try:
                report = asyncio.run(sweep_async()) if is_async else sweep_blocking()
                worker.log.event("sweep: done, with failures" if report.failed else "sweep: done")
            except MomoPayError as error:
                worker.log.event(f"sweep: {type(error).__name__}")
            time.sleep(SWEEPS_EVERY)


def receive(settings: Settings) -> None:
    """Hear callbacks, as a process of its own: check the token, confirm at the service, settle the row."""
    with at_work(settings) as worker:
        client = worker.client(Client, max_attempts=2, journal=worker.journal)

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                status = client.transactions.receive(self.path, body, ignore, signer=SIGNER)
                worker.log.event(f"callback: {status}")
                with suppress(ConnectionError):
                    self.send_response(status)
                    self.send_header("content-length", "0")
                    self.end_headers()

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the base class's name
                pass

        ThreadingHTTPServer(("127.0.0.1", settings.hook_port), Handler).serve_forever()
