"""Find entries by what is known of their transactions: an id, a receipt, or that they have not settled."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import Select, bindparam, literal, select, text, union_all

from momopay.journal.database import ForkSafeDatabase
from momopay.journal.entries import EntryKind, JournalEntry
from momopay.journal.schema import HAS_NOT_SETTLED, PROMPT_IS_OPEN, lease_left, payments, prompts

if TYPE_CHECKING:
    from momopay.journal.payments import Payments

_row: Final = payments.c
_prompt: Final = prompts.c
_KEYS: Final = select(_row.kind, _row.reference, _row.sent_at).where(_row.account == bindparam("the_account"))
_KEYS_OF_PROMPTS: Final = select(
    literal(EntryKind.COLLECTION.value).label("kind"), _prompt.reference, _prompt.sent_at
).where(_prompt.account == bindparam("the_account"))

# Of an UNKNOWN entry the id is one that an unclear response showed.
_BY_TRANSACTION: Final = union_all(
    _KEYS.where(_row.transaction_id == bindparam("the_text"), text("state = 'ACCEPTED'")),
    _KEYS_OF_PROMPTS.where(_prompt.transaction_id == bindparam("the_text")),
)
_BY_RECEIPT: Final = union_all(
    _KEYS.where(_row.receipt == bindparam("the_text")), _KEYS_OF_PROMPTS.where(_prompt.receipt == bindparam("the_text"))
).order_by(text("sent_at DESC"))
_WITH_OPEN_PROMPT: Final = select(_prompt.reference).where(_prompt.account == bindparam("the_account"), PROMPT_IS_OPEN)
_OPEN: Final[Select[Any]] = (
    select(payments, lease_left(payments))
    .where(_row.account == bindparam("the_account"), _row.kind == bindparam("the_kind"), HAS_NOT_SETTLED)
    .order_by(_row.sent_at)
)


class Lookups:
    """Searches over both kinds of entries of one account."""

    def __init__(self, database: ForkSafeDatabase, account: str, rows: dict[EntryKind, Payments]) -> None:
        self._database = database
        self._account = account
        self._rows = rows

    def by_transaction(self, transaction_id: str) -> JournalEntry | None:
        """Return the entry that has a transaction, as the service accepted it."""
        found = self._found(_BY_TRANSACTION, transaction_id)
        return found[0] if found else None

    def by_receipt(self, receipt: str) -> list[JournalEntry]:
        """Return the entries that have a receipt, the newest first: one, unless the provider repeats itself."""
        return self._found(_BY_RECEIPT, receipt)

    def open(self) -> list[JournalEntry]:
        """Return what was accepted and has not settled, and orders with a prompt that is open; oldest first."""
        entries = [entry for rows in self._rows.values() for entry in rows.select(_OPEN)]
        known = {entry.reference for entry in entries if entry.kind is EntryKind.COLLECTION}
        with self._database.connection() as connection:
            references = set(connection.execute(_WITH_OPEN_PROMPT, {"the_account": self._account}).scalars())
        paid = (self._rows[EntryKind.COLLECTION].get(reference) for reference in references - known)
        return sorted([*entries, *filter(None, paid)], key=lambda entry: entry.sent_at)

    def _found(self, keys: Any, the_text: str) -> list[JournalEntry]:
        with self._database.connection() as connection:
            found = connection.execute(keys, {"the_account": self._account, "the_text": the_text}).all()
        # An order and its prompt are one entry.
        wanted = dict.fromkeys((EntryKind(row.kind), row.reference) for row in found)
        return [entry for kind, reference in wanted if (entry := self._rows[kind].get(reference)) is not None]
