"""How a session asks for slots: of a budget in this process, or of one shared with others. Times are in seconds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

from momopay._budget import Budget, Lane

if TYPE_CHECKING:
    from momopay._io.blocking import BlockingIO
    from momopay._io.suspending import AsyncIO
    from momopay._options import Account


class Slots(Protocol):
    """A budget as one session sees it. Asking may take a round trip; waiting for the slot is the session's."""

    async def reserve(self, now: float, lane: Lane, within: float) -> float:
        """Take the next slot and say in how many seconds it comes; take none if that is later than `within`."""
        ...

    async def stop(self, now: float, until: float) -> None:
        """Hand out no slot before `until`, to nobody who shares the budget."""
        ...

    async def stopped(self, now: float) -> bool:
        """Tell whether slots handed out for now are taken back."""
        ...

    async def close(self) -> None:
        """Let go of what this session held open."""
        ...


@runtime_checkable
class SharedBudget(Protocol):
    """A budget beyond this process."""

    def slots(self, io: BlockingIO | AsyncIO, account: Account) -> Slots:
        """Give the slots of an account, asked for through this port."""
        ...


class LocalSlots:
    """A budget in this process, which answers at once."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget

    async def reserve(self, now: float, lane: Lane, within: float) -> float:
        """Take the next slot."""
        return self._budget.reserve(now, lane, within)

    async def stop(self, now: float, until: float) -> None:
        """Hand out no slot before `until`."""
        self._budget.stop(now, until)

    async def stopped(self, now: float) -> bool:
        """Tell whether a stop is in force."""
        return self._budget.stopped(now)

    async def close(self) -> None:
        """Hold nothing open."""


def slots_of(budget: Budget | SharedBudget | None, io: BlockingIO | AsyncIO, account: Account) -> Slots | None:
    """Give a session its slots; None where there is no budget."""
    if budget is None:
        return None
    return budget.slots(io, account) if isinstance(budget, SharedBudget) else LocalSlots(budget)
