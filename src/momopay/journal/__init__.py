"""A durable record of payments: one row for each reference, written before the network is touched (extra ``journal``).

This package knows databases and nothing of HTTP; `momopay.durable` sends. SQLAlchemy is loaded when a `Journal` is
made, not before.

| module | what it is |
|---|---|
| journal | `Journal`, the public interface |
| entries, rules, evidence | pure: what is kept, what may follow what, and what outsiders say |
| store, statements | the payments of one account: every statement that reads or changes one |
| guards | whether a call may use this journal |
| callbacks | records of the service: which payment they are about, and which ends were handled |
| reports, backup | many entries at once, and copies of all |
| schema | the tables |
| database, sqlite, postgresql | bounded waits, connections, leases, and what differs between the databases |
"""

from momopay.journal.entries import EntryKind, JournalCheck, JournalEntry, JournalState, JournalTransaction
from momopay.journal.journal import Journal

__all__ = ["EntryKind", "Journal", "JournalCheck", "JournalEntry", "JournalState", "JournalTransaction"]
