"""Each safety, turned off on purpose by one small patch: the campaign must then find what the safety prevents."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from momopay import OutcomeUnknownError
from momopay._core import call as _call
from momopay._core.retry import AT_MOST_ONCE, FailureKind
from momopay.journal import JournalEntry, JournalState, payments
from momopay.journal.entries import MAY_BE_SENT
from momopay.journal.lease import Lease
from momopay.journal.payments import Payments
from momopay.resources import pay_once, payouts
from momopay.resources.pay_once import PayOnce
from momopay.resources.transactions import Transactions

Patch = Any


def _repeating(kind: FailureKind) -> Patch:
    rule = replace(AT_MOST_ONCE, retries_on=AT_MOST_ONCE.retries_on | {kind})
    return patch.object(payouts, "INITIATE", replace(payouts.INITIATE, retry_policy=rule))


def repeat_on_read_timeout() -> list[Patch]:
    """A payout without a reply goes out again."""
    return [_repeating(FailureKind.NO_REPLY)]


def repeat_on_5xx() -> list[Patch]:
    """A payout that the server failed on is sent again, as the service advises clients."""
    return [_repeating(FailureKind.SERVER_ERROR)]


def journal_after_send() -> list[Patch]:
    """The row is written when the answer is there."""
    begin, record = Payments.begin, Payments.record_outcome
    waiting: dict[str, dict[str, Any]] = {}

    def read(self: Payments, lease: Lease, *, reference: str, **values: Any) -> JournalEntry | None:
        entry = self.get(reference)
        if entry is not None and entry.state not in MAY_BE_SENT:
            return entry
        waiting[lease.id] = values
        return None

    def write(self: Payments, lease: Lease, reference: str, state: JournalState, **known: Any) -> None:
        values = waiting.pop(lease.id, None)
        if values is not None and begin(self, lease, reference=reference, **values) is None:
            record(self, lease, reference, state, **known)

    return [patch.object(Payments, "begin", read), patch.object(Payments, "record_outcome", write)]


def no_lease() -> list[Patch]:
    """A row that is being sent keeps nobody else from sending."""
    free = MAY_BE_SENT | {JournalState.SENDING}
    return [patch.object(module, "MAY_BE_SENT", free) for module in (payments, pay_once)]


def redirects_followed() -> list[Patch]:
    """A payout that was answered with a redirect goes where it leads."""
    send: Any = vars(_call.Call)["_send"]

    async def follow(self: Any, left: float) -> Any:
        answer = await send(self, left)
        return await send(self, left) if 300 <= answer.status < 400 else answer

    return [patch.object(_call.Call, "_send", follow)]


def send_again_when_absent() -> list[Patch]:
    """What the list does not show counts as not sent."""
    pay: Any = vars(PayOnce)["pay"]

    async def pay_again(self: Any) -> Any:
        try:
            return await pay(self)
        except OutcomeUnknownError as error:
            if error.matches or error.__cause__ is not None:
                raise
        self._journal.release(self._request.reference)
        return await pay(self)

    return [patch.object(PayOnce, "pay", pay_again)]


def forged_callback_settles() -> list[Patch]:
    """A callback is believed without a look at the service's record."""

    async def believe(self: Any, callback: Any) -> Any:
        return callback

    return [patch.object(Transactions, "confirm", type(Transactions.confirm)(believe))]


CONTROLS: Mapping[str, Callable[[], list[Patch]]] = {
    each.__name__: each
    for each in (
        repeat_on_read_timeout,
        repeat_on_5xx,
        journal_after_send,
        no_lease,
        redirects_followed,
        send_again_when_absent,
        forged_callback_settles,
    )
}


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
