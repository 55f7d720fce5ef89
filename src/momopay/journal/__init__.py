"""A durable record of payments: one row for each reference, written before the network is touched (extra ``journal``).

This package knows databases and nothing of HTTP; `momopay.durable` sends. Importing it imports neither SQLAlchemy nor
filelock: they are loaded when a `Journal` is made.

| module | what it is |
|---|---|
| journal | `Journal`, the public interface |
| entries, rules, limits, evidence | pure: what is kept, what may follow what, and what outsiders say |
| store | the payments of one account: every statement that reads or changes one |
| recorder | which payment a record of the service is about |
| reports, backup | many entries at once, and copies of all |
| callbacks | which ends were handled |
| accounts, watermark | to which account it belongs, and whether it went back in time |
| lease | which call may change a row, and whether it is alive |
| schema | the tables |
| database, sqlite, postgresql | bounded waits, connections, and what differs between the databases |
"""

from momopay.journal.entries import EntryKind, JournalCheck, JournalEntry, JournalState, JournalTransaction
from momopay.journal.journal import Journal, ReconcilingClient

__all__ = [
    "EntryKind",
    "Journal",
    "JournalCheck",
    "JournalEntry",
    "JournalState",
    "JournalTransaction",
    "ReconcilingClient",
]
