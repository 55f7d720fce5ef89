"""Each safety, turned off on purpose by one small patch: the campaign must then find what the safety prevents."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import module_from_spec
from math import inf
from typing import Any
from unittest.mock import patch
from uuid import uuid4

import httpcore

from campaign.judge import Finding
from campaign.settings import UNWRITTEN
from momopay import OutcomeUnknownError
from momopay._core import call as _call
from momopay._core import response as _response
from momopay._core.retry import AT_MOST_ONCE, FailureKind
from momopay._transport import sockets
from momopay._transport.attempt import Progress
from momopay._transport.sockets import AttemptSocket
from momopay.journal import JournalEntry, JournalState, rules, statements
from momopay.journal import journal as _journal
from momopay.journal.entries import MAY_BE_SENT
from momopay.journal.lease import Lease
from momopay.journal.payments import Payments
from momopay.journal.rules import Cause, Step
from momopay.journal.sqlite import SqliteDatabase
from momopay.models.requests import RequestedPayment
from momopay.resources import known_payout, pay_once, payouts, reconcile, release
from momopay.resources.known_payout import KnownPayout
from momopay.resources.pay_once import PayOnce
from momopay.resources.search import Matches
from momopay.resources.transactions import Transactions

Patch = Any
CAUGHT = frozenset({Finding.DOUBLE, Finding.LOST, Finding.LATE, Finding.WRONG_STATE, Finding.WRONG_WORD})
"""What a control must be caught at. (While payments are under way, others of the findings come and go.)"""


def _repeating(kind: FailureKind) -> Patch:
    rule = replace(AT_MOST_ONCE, retries_on=AT_MOST_ONCE.retries_on | {kind})
    return patch.object(payouts, "PAY_ONCE", replace(payouts.PAY_ONCE, retry_policy=rule))


def _returning(result: Any) -> Any:
    async def give(*_arguments: Any, **_options: Any) -> Any:
        return result

    return give


def repeat_on_read_timeout() -> list[Patch]:
    """A payout without a reply goes out again."""
    return [_repeating(FailureKind.NO_REPLY)]


def repeat_on_5xx() -> list[Patch]:
    """A payout that the server failed on is sent again, as the service advises clients."""
    return [_repeating(FailureKind.SERVER_ERROR)]


def journal_after_send() -> list[Patch]:
    """The row is written when the answer is there."""
    begin, record, accept = Payments.begin, Payments.record_outcome, Payments.accept
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

    def write_accepted(self: Payments, reference: str, report: Any, *, lease: Lease | None = None, **known: Any) -> Any:
        values = None if lease is None else waiting.pop(lease.id, None)
        if lease is not None and values is not None:
            begin(self, lease, reference=reference, **values)
        return accept(self, reference, report, lease=lease, **known)

    def is_sending(_self: Payments, _lease: Lease, _reference: str) -> bool:
        return True

    patched = {"begin": read, "record_outcome": write, "accept": write_accepted, "is_sending": is_sending}
    return [patch.object(Payments, name, instead) for name, instead in patched.items()]


def no_lease() -> list[Patch]:
    """A row that is being sent keeps nobody else from sending."""

    def next_step(state: JournalState | None) -> Step:
        return Step.SEARCH_THEN_SEND if state is JournalState.SENDING else rules.next_step(state)

    begin = {JournalState.SENDING: MAY_BE_SENT | {None, JournalState.SENDING}}
    assert statements.__spec__ is not None
    assert statements.__spec__.loader is not None
    fresh = module_from_spec(statements.__spec__)
    with patch.dict(rules.TRANSITIONS, {Cause.BEGIN: begin}):
        statements.__spec__.loader.exec_module(fresh)
    return [patch.object(pay_once, "next_step", next_step), patch.object(Payments, "_begin", fresh.BEGIN)]


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
            if error.matches or error.near_matches or error.__cause__ is not None:
                raise
        rows: Payments = self._payments
        entry = rows.get(self._reference)
        if entry is not None:
            rows.release(entry, None)
        return await pay(self)

    return [patch.object(PayOnce, "pay", pay_again)]


def forged_callback_settles() -> list[Patch]:
    """A callback is believed without a look at the service's record."""

    async def believe(self: Any, callback: Any) -> Any:
        return callback

    return [patch.object(Transactions, "confirm", type(Transactions.confirm)(believe))]


def row_not_read_again() -> list[Patch]:
    """A payer that was held up does not look whether its row was released meanwhile."""
    return [patch.object(PayOnce, "_check_row", _returning(None))]


def near_matches_ignored() -> list[Patch]:
    """A transaction that has the reference, and differs in something else, counts as absent."""

    def finding(exact: Any, _near: Any) -> Any:
        return rules.finding(exact, [])

    return [patch.object(module, "finding", finding) for module in (known_payout, reconcile, release)]


def release_without_search() -> list[Patch]:
    """`client.payouts.release` does not look into the list. Nor does the call that pays then, or it would notice."""
    return [patch.object(release, "search", _returning([Matches()])), *no_search_before_a_second_send()]


def release_before_the_minute() -> list[Patch]:
    """What a dead or frozen process was paying is released at once."""

    def at_once(*_arguments: Any) -> None:
        pass

    return [patch.object(module, "check_lease_is_over", at_once) for module in (release, _journal)]


def unknown_code_believed() -> list[Patch]:
    """A refusal with an unknown code is believed, whatever its status."""
    return [patch.object(_response, "_REFUSING_STATUSES", frozenset(range(200, 500)))]


def acceptance_not_compared() -> list[Patch]:
    """An answer is taken for the payout's own, whatever it names."""

    def differences(*_arguments: Any) -> list[str]:
        return []

    return [patch.object(RequestedPayment, "differences", differences)]


def no_search_before_a_second_send() -> list[Patch]:
    """A reference that was attempted before is sent without a search."""
    return [patch.object(KnownPayout, "find_before_sending", _returning(None))]


def emptied_file_not_noticed() -> list[Patch]:
    """A journal's file that was cut to nothing is taken for a new journal."""

    def nothing(*_arguments: Any) -> None:
        pass

    init = SqliteDatabase.__init__

    def without_marker(self: SqliteDatabase, url: Any) -> None:
        init(self, url)
        self._marker = self._marker.with_name(uuid4().hex)

    unmarked = patch.object(SqliteDatabase, "__init__", without_marker)
    return [patch.object(SqliteDatabase, "_check_file", nothing), unmarked]


def no_fence() -> list[Patch]:
    """The time is not read again before something is written."""
    read = AttemptSocket.remaining

    def remaining(self: AttemptSocket, error: Any) -> float:
        return 1.0 if error is httpcore.WriteTimeout else read(self, error)

    begin_body: Any = vars(Progress)["_begin_body"]

    async def begin(self: Progress) -> None:
        self.until = inf
        await begin_body(self)

    return [patch.object(Progress, "_begin_body", begin), patch.object(AttemptSocket, "remaining", remaining)]


def late_arrival() -> list[Patch]:
    """A connection without an answer is closed in the usual way, and the kernel goes on to deliver what was written."""

    def nothing(*_arguments: Any) -> None:
        pass

    return [patch.object(sockets, "_ABORT", sockets._CLOSE), patch.object(AttemptSocket, "_set_user_timeout", nothing)]


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
        row_not_read_again,
        near_matches_ignored,
        release_without_search,
        release_before_the_minute,
        unknown_code_believed,
        acceptance_not_compared,
        no_search_before_a_second_send,
        emptied_file_not_noticed,
        no_fence,
        late_arrival,
    )
}
OF_FREEZING: Mapping[str, tuple[tuple[float, float], tuple[str, ...]]] = {
    "row_not_read_again": ((0.4, 0.7), UNWRITTEN),
    "no_fence": ((0.2, 0.4), ("head sent",)),
}
"""Controls that only a payer can be caught at that stops: how long, as the freezer draws it, and where."""
SURELY_CAUGHT = frozenset({"emptied_file_not_noticed"})
"""Controls that any short storm over sockets catches. The others meet what they break with luck, and run there by hand:
the simulation turns off each of their rules in a second, and tests of the journal and of the transport the three that
it does not have."""
OF_SOCKETS = frozenset({"release_before_the_minute", "emptied_file_not_noticed", "no_fence", "late_arrival"})
"""Controls of what the simulation does not have: the machine's time, files and sockets."""


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
