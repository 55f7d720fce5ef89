"""Report what happens to the `on_event` of a client, or of a callback view.

Nothing here runs, and this module is not loaded, without an observer. A client with one gives each call a copy of the
session that carries its `OperationEvents`. Whatever works for a call gets its session anyway, so an event finds its
call in every thread and task, without a context variable that threads and generators lose.

Invariants:
- Whatever an observer raises of `Exception` is logged, and the call goes on as if it had not been asked.
- What it raises besides, such as KeyboardInterrupt, passes through. So nothing is delivered while the request of a
  durable call may be under way, or its outcome is still to be recorded: see `OperationEvents.held`.

Times are in seconds, on the monotonic clock of the backend.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import UTC, datetime

from momopay import events
from momopay._core.handlers import is_async, raise_if_awaitable, trace_of
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
    """Passes events to `on_event`. Safe to use from any thread, as far as `on_event` is.

    Raises:
        ConfigurationError: `on_event` cannot be called, or is async.
    """

    def __init__(self, on_event: object) -> None:
        if not callable(on_event) or is_async(on_event):
            raise ConfigurationError("on_event must be a function that takes an event, and not an async def")
        self._on_event: Callable[[events.Event], object] = on_event
        self._failed = set[type[events.Event]]()

    def deliver(self, event: events.Event) -> None:
        """Call the observer; log what it raises, with a traceback once for each kind of event."""
        try:
            raise_if_awaitable(self._on_event(event))
        except Exception as error:  # noqa: BLE001  it must not change how a payment goes on
            kind = type(event)
            trace = "" if kind in self._failed else f"\n{trace_of(error)}"
            self._failed.add(kind)
            logger.error("on_event failed on %s: %s%s", kind.__name__, type(error).__name__, trace)  # noqa: TRY400  see `trace_of`

    def start(self, name: str, clock: Callable[[], float], reference: object = None) -> OperationEvents:
        return OperationEvents(self, name, clock, reference)


class OperationEvents:
    """The events of one call of an operation. It belongs to one task or thread."""

    def __init__(self, observer: Observer, name: str, clock: Callable[[], float], reference: object = None) -> None:
        self.name = name
        self.call_id: int = next(_call_ids)
        self._observer = observer
        self._clock = clock
        self._started = clock()
        self._reference = redact(reference) if isinstance(reference, str) else None
        self.may_have_executed: bool = False  # what a cancellation or an interrupt does not say itself
        self._attempts = 0
        self._status: int | None = None
        self._request_id: str | None = None
        self._held: list[events.Event] | None = None

    @contextmanager
    def held(self) -> Generator[None]:
        """Deliver the events of the context when it ends, in their order."""
        self._held = []
        try:
            yield
        finally:
            try:
                self.flush()
            finally:  # an interrupt in it must not hold back the end of the call
                self._held = None

    def flush(self) -> None:
        while self._held:
            self._observer.deliver(self._held.pop(0))

    def call_started(self) -> None:
        self._emit(events.CallStarted, reference=self._reference)

    def call_ended(self, error: BaseException | None, result: object) -> None:
        """Report how the operation ended. The error of an outcome that `pay_all` returns counts as its error."""
        # A record keeps unknown fields of the service, which may have any name.
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
        """Report the pause before a request is sent again. Nothing is under way, so what is held is delivered."""
        self._emit(events.RetryScheduled, status=self._status, **fields)
        self.flush()

    def budget_waited(self, lane: str, seconds: float, error: BaseException | None) -> None:
        self._emit(events.BudgetWaited, lane=lane, seconds=seconds, error=error)

    def wait_ended(
        self, transaction_id: str, seconds: float, polls: int, seen: object, error: BaseException | None
    ) -> None:
        """Report that the wait for a transaction ended; `seen` is what was last read of it."""
        # An id that was not read is not the service's, but whatever the caller gave.
        known = _transaction(seen) | {"transaction_id": redact(transaction_id) if seen is None else transaction_id}
        self._emit(events.WaitEnded, seconds=seconds, polls=polls, error=error, **known)

    def journal_changed(
        self, kind: str, reference: str, old_state: str | None, new_state: str, record: object = None
    ) -> None:
        """Report that an entry changed; `record` is the service's, if that is why."""
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
            self.callback_received(outcome_of(error), callback, error)
            raise
        self.callback_received("accepted", callback, None)

    def callback_received(
        self, outcome: events.CallbackOutcome, callback: object, error: BaseException | None, status: int | None = None
    ) -> None:
        """Report a callback; `callback` is None if it could not be read."""
        record = getattr(callback, "transaction", None)
        known, reference = _transaction(record), getattr(record, "account_reference", None)
        if outcome not in {"accepted", "duplicate"} and record is not None:
            # Anybody may have sent it, with any text.
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
            self._observer.deliver(event)
        else:
            self._held.append(event)


def outcome_of(error: BaseException) -> events.CallbackOutcome:
    """Return what the error of a callback says about it."""
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
    """Return what events have of the transaction that a record is; nothing if it is none."""
    identity = getattr(record, "transaction_id", None)
    if not isinstance(identity, str):
        return {}
    kind, status = getattr(record, "type", None), getattr(record, "status", None)
    return {"transaction_id": identity, "transaction_type": kind, "transaction_status": status}
