"""Deliver events to the `on_event` of a client or of a callback view.

This module is loaded only for an observer. A client with one gives each call a copy of the session that carries its
`CallEvents`. All code that works for a call has its session, so an event finds its call in every thread and task
without a context variable, which threads and generators would lose.

Invariants:
- An `Exception` from an observer is logged and does not affect the call.
- Other exceptions from it, such as KeyboardInterrupt, pass through. So nothing is delivered while the request of a
  durable call may be in flight or its outcome is not yet recorded; see `CallEvents.held`.

Times are in seconds, on the monotonic clock of the backend.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import UTC, datetime

from momopay import events
from momopay._core.config import is_async, raise_if_not_run, trace_of
from momopay._redaction import clear_frames, redact
from momopay.errors import (
    CallbackError,
    CallbackMismatchError,
    ConfigurationError,
    ForgedCallbackError,
    InvalidCallbackError,
    TransactionNotFoundError,
)
from momopay.models.records import Record
from momopay.urls import host_and_port

logger: logging.Logger = logging.getLogger("momopay")

_call_ids = itertools.count(1)


class Observer:
    """Passes events to `on_event`. As thread-safe as `on_event` is. It can be an `on_event` itself."""

    def __init__(self, on_event: object) -> None:
        if not callable(on_event) or is_async(on_event):
            raise ConfigurationError("on_event must be a function that takes an event, and not an async def")
        self._on_event: Callable[[events.Event], object] = on_event
        self._failed = set[type[events.Event]]()

    def __call__(self, event: events.Event) -> None:
        """Call the observer. Log what it raises, with a traceback once for each kind of event."""
        try:
            raise_if_not_run(self._on_event(event))
        except Exception as error:  # noqa: BLE001  it must not affect a payment
            kind = type(event)
            trace = "" if kind in self._failed else f"\n{trace_of(error)}"
            self._failed.add(kind)
            logger.error("on_event failed on %s: %s%s", kind.__name__, type(error).__name__, trace)  # noqa: TRY400  see `trace_of`

    def start(self, name: str, clock: Callable[[], float], reference: object = None) -> CallEvents:
        return CallEvents(self, name, clock, reference)


def observer_of(on_event: object) -> Observer:
    """Return the observer that an `on_event` is, or a new one for it."""
    return on_event if isinstance(on_event, Observer) else Observer(on_event)


class CallEvents:
    """Reports the events of one call of an operation. It belongs to one task or thread."""

    def __init__(self, observer: Observer, name: str, clock: Callable[[], float], reference: object = None) -> None:
        self.name = name
        self.call_id: int = next(_call_ids)
        self._observer = observer
        self._clock = clock
        self._started = clock()
        self._reference = redact(reference) if isinstance(reference, str) else None
        self.may_have_executed: bool = False  # for a cancellation or an interrupt, which has no such attribute
        self._attempts = 0
        self._status: int | None = None
        self._request_id: str | None = None
        self._held: list[events.Event] | None = None

    @contextmanager
    def held(self) -> Generator[None]:
        """Hold back the events within the context, and deliver them in order when it ends."""
        self._held = []
        try:
            yield
        finally:
            try:
                self.flush()
            finally:  # an interrupt in `flush` must not hold back `CallEnded`
                self._held = None

    def flush(self) -> None:
        while self._held:
            self._observer(self._held.pop(0))

    def call_started(self) -> None:
        self._emit(events.CallStarted, reference=self._reference)

    def call_ended(self, error: BaseException | None, result: object) -> None:
        """Report how the operation ended. The error of a `PayoutOutcome` counts as the operation's."""
        # Not for a record: the service may add a field named `error` or `payment`.
        if not isinstance(result, Record):
            error = error or getattr(result, "error", None)
            result = getattr(result, "payment", result)
        self._emit(
            events.CallEnded,
            seconds=self._clock() - self._started,
            error=error,
            may_have_executed=getattr(error, "may_have_executed", error is not None and self.may_have_executed),
            attempts=self._attempts,
            status=self._status,
            request_id=self._request_id,
            reference=self._reference,
            **_transaction(result),
        )

    def attempt_ended(self, base_url: str, *, status: int | None, request_id: str | None, **fields: object) -> None:
        self._attempts += 1
        self._status, self._request_id = status, request_id
        host, port = host_and_port(base_url)
        self._emit(events.AttemptEnded, host=host, port=port, status=status, request_id=request_id, **fields)

    def retry_scheduled(self, **fields: object) -> None:
        """Report the pause before a retry. Nothing is in flight, so held events are delivered."""
        self._emit(events.RetryScheduled, status=self._status, **fields)
        self.flush()

    def budget_waited(self, lane: str, seconds: float, error: BaseException | None) -> None:
        self._emit(events.BudgetWaited, lane=lane, seconds=seconds, error=error)

    def wait_ended(
        self, transaction_id: str, seconds: float, polls: int, seen: object, error: BaseException | None
    ) -> None:
        """Report the end of the wait for a transaction; `seen` is the record that was last read."""
        # Before the first read, the id is the caller's text, which may contain a phone.
        known = _transaction(seen) | {"transaction_id": redact(transaction_id) if seen is None else transaction_id}
        self._emit(events.WaitEnded, seconds=seconds, polls=polls, error=error, **known)

    def journal_changed(
        self, kind: str, reference: str, old_state: str | None, new_state: str, record: object = None
    ) -> None:
        """Report that an entry changed; `record` is the service's record that changed it, if any."""
        known = _transaction(record) | {"kind": kind, "reference": redact(reference)}
        known.pop("transaction_type", None)  # the kind says it
        self._emit(events.JournalChanged, old_state=old_state, new_state=new_state, **known)

    def sweep_ended(self, **counts: int) -> None:
        self._emit(events.SweepEnded, **counts)

    @contextmanager
    def confirming(self, callback: object) -> Generator[None]:
        try:
            yield
        except Exception as error:
            clear_frames(error)
            self.callback_received(callback, error)
            raise
        self.callback_received(callback)

    def callback_received(
        self,
        callback: object,
        error: BaseException | None = None,
        status: int | None = None,
        outcome: events.CallbackOutcome | None = None,
    ) -> None:
        """Report a callback, None if it could not be parsed. The outcome is by default that of the error."""
        outcome = outcome or ("accepted" if error is None else outcome_of(error))
        record = getattr(callback, "transaction", None)
        known, reference = _transaction(record), getattr(record, "account_reference", None)
        if outcome not in {"accepted", "duplicate"} and record is not None:
            # Anybody may have sent it, with any text in it.
            known = {"transaction_id": redact(record.transaction_id)}
        self._emit(
            events.CallbackReceived,
            outcome=outcome,
            seconds=self._clock() - self._started,
            status=status,
            error=error,
            reference=None if reference is None else redact(reference),
            **known,
        )

    def _emit(self, event_class: Callable[..., events.Event], /, **fields: object) -> None:
        error = fields.get("error")
        if error is not None:
            fields["error"] = type(error)  # the error itself would keep frames alive, and with them the payment
        event = event_class(operation=self.name, call_id=self.call_id, at=datetime.now(UTC).timestamp(), **fields)
        if self._held is None:
            self._observer(event)
        else:
            self._held.append(event)


def outcome_of(error: BaseException) -> events.CallbackOutcome:
    """Return the outcome to report for the error of a callback."""
    match error:
        case CallbackMismatchError() | TransactionNotFoundError():
            return "mismatch"
        case ForgedCallbackError():
            return "forged"
        case InvalidCallbackError():
            return "invalid"
        case CallbackError():
            return "busy"
        case _:
            return "failed"


def _transaction(record: object) -> dict[str, object]:
    """Return the transaction fields of an event; empty if the record is no transaction."""
    identity = getattr(record, "transaction_id", None)
    if not isinstance(identity, str):
        return {}
    kind, status = getattr(record, "type", None), getattr(record, "status", None)
    return {"transaction_id": identity, "transaction_type": kind, "transaction_status": status}
