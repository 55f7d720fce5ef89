"""Each safety of collections, turned off on purpose: the campaign must then find what the safety prevents."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from momopay._core.retry import SEARCHED_FIRST, FailureKind
from momopay.journal import JournalState, collection_rules
from momopay.journal.collection_rules import CollectStep, Stage
from momopay.journal.payments import Payments
from momopay.journal.sweeps import Sweeps
from momopay.resources import collect_once, stk
from momopay.resources.collect_once import CollectOnce

Patch = Any


def repeat_on_read_timeout() -> list[Patch]:
    """A prompt without a reply goes out again."""
    rule = replace(SEARCHED_FIRST, retries_on=SEARCHED_FIRST.retries_on | {FailureKind.NO_REPLY})
    return [patch.object(stk, "COLLECT_ONCE", replace(stk.COLLECT_ONCE, retry_policy=rule))]


def open_prompt_overlooked() -> list[Patch]:
    """An open prompt does not block the next one."""

    def next_step(state: JournalState | None, stages: Sequence[Stage], attempts: int, **given: Any) -> CollectStep:
        seen = [Stage.ENDED if stage is Stage.OPEN else stage for stage in stages]
        return collection_rules.next_collect_step(state, seen, attempts, **given)

    return [patch.object(collect_once, "next_collect_step", next_step)]


def send_again_when_absent() -> list[Patch]:
    """What the list does not show counts as not sent."""

    def always(*_arguments: Any) -> bool:
        return True

    def at_once(*_arguments: Any) -> float:
        return 0.0

    return [
        patch.object(CollectOnce, "_is_abandoned", always),
        patch.object(Payments, "seconds_to_release", at_once),
    ]


def end_not_read_again() -> list[Patch]:
    """A sweep takes an end without success for the last word."""

    def nothing(*_arguments: Any) -> list[Any]:
        return []

    return [patch.object(Sweeps, "to_check", nothing)]


CONTROLS: Mapping[str, Callable[[], list[Patch]]] = {
    each.__name__: each
    for each in (repeat_on_read_timeout, open_prompt_overlooked, send_again_when_absent, end_not_read_again)
}
BY_HAND = frozenset({"repeat_on_read_timeout", "send_again_when_absent"})
"""Controls whose like the campaign of payouts has."""


@contextmanager
def broken(name: str) -> Generator[None]:
    """Turn one safety off."""
    patches = CONTROLS[name]()
    for each in patches:
        each.start()
    try:
        yield
    finally:
        for each in reversed(patches):
            each.stop()
