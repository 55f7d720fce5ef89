"""What `on_event` costs: CPU a call with an observer that does nothing, against none."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from typing import Final

from benchmarks.measure import Row, Scale, cpu, take_turns
from benchmarks.mocked import PHONE, Accepts, mocked_client
from momopay import Client
from momopay.events import Event

CALLS: Final = 1_000


def measure(scale: Scale) -> list[Row]:
    """Time a payout with both clients."""
    calls = scale.of(CALLS)
    with ExitStack() as clients:
        with_it = clients.enter_context(mocked_client(Accepts(), on_event=_observe))
        without = clients.enter_context(mocked_client(Accepts()))
        sides = {"with": partial(cpu, partial(_initiate, with_it), calls)}
        sides["without"] = partial(cpu, partial(_initiate, without), calls)
        taken = take_turns(sides, scale)
    return [Row("initiate, an on_event", "us CPU a call", taken["with"], "none", taken["without"])]


def _observe(_event: Event) -> None:
    """Do nothing."""


def _initiate(client: Client) -> None:
    client.payouts.initiate(amount=100, phone=PHONE, reference="r")
