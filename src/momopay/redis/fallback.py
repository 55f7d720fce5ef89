"""The slots of a process that cannot ask Redis. Pure: it knows neither Redis nor a clock. Times are in seconds."""

from __future__ import annotations

from momopay._ratelimit.slot_log import SlotLog
from momopay.redis.script import Reply

# Seconds for which the last answer is taken for what Redis still had when it went away.
_FRESH = 2.0


def fallback(
    requests: int, window: float, sharers: int, *, now: float, answered_at: float, reply: Reply | None
) -> SlotLog:
    """Return a log of ``requests // sharers`` slots, at least 1, which begins as full as the last answer shows."""
    log = SlotLog(max(1, requests // sharers), window)
    if reply is None:  # this process never met Redis
        return log
    ages = reply.ages()
    if now - answered_at <= _FRESH:
        # Slot number n of the log comes back to the process whose number is n modulo the number of processes. All
        # processes saw the same log, so together they send when the slots come back, and none sends in between.
        own, first = reply.number % sharers, reply.taken - len(ages)
        numbered = ((number % requests % sharers, age) for number, age in enumerate(ages, first))
        log.slots = [answered_at - age for owner, age in numbered if owner == own]
        return log
    # Others may have sent meanwhile. The process begins with its part of what was free, but at least one request; the
    # rest of its share comes back evenly over the first window.
    free = requests - sum(age < window for age in ages)
    later = log.requests - min(log.requests, max(1, free // sharers))
    log.slots = [now - window + window * number / later for number in range(1, later + 1)]
    return log
