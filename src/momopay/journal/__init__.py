"""A durable record of payouts: one row for each reference, written before the network is touched (extra ``journal``).

This package knows databases and nothing of HTTP; `momopay.resources.pay_once` sends. Importing it imports neither
SQLAlchemy nor filelock: they are loaded when a `Journal` is made.

| module | what it is |
|---|---|
| journal | `Journal`, the public interface |
| entries | what the journal says about one reference |
| rules | what a call does about an entry, and which states may follow which |
| identity | what a journal is bound to |
| payments | the rows of payouts, and who may change one to what |
| collections | the rows of orders, and the prompts of each |
| collection_rules | what a call does about an order, and how far a prompt came |
| collection_statements | the SQL that reads and changes these rows |
| refunds | the payouts that pay something of a collection back, and their limit |
| reports | the part of `Journal` that lists, checks, copies and anonymises; history has its SQL, backup its copies |
| statements | the SQL that reads and changes these rows |
| releases | what must hold before a person releases a payment |
| evidence | what the service reports, as the journal keeps it |
| callbacks | which callbacks were handled |
| lease | which call may change a row, and whether it is alive |
| accounts | which account of the service the journal belongs to |
| schema | the tables, and the statements that change one row |
| migrations | how the tables are created and changed |
| bounds | until when a thread waits for the database |
| database | connections, errors, and a new start after a fork |
| sqlite, sqlite_fork, postgresql, postgresql_connection | what differs between the databases |
"""

from momopay.journal.entries import EntryKind, JournalEntry, JournalState, Prompt
from momopay.journal.journal import Journal, ReconcilingClient
from momopay.journal.reports import JournalCheck

__all__ = ["EntryKind", "Journal", "JournalCheck", "JournalEntry", "JournalState", "Prompt", "ReconcilingClient"]
