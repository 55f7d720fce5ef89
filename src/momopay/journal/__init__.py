"""What was paid, durably: a row for each reference, written before the network is touched (extra ``journal``).

Knows databases and nothing of HTTP. How a payout goes through it is told in `momopay.resources.pay_once`. The libraries are
loaded when a journal is made, not when this room is.
"""

from momopay.journal.entries import JournalEntry, JournalState
from momopay.journal.journal import Journal

__all__ = ["Journal", "JournalEntry", "JournalState"]
