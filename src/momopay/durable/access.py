"""The journal as one call uses it: from the call's event loop or thread, and no longer than its deadline."""

from __future__ import annotations

import logging
from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING, Any, Final, TypeVar

import momopay
from momopay._core.call import Endpoint, call
from momopay._core.operation import run_sync
from momopay._core.retry import SAFE
from momopay._core.session import Session
from momopay._ratelimit.budget import Lane
from momopay._redaction import redacted_repr
from momopay.errors import MomoPayError
from momopay.journal.entries import EntryKind, JournalState
from momopay.journal.evidence import KeyIdentity
from momopay.journal.journal import Journal, parts_of
from momopay.models.account import WalletBalance
from momopay.models.records import Envelope

if TYPE_CHECKING:  # at run time it needs SQLAlchemy
    from momopay.journal.store import Store

logger: logging.Logger = logging.getLogger("momopay")

T = TypeVar("T")

BALANCE: Final = Endpoint("GET", SAFE, Lane.READ, Envelope[WalletBalance])
# Seconds for a write after the deadline: the answer that came just before it should still be recorded.
_LEAST_SECONDS: Final = 0.5


async def check_account(session: Session[Any], journal: Journal, *, restored: bool = False) -> None:
    """Raise ConfigurationError if the journal must not be used with the client's key; nothing was sent then.

    With `restored`, one that went back in time may be used: for what compares it with the service.
    """
    store = parts_of(journal).store
    identity = KeyIdentity.of(session.account.api_key, session.account.base_url)
    if not await session.backend.in_thread(lambda: store.check(identity, restored=restored)):
        await learn_tenant(session, store, identity, restored=restored)


def check_client(client: momopay.Client, journal: Journal) -> None:
    """Raise ConfigurationError if the journal is not that of the client's account, as every durable call does.

    For a check without a payment. Whether the journal went back in time, ``journal.check`` says.
    """
    session = client._session  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    run_sync(check_account(session, journal, restored=True))


async def learn_tenant(
    session: Session[Any], store: Store, identity: KeyIdentity, until: float = inf, *, restored: bool = False
) -> None:
    """Ask the service for the tenant of a key that the journal does not know; raise ConfigurationError for another's.

    It costs a request the first time that a key is used with a journal.
    """
    # In the lane of payments, because a payment waits for it.
    balance = await call(session, BALANCE, "/wallets/service/balance", until=until, lane=Lane.PAYMENT)

    def learn() -> None:
        store.accounts.learn(identity, balance.tenant_id)
        store.check(identity, restored=restored)

    await session.backend.in_thread(learn)


class JournalAccess:
    """The journal for one call about one payment."""

    def __init__(self, session: Session[Any], store: Store, kind: EntryKind, reference: str, deadline: float) -> None:
        self._session = session
        self._store = store
        self._kind = kind
        self._reference = reference
        self.deadline = deadline
        """On the backend's monotonic clock."""

    async def run(self, work: Callable[[], T]) -> T:
        """Do something with the database, which ends by the deadline with JournalError at the latest."""
        result: T = await self._session.backend.in_thread(lambda: self._bounded(work, 0.0))
        return result

    async def run_or_log(self, work: Callable[[], T]) -> T | None:
        """Write and return the result; log a failure and return None."""
        # A failure is never raised: the caller has an answer of the service to return or to raise, which would be lost.
        # A row that could not be written stays in SENDING, and reads as UNKNOWN when its lease ends.
        try:
            result: T = await self._session.backend.in_thread(lambda: self._bounded(work, _LEAST_SECONDS))
        except Exception as error:  # noqa: BLE001  an error in SQLAlchemy must not lose the answer either
            self._log(error)
            return None
        return result

    async def finish(self, work: Callable[[], object], cause: BaseException) -> bool:
        """Write what a call leaves behind that ends with an exception; log a failure, and return whether it is done."""
        done = list[object]()
        if isinstance(cause, Exception):
            await self.run_or_log(lambda: done.append(work()))
            return any(done)
        # A cancelled task does not wait for a locked database. The write goes on in its thread.
        try:
            await self._session.backend.finish_in_thread(
                lambda: self._bounded(lambda: done.append(work()), _LEAST_SECONDS)
            )
        except Exception as error:  # noqa: BLE001  as above
            self._log(error)
        return any(done)

    def report(self, old: JournalState | None, new: JournalState, record: object = None) -> None:
        """Report that the entry's state changed, or the status of its transaction; `record` is the service's."""
        report_change(self._session, self._kind, self._reference, old, new, record)

    def _bounded(self, work: Callable[[], T], least: float) -> T:
        # Computed here, because the work may have waited for a thread.
        with self._store.bounded(max(self.deadline - self._session.backend.now(), least)):
            return work()

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
