"""A durable record of payments: one row for each reference, written before the network is touched (extra ``journal``).

This package does no HTTP: `momopay.durable` sends the payments. SQLAlchemy is imported when a `Journal` is created.

Thread safety: any thread may call any method in this package. The database decides between calls.

| module | what it contains |
|---|---|
| journal | `Journal`, the public interface |
| entries, rules | no I/O: the entries; the state machine, the key of a payout, what may be refunded |
| evidence, matching | no I/O: what a record of the service says; which payment it belongs to |
| pages, store, statements | read the entries of one account, change them, and the SQL of both |
| internals | the parts of an open journal |
| queue | what a sweep has to do |
| retention | copies of the database, and the removal of phones |
| guards | checks of whether a call may use this journal |
| leases | which process is sending a payment now |
| history | what happened to each payment, in order |
| delivery | records what the service reports, and delivers each end to one handler |
| activity | no I/O: the sums of a day, and their chart |
| schema, schemas | the tables; the schema of PostgreSQL that they are in |
| upgrade, structure, migrate, moving | the versions of the tables; moving a journal to another database |
| database, sqlite, postgresql | connections, bounded waits and leases, and what differs between the databases |
| sharing | which journals of a process share a database |
| refusals, pooling | why a PostgreSQL database cannot be opened, and pools that cannot hold a journal |
"""

from momopay.journal.activity import ActivityDay, ActivitySum
from momopay.journal.entries import (
    HistoryEntry,
    HistoryKind,
    JournalCheck,
    JournalEntry,
    JournalState,
    JournalTransaction,
)
from momopay.journal.journal import Journal
from momopay.models.enums import EntryKind

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
