"""Whether an account made payments that a new journal does not know.

A journal may be new because the one before it was lost: a container without a volume, a dropped table, another path.
What that one knew would be paid again. So before the first payment of a namespace, the newest transactions of the
account are read once.
"""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

from momopay import errors
from momopay._core.config import LOOPBACK
from momopay._core.operation import run_sync
from momopay._core.reads import EVERYTHING, PageWalk, read_page
from momopay._core.response import service_time
from momopay._core.session import Session
from momopay._ratelimit.budget import Lane
from momopay._redaction import redacted_repr
from momopay.journal.journal import Journal, internals
from momopay.journal.rules import PAST
from momopay.models.enums import TransactionStatus, TransactionType
from momopay.models.records import is_missing
from momopay.models.transactions import TransactionSummary, UnreadTransaction

if TYPE_CHECKING:
    from momopay.client import Client
    from momopay.durable.access import JournalAccess
    from momopay.journal.store import Store

logger: logging.Logger = logging.getLogger("momopay")

_MOST_PAGES: Final = 3
_LONGEST_FOR_TEST_KEYS: Final = 10.0  # seconds
# Errors that say by themselves what to do, and that nothing was sent.
_PASS: Final = (
    errors.APIConnectionError,
    errors.BudgetExhaustedError,
    errors.InvalidApiKeyError,
    errors.ThrottledError,
)
_ACCEPT: Final = (
    "run once: momopay journal accept-restored --journal URL --by NAME, or call journal.accept_restored(by=...)"
)
_LOST: Final = (
    "A journal may have been lost (a container without a volume, a dropped table, another path), and what it knew would"
    " be paid again; nothing was sent. Use that journal; if there was none, because you are new to momopay, " + _ACCEPT
)


@dataclass(frozen=True)
class _Shown:
    """An item of the list, as far as it can be read."""

    item: TransactionSummary | UnreadTransaction
    type: TransactionType | None
    status: TransactionStatus | None
    created_at: datetime | None

    @classmethod
    def of(cls, item: TransactionSummary | UnreadTransaction) -> _Shown:
        if isinstance(item, TransactionSummary):
            return cls(item, item.type, item.status, None if is_missing(item.created_at) else item.created_at)
        raw = _fields_of(item.raw)
        kind, status, created_at = raw.get("type"), raw.get("status"), None
        with suppress(TypeError, ValueError):
            created_at = datetime.fromisoformat(cast("str", raw.get("createdAt", raw.get("created_at"))))
        return cls(
            item,
            TransactionType(kind) if isinstance(kind, str) else None,
            TransactionStatus(status) if isinstance(status, str) else None,
            None if created_at is None or created_at.tzinfo is None else created_at,
        )

    def may_be_payment_since(self, since: datetime) -> bool:
        """Return whether money may have moved then or later, other than into a wallet of the account."""
        if self.type == TransactionType.WALLET_TOPUP:
            return False
        is_failure = self.status is not None and self.status.ended_without_success
        return not is_failure and (self.created_at is None or self.created_at >= since)

    def __str__(self) -> str:
        reference = self.item.reference if isinstance(self.item, UnreadTransaction) else self.item.account_reference
        when = "at an unknown time"
        if self.created_at is not None:
            when = f"of {self.created_at.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
        kind, status = self.type or "of an unknown type", self.status or "with an unknown status"
        return f"{kind} {redacted_repr(reference)}, {status}, {when}"


def _fields_of(raw: object) -> dict[str, object]:
    return cast("dict[str, object]", raw) if isinstance(raw, dict) else {}


async def check_past(access: JournalAccess) -> None:
    """Record that the account had no payments before the journal, unless that is known, as far as the list shows.

    If it had, raise ConfigurationError with a live key, and log a WARNING with a test key.
    """
    if access.store.accounts.has_known_past:
        return
    is_live = access.session.account.identity.mode == "live"
    if is_live or not os.environ.get("MOMOPAY_TEST_RUN"):  # in a test run, the transport may be a mock
        problem = await past_of(access.session, access)
        if problem and is_live:
            raise errors.ConfigurationError(problem)
        if problem:
            logger.warning("%s. A live key would be refused", problem)
    await access.run(access.store.accounts.trust)


def problem_with(client: Client, journal: Journal | None) -> str:
    """Return why the first payment would be refused with a live key, "" if nothing shows that; for `momopay doctor`.

    `journal` is None if there is none yet. Raise as `past_of`.
    """
    session = client._session  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    return run_sync(_problem(session, None if journal is None else internals(journal).store))


async def _problem(session: Session[Any], store: Store | None) -> str:
    if store is not None and await session.backend.in_thread(store.accounts.knows_past):
        return ""
    return await past_of(session)


async def past_of(session: Session[Any], access: JournalAccess | None = None) -> str:
    """Return why a new journal must not be used with the account, "" if nothing shows that.

    `access` is to the new journal, None if there is none yet. Raise ConfigurationError with a live key if the list
    cannot be read.
    """
    if session.account.identity.host == LOOPBACK:  # a sandbox, which forgets as easily as it is made
        return ""
    now = session.backend.now()
    until = now + session.limits.deadline if access is None else access.deadline
    if session.account.identity.mode == "live":
        try:
            return await _past_in_list(session, access, until)
        except _PASS:
            raise
        except errors.MomoPayError as error:
            raise errors.ConfigurationError(
                "this journal is new, and whether its account made payments before it is unknown, because the list"
                f" cannot be read: {error}. Nothing was sent. Try again; if it stays so, find out whether a journal was"
                f" lost, then {_ACCEPT}"
            ) from error
    once = session.without_max_wait()
    once.limits = replace(once.limits, max_attempts=1)
    with suppress(Exception):  # a payment of a test key does not depend on it
        return await _past_in_list(once, access, min(until, now + _LONGEST_FOR_TEST_KEYS))
    return ""


async def _past_in_list(session: Session[Any], access: JournalAccess | None, until: float) -> str:
    walk = PageWalk(partial(read_page, session, EVERYTHING, lane=Lane.PAYMENT, until=until), _MOST_PAGES)
    while (page := await walk.next()) is not None:
        since = service_time(page.response.headers) - PAST
        items: list[TransactionSummary | UnreadTransaction] = [*page.items, *page.unread]
        found = [each for each in map(_Shown.of, items) if each.may_be_payment_since(since)]
        if found and access is not None:
            known = await access.run(access.store.known_ids, [each.item.transaction_id for each in found])
            found = [each for each in found if each.item.transaction_id not in known]
        if found:
            latest = max(found, key=lambda each: each.created_at or since)
            return (
                f"this journal is new, and its account is not: the newest transactions of the list show {len(found)}"
                f" payments of the last {PAST.days} days that this journal did not make, the latest {latest}. {_LOST}"
            )
    return ""
