"""What a request is for, and where it is among those that wait."""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple


class Lane(Enum):
    """What a request is for. The order is that in which waiting requests go: payments, reads, polls."""

    PAYMENT = "payment"
    READ = "read"
    POLL = "poll"


class Place(NamedTuple):
    """Where a call is in the line of its process.

    Attributes:
        queued: Whether it has waited already, or others go before it.
        before: How many calls of the lanes before its own wait.
        same: How many calls of its own lane wait and go before it.
        payments: How many payments wait in this process, the call itself included.
    """

    queued: bool = False
    before: int = 0
    same: int = 0
    payments: int = 0


ALONE: Final = Place()
