"""A durable record of payments: one row for each reference, written before the network is touched (extra ``journal``).

This package does no HTTP: `momopay.durable` sends the payments. SQLAlchemy is imported when a `Journal` is created.

Thread safety: any thread may call any method in this package. The database decides between calls.

| module | what it contains |
|---|---|
| journal | `Journal`, the public interface |
| entries, rules, evidence | no I/O: the entries, the state machine, and comparisons with the service's records |
| store, statements | the payments of one account, and the SQL that reads and changes them |
| guards | checks of whether a call may use this journal |
| history | what happened to each payment, in order |
| callbacks | finds the entry that a record of the service belongs to |
| delivery | delivers each end to one handler |
| reports, backup | reads many entries at once, and copies the database |
| activity | no I/O: the sums of a day, and their chart |
| schema | the tables |
| database, sqlite, postgresql | connections, bounded waits and leases, and what differs between the databases |
"""

from momopay.journal.activity import ActivityDay, ActivitySum
from momopay.journal.entries import (
    EntryKind,
    HistoryEntry,
    HistoryKind,
    JournalCheck,
    JournalEntry,
    JournalState,
    JournalTransaction,
)
from momopay.journal.journal import Journal

__all__ = [
    "ActivityDay",
    "ActivitySum",
    "EntryKind",
    "HistoryEntry",
    "HistoryKind",
    "Journal",
    "JournalCheck",
    "JournalEntry",
    "JournalState",
    "JournalTransaction",
]
