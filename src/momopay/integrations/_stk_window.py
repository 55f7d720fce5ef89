"""The success rate of the latest STK prompts, as the service judges it (service page, "POST /payments/stk"). Pure."""

from __future__ import annotations

from itertools import islice
from typing import Final

SIZE: Final = 100
"""The service judges the most recent 100 completed payments."""
MEMORY: Final = 10_000
"""Ends that are remembered, so that none is counted twice however late it is reported again."""


class StkWindow:
    """The latest ends of STK prompts, each once. The caller holds a lock.

    One prompt may be reported many times: by a wait, its callback, a sweep. A later report changes the first one only
    if a late PIN paid after all what had failed.
    """

    def __init__(self) -> None:
        self._paid: dict[str, bool] = {}  # by the transaction's id, oldest first
        self._counted = 0
        self._is_blocked = False

    def add(self, transaction_id: str, *, paid: bool) -> None:
        """Count a prompt that ended, unless it was counted before."""
        if transaction_id in self._paid:
            self._paid[transaction_id] |= paid
            return
        self._paid[transaction_id] = paid
        self._counted = min(self._counted + 1, SIZE)
        if len(self._paid) > MEMORY:
            del self._paid[next(iter(self._paid))]

    def block(self) -> None:
        """Note that the service refuses prompts because of the rate."""
        self._is_blocked = True

    def accept(self) -> None:
        """Note that the service accepted a prompt; after a block it then counts from zero."""
        if self._is_blocked:
            self._is_blocked, self._counted = False, 0

    @property
    def completed(self) -> int:
        """Of how many prompts the rate is: at most 100, and fewer after a start or a block."""
        return self._counted

    @property
    def rate(self) -> float | None:
        """The share that was paid, 0 to 1; None before the first one ended."""
        if not self._counted:
            return None
        return sum(islice(reversed(self._paid.values()), self._counted)) / self._counted
