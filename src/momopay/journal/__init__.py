"""What was paid, durably: a row for each reference, written before the network is touched (extra ``journal``).

Knows databases and nothing of HTTP. How a payout goes through it is told in `momopay.resources.once`. The libraries are
loaded when a journal is made, not when this room is.
"""

from momopay.journal.book import Journal, rows_of
from momopay.journal.entries import MAY_BE_SENT, JournalEntry, JournalState

__all__ = ["MAY_BE_SENT", "Journal", "JournalEntry", "JournalState", "rows_of"]
