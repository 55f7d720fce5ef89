"""The journal as one call uses it: from the call's event loop or thread, and no longer than its deadline."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

from momopay._core.session import Session
from momopay._redaction import redacted_repr
from momopay.errors import MomoPayError
from momopay.journal.entries import EntryKind, JournalState

if TYPE_CHECKING:  # at run time it needs SQLAlchemy
    from momopay.journal.payments import Payments

logger: logging.Logger = logging.getLogger("momopay")

T = TypeVar("T")

# Seconds for a write after the deadline: the answer that came just before it should still be recorded.
_LEAST_SECONDS: Final = 0.5


class JournalAccess:
    """The journal for one call about one reference."""

    def __init__(self, session: Session[Any], payments: Payments, reference: str, deadline: float) -> None:
        self._session = session
        self._payments = payments
        self._reference = reference
        self.deadline = deadline
        """On the backend's monotonic clock."""

    async def run(self, work: Callable[[], T]) -> T:
        """Do something with the database, which ends by the deadline with JournalError at the latest."""
        result: T = await self._session.backend.in_thread(self._bounded(work, 0.0))
        return result

    async def run_or_log(self, work: Callable[[], T]) -> T | None:
        """Write and return the result; log a failure and return None."""
        # A failure is never raised: the caller has an answer of the service to return or to raise, which would be lost.
        # A row that could not be written stays in SENDING, and reads as UNKNOWN when its lease ends.
        try:
            result: T = await self._session.backend.in_thread(self._bounded(work, _LEAST_SECONDS))
        except Exception as error:  # noqa: BLE001  an error in SQLAlchemy must not lose the answer either
            self._log(error)
            return None
        return result

    async def finish(self, work: Callable[[], object], cause: BaseException) -> bool:
        """Write what a call leaves behind that ends with an exception; log a failure, and return whether it is done."""
        done = list[object]()
        await self._finish(lambda: done.append(work()), cause)
        return any(done)

    async def _finish(self, work: Callable[[], object], cause: BaseException) -> None:
        if isinstance(cause, Exception):
            await self.run_or_log(work)
            return
        # A cancelled task does not wait for a locked database. The write goes on in its thread.
        try:
            await self._session.backend.finish_in_thread(self._bounded(work, _LEAST_SECONDS))
        except Exception as error:  # noqa: BLE001  as above
            self._log(error)

    def report(self, old: JournalState | None, new: JournalState, record: object = None) -> None:
        """Report that the entry's state changed, or the status of its transaction; `record` is the service's."""
        report_change(self._session, self._payments.kind, self._reference, old, new, record)

    def _bounded(self, work: Callable[[], T], least: float) -> Callable[[], T]:
        def bounded() -> T:
            # Computed here, because the work may have waited for a thread.
            seconds = max(self.deadline - self._session.backend.now(), least)
            with self._payments.bounded(seconds):
                return work()

        return bounded

    def _log(self, error: Exception) -> None:
        # A JournalError, or the journal was closed meanwhile. Of anything else a trace or a text may show values.
        problem = str(error) if isinstance(error, MomoPayError) else f"not recorded: {type(error).__name__}"
        logger.error("reference %s: %s", redacted_repr(self._reference), problem)


def report_change(
    session: Session[Any],
    kind: EntryKind,
    reference: str,
    old: JournalState | None,
    new: JournalState,
    record: object = None,
) -> None:
    """Report to the client's observer, if there is one, that an entry changed; `record` is the service's."""
    if session.operation is not None:
        session.operation.journal_changed(kind, reference, old, new, record)
