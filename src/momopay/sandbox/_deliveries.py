"""Callbacks on their way and callbacks sent: data, and the arithmetic of when the next attempt comes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from uuid import uuid4

# The delays before retry attempts 1 to 5, service page, "Callbacks". Virtual seconds, like all others here.
RETRY_DELAYS = (10.0, 30.0, 60.0, 120.0, 300.0)
ANSWER_LIMIT = 30.0
DUPLICATE_AFTER = 1.0
LATE_AFTER = 300.0
HELD_AT_MOST = 60.0


# The names of these fields are also the format of the state file, see `_store`.
@dataclass(slots=True)
class Delivery:
    """A callback that is not done with; `attempt` 0 is the first delivery, 1 to 5 its retries.

    `due` is None while a POST is under way. A `held` one waits for the account's next callback to overtake it.
    """

    id: str
    tenant_id: str
    transaction_id: str
    url: str
    payload: dict[str, object]
    posts_left: int
    due: datetime | None
    attempt: int = 0
    duplicates_left: int = 0
    held: bool = False


@dataclass(frozen=True, slots=True)
class PostResult:
    """The result of one POST: an answer's status and the beginning of its body, or an error."""

    status: int | None = None
    answer: str = ""
    error: str | None = None
    timed_out: bool = False


@dataclass(frozen=True, slots=True)
class CallbackRecord:
    """One delivery as it happened: where, what, which attempt, when, and the answer's status or the error."""

    transaction_id: str
    tenant_id: str
    url: str
    payload: Mapping[str, object]
    attempt: int
    at: datetime
    status: int | None = None
    answer: str = ""
    error: str | None = None
    id: str = field(default_factory=lambda: str(uuid4()))

    @property
    def acknowledged(self) -> bool:
        """Whether the answer was a 2xx."""
        return is_acknowledged(self.status)


def is_acknowledged(status: int | None) -> bool:
    """Return whether the status of an answer is a 2xx."""
    return status is not None and 200 <= status < 300  # noqa: PLR2004 - 2xx


def next_attempt(delivery: Delivery, result: PostResult, at: datetime) -> datetime | None:
    """Count one attempt made at `at`; return when the next one is due, or None when delivery is over."""
    if is_acknowledged(result.status):
        if not delivery.duplicates_left:
            return None
        delivery.duplicates_left -= 1
        return at + timedelta(seconds=DUPLICATE_AFTER)
    delivery.posts_left -= 1
    if not delivery.posts_left:
        return None
    # A POST takes no virtual time while `advance` moves the clock, so the missed limit is added here.
    delay = RETRY_DELAYS[delivery.attempt] + (ANSWER_LIMIT if result.timed_out else 0.0)
    delivery.attempt += 1
    return at + timedelta(seconds=delay)
