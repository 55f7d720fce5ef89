"""What one call costs in this process: a callback's body to a record, a slot of a shared file, `pay_once`.

Of `pay_once`, writes to a disk are synced, and the kernel's work for that counts; PostgreSQL's own processes do not.
"""

import json
import os
import tempfile
import time
from contextlib import ExitStack
from functools import partial
from itertools import count
from pathlib import Path
from typing import Final

import pytest

from benchmarks.measure import Scale, cpu, take_turns
from benchmarks.mocked import Accepts, mocked_client
from journal.kit import fill
from models.kit import PAYLOAD
from momopay import CallbackSigner, Client, Journal, parse_callback
from momopay._ratelimit.file_budget import FileSlots
from momopay._ratelimit.slot_log import ALONE
from momopay._transport.sync_backend import SyncBackend
from momopay.types import Lane
from postgresql import running_postgresql
from ratelimit.kit import finish

BODY: Final = json.dumps(PAYLOAD, separators=(",", ":")).encode()
SIGNER: Final = CallbackSigner("a secret of the benchmark's own")
QUERY: Final = SIGNER.url("https://shop.example/momo?shop=7", reference="INV-42").partition("?")[2]
_references = count()


def checked() -> bool:
    """Do what an adapter does before it calls the handler."""
    reference = SIGNER.verify(QUERY)
    return parse_callback(BODY).transaction.external_reference == reference


def callback(scale: Scale) -> dict[str, list[float]]:
    sides = {"record": lambda: parse_callback(BODY), "checked": checked, "json.loads": lambda: json.loads(BODY)}
    calls = scale.of(10_000)
    return take_turns({name: partial(cpu, work, calls) for name, work in sides.items()}, scale)


def slot_of_a_file(scale: Scale) -> dict[str, list[float]]:
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        # A full log, from which a slot goes as often as one comes.
        slots, backend = FileSlots(Path(folder) / "budget", 58, 0.05, is_private=True), SyncBackend()
        stack.callback(slots.close)

        def reserve() -> float:
            delay: float = finish(slots.reserve_now(backend, Lane.PAYMENT, ALONE))
            return delay

        deadline = time.monotonic() + 10.0
        while reserve() == 0 and time.monotonic() < deadline:
            pass
        return take_turns({"file": partial(cpu, reserve, scale.of(2000))}, scale)


def pay_once(scale: Scale) -> dict[str, list[float]]:
    """Leave PostgreSQL out where it is not installed."""
    with ExitStack() as stack:
        client = stack.enter_context(mocked_client(Accepts()))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        urls = {name: f"sqlite:///{folder / name}.db" for name in ("SQLite", "1,000,000 rows")}
        try:
            urls["PostgreSQL"] = stack.enter_context(running_postgresql()).new_database()
        except pytest.skip.Exception:
            if os.environ.get("CI_REQUIRE_ALL"):
                raise
        journals = {name: stack.enter_context(Journal(url)) for name, url in urls.items()}
        fill(journals["1,000,000 rows"], scale.of(1_000_000))
        calls = scale.of(200)
        sides = {name: partial(cpu, partial(_pay, client, each), calls) for name, each in journals.items()}
        for side in sides.values():
            side()
        return take_turns(sides, scale)


def _pay(client: Client, journal: Journal) -> None:
    client.payouts.pay_once(journal=journal, amount=100, phone="254712345678", reference=f"r-{next(_references)}")
