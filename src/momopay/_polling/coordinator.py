"""The coordinator where all waits on one client sit: one of them looks at a time, for everyone. What a look is, it knows not.

Times are in seconds.
"""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import contextmanager
from datetime import datetime
from http import HTTPStatus
from math import inf
from typing import NamedTuple, Protocol

from momopay.errors import (
    APIConnectionError,
    APIError,
    BudgetExhaustedError,
    ProtocolError,
    ServerError,
    ThrottledError,
)
from momopay.models.enums import TransactionStatus
from momopay.models.transactions import Transaction, TransactionPage

_PASSING = (APIConnectionError, BudgetExhaustedError, ProtocolError, ServerError, ThrottledError)

RESULT_POLLS = 3
"""For how many looks' time an end without success, seen in the list, is held for its reason."""


def is_transient(error: BaseException) -> bool:
    """Tell whether a failure leaves a wait to its limit: whatever it is called, a 429 or 5xx is_transient."""
    if isinstance(error, _PASSING):
        return True
    status = error.status_code if isinstance(error, APIError) else 0
    return status == HTTPStatus.TOO_MANY_REQUESTS or status >= HTTPStatus.INTERNAL_SERVER_ERROR


class TransactionReader(Protocol):
    """How a wait looks; `until` is the monotonic time by which the look must be over."""

    async def read(self, transaction_id: str, until: float) -> Transaction:
        """Read one transaction."""
        ...

    async def page(self, cursor: str | None, until: float) -> TransactionPage:
        """Read a page of the newest."""
        ...


class Observation(NamedTuple):
    """What was read of a transaction: whole by a single read, or in part from the list."""

    transaction: Transaction
    whole: bool


class Waiter:
    """One transaction that is waited for, until `end`, and looked at when it is `due` or its party was `notified`.

    Where the list showed an end without success, its reason is `owed`: a read by id, made between sweeps. An end that
    has come, `ended`, is given without its reason once `patience` is over.
    """

    def __init__(
        self, transaction_id: str, created_at: datetime | None, *, due: float, every: float, end: float
    ) -> None:
        self.transaction_id = transaction_id
        self.created_at = created_at
        self.due = due
        self.every = every
        self.end = end
        self.seen_at = -inf
        self.notified = False
        self.news: Observation | None = None
        self.last: Transaction | None = None
        self.judged: TransactionStatus | None = None
        self.owed = False
        self.ended: Transaction | None = None
        self.patience = end
        self.looked_last = False
        self.failure: APIError | None = None

    def tell(self, news: Observation, now: float) -> None:
        """Hand over what was read; what only a read by id shows is not lost over what the list shows."""
        self.created_at = news.transaction.created_at
        self.last = news.transaction
        self.seen_at = now
        held = self.news
        if held is None or news.whole or not held.whole or held.transaction.status != news.transaction.status:
            self.news = news

    def owe(self, now: float, ended: Transaction | None) -> None:
        """Ask for the reason of an end without success, for a while."""
        self.owed = True
        self.ended = ended
        self.judged = None if self.last is None else self.last.status
        self.patience = min(self.end, now + RESULT_POLLS * self.every)

    def forgo(self, now: float) -> None:
        """Go without the reason: for good where the wait has ended, else until the list shows that end again."""
        self.owed = False
        self.judged = None
        self.patience = self.end if self.ended is None else now

    def take_last_look(self, now: float) -> bool:
        """Tell, once, that the wait is about to give up."""
        if self.looked_last or now + RESULT_POLLS * self.every < self.end:
            return False
        self.looked_last = True
        return True

    @property
    def answers_by(self) -> float:
        """When its party gives an answer or gives up, whatever others do."""
        return self.end if self.ended is None else self.patience

    @property
    def seeks(self) -> bool:
        """Whether there is anything that a sweep could tell it."""
        return self.ended is None and self.news is None and self.failure is None

    def is_due(self, now: float) -> bool:
        """Whether it must be looked at."""
        return self.seeks and (self.notified or self.due <= now)


class Wait(Protocol):
    """Somebody in the waiting coordinator, with one transaction or many."""

    def wake(self) -> None:
        """Let it look at what it was told."""
        ...

    def waiters(self) -> list[Waiter]:
        """Give those it still waits for."""
        ...


class WaitCoordinator:
    """Everyone who waits on one client."""

    def __init__(self) -> None:
        self._parties: list[Wait] = []
        self._lock = threading.Lock()
        self._someone_looks = False
        self.took: float = 0.0
        """How long the last request took; much, where it had to queue for a slot."""
        self.reason_next: bool = False
        self.further_at: float = -inf
        """When those whom the first page does not show may be looked for again."""

    @contextmanager
    def seat(self, party: Wait) -> Generator[None]:
        """Let a party wait among the others."""
        with self._lock:
            self._parties.append(party)
        try:
            yield
        finally:
            with self._lock:
                self._parties.remove(party)

    def notify(self, transaction_id: str, *, failed: bool = False) -> None:
        """Wake whoever waits for that transaction; one that is said to have failed is read for its reason."""
        for party in self._present():
            for waiter in party.waiters():
                if waiter.transaction_id == transaction_id:
                    waiter.notified = not failed
                    waiter.owed = waiter.owed or failed
                    party.wake()

    @contextmanager
    def turn(self) -> Generator[bool]:
        """Take the turn to look, if nobody has it; everyone is woken when it ends."""
        with self._lock:
            mine = not self._someone_looks
            self._someone_looks = True
        if not mine:
            yield False
            return
        try:
            yield True
        finally:
            self._someone_looks = False
            self.wake()

    def waiting(self, now: float) -> list[Waiter]:
        """Give everyone whose wait is not over."""
        return [waiter for party in self._present() for waiter in party.waiters() if waiter.end > now]

    def _present(self) -> list[Wait]:
        with self._lock:
            return list(self._parties)

    def wake(self) -> None:
        """Let everyone look at what they were told."""
        for party in self._present():
            party.wake()
