"""Access to the journal for one durable call: only to its own account's, off the event loop, and until a deadline."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

from momopay import errors
from momopay._core.operation import run_sync
from momopay._core.reads import read_tenant
from momopay._core.session import Session
from momopay._ratelimit.budget import Lane
from momopay._redaction import redacted_repr
from momopay.durable.past import check_past
from momopay.journal.entries import JournalEntry, JournalState
from momopay.journal.evidence import Draft
from momopay.journal.journal import Journal, internals
from momopay.journal.rules import may_have_executed
from momopay.models.enums import EntryKind

if TYPE_CHECKING:  # at run time they need SQLAlchemy
    from momopay.client import Client
    from momopay.journal.store import Store

logger: logging.Logger = logging.getLogger("momopay")

P = ParamSpec("P")
T = TypeVar("T")

# Errors about one call alone: their `may_have_executed` does not depend on earlier attempts.
_ABOUT_THIS_CALL: Final = (
    errors.ConfigurationError,
    errors.DuplicateCollectionError,
    errors.DuplicatePayoutError,
    errors.RequestValidationError,
)
# Minimum seconds for a write, so that a response that came just before the deadline is still recorded.
_LEAST_SECONDS: Final = 0.5


async def check_account(
    session: Session[Any], journal: Journal, reference: str = "", *, restored: bool = False
) -> JournalAccess:
    """Return a call's access to the journal. Raise ConfigurationError if the journal must not be used with its key.

    `restored` allows a journal that went back in time, for calls that compare it with the service.
    """
    access = JournalAccess(session, journal, reference)
    is_tenant_known = await access.run(access.store.check, session.account.identity, restored=restored)
    if not restored:
        await check_past(access)
    if not is_tenant_known:
        await learn_tenant(access)
    return access


def check_client(client: Client, journal: Journal) -> None:
    """Raise ConfigurationError if the journal is another account's. ``journal.check`` shows whether it went back."""
    session = client._session  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    run_sync(check_account(session, journal, restored=True))


async def learn_tenant(access: JournalAccess) -> None:
    """Read the tenant of a key that is new to the journal. Raise ConfigurationError if it is another account's."""
    identity = access.session.account.identity
    tenant_id: str | None = None
    try:
        # In the lane of payments, because a payment waits for it.
        tenant_id = await read_tenant(access.session, lane=Lane.PAYMENT, until=access.deadline)
    except errors.APIError as error:
        # This key may not read the wallet, or there is none. The response to its first payment shows the tenant.
        if error.status_code not in {HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND}:
            raise
    await access.run(access.store.accounts.learn, identity, tenant_id, by_wallet=True)
    await access.run(access.store.check, identity, restored=True)  # the callers have checked whether it went back


def emit_change(
    session: Session[Any],
    payment: JournalEntry | Draft,
    old: JournalState | None,
    new: JournalState,
    record: object = None,
) -> None:
    """Report to the client's observer, if any, that an entry changed its state, or a transaction its status."""
    if session.events is not None:
        session.events.journal_changed(payment.kind, payment.reference, old, new, record)


class JournalAccess:
    """The journal as one call uses it: off the event loop, until `deadline` on the backend's monotonic clock."""

    def __init__(self, session: Session[Any], journal: Journal, reference: str, deadline: float | None = None) -> None:
        self.session = session
        self.store: Store = internals(journal).store
        self.deadline: float = session.backend.now() + session.limits.deadline if deadline is None else deadline
        self._reference = reference

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Do work with the database and return its result. Raise JournalError if the deadline passes first."""
        result: T = await self.session.backend.in_thread(self._bounded, 0.0, partial(work, *args, **kwargs))
        return result

    async def run_or_log(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | None:
        """Write and return the result. Log a failure and return None."""
        # Raising would lose the service's response, which the caller is about to return or raise. A row that could not
        # be written stays in SENDING, and reads as UNKNOWN when its lease ends.
        write = partial(self._bounded, _LEAST_SECONDS, partial(work, *args, **kwargs))
        try:
            result: T = await self.session.backend.in_thread(write)
        except errors.MomoPayError as error:
            self._log(error)
            return None
        return result

    async def finish(self, cause: BaseException, work: Callable[[], object]) -> bool:
        """Write the outcome of a call that ends with an exception. Log a failure. Return whether it was written."""
        if isinstance(cause, Exception):
            return bool(await self.run_or_log(work))
        if isinstance(cause, GeneratorExit):  # a discarded coroutine cannot await; its row reads as UNKNOWN
            return False
        # A cancelled task does not wait for a locked database. The write continues in its thread.
        done = list[object]()
        write = partial(self._bounded, _LEAST_SECONDS, work)
        try:
            await self.session.backend.finish_in_thread(lambda: done.append(write()))
        except Exception as error:  # noqa: BLE001  the call ends with `cause`
            self._log(error)
        return any(done)

    async def note_earlier_attempts(self, error: errors.MomoPayError, kind: EntryKind, reference: str) -> None:
        """Set `may_have_executed` of an error, unless the journal shows that no earlier attempt may have executed."""

        def is_free() -> bool:
            entry = self.store.get(kind, reference)
            return entry is None or not may_have_executed(entry)

        if not error.may_have_executed and not isinstance(error, _ABOUT_THIS_CALL):
            error.may_have_executed = not await self.run_or_log(is_free)

    def _bounded(self, least: float, work: Callable[[], T]) -> T:
        # Computed here, because the work may have waited for a thread.
        with self.store.bounded(max(self.deadline - self.session.backend.now(), least)):
            return work()

    def _log(self, error: Exception) -> None:
        # A JournalError, or the journal was closed meanwhile. The text or traceback of any other may show values.
        problem = str(error) if isinstance(error, errors.MomoPayError) else f"not recorded: {type(error).__name__}"
        logger.error("reference %s: %s", redacted_repr(self._reference), problem)
