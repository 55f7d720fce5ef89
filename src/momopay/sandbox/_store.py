"""Keeps the state in an SQLite file, so that a restart continues where the last run stopped. No key is written.

The body is the JSON of a dataclass, so the names of the fields are the format of the file. Renaming one requires a new
version of the format. Files of other versions are refused.
"""

import sqlite3
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from pydantic import TypeAdapter

from momopay.sandbox._accounts import Account
from momopay.sandbox._records import CallbackRecord, Delivery, Movement, Transaction
from momopay.sandbox._state import AccountState, RateWindow, ServiceState, StkHealth

# "mom" and the version of the format. It is checked so that nothing is written to another program's database.
_APPLICATION_ID = 0x6D6F6D06


@dataclass(slots=True)
class _Saved:
    now: datetime
    accounts: list[tuple[Account, RateWindow, StkHealth]]
    transactions: list[Transaction]
    deliveries: list[Delivery]
    callbacks: list[CallbackRecord]
    ledger: list[Movement]


_JSON = TypeAdapter(_Saved)


class Store:
    """One state file. One thread opens it and the event loop's thread uses it, never both at once."""

    def __init__(self, path: str | Path) -> None:
        try:
            self._connection = sqlite3.connect(path, check_same_thread=False, timeout=0.5)
        except sqlite3.OperationalError as error:
            raise ValueError(f"{path} cannot be opened: {error}") from error
        try:
            self._claim()
            self._connection.execute("create table if not exists state (id integer primary key, body text not null)")
        except sqlite3.DatabaseError as error:
            self._connection.close()
            if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_BUSY:
                raise ValueError(f"{path} is in use by another sandbox") from error
            raise ValueError(f"{path} is no sandbox state: {error}") from error

    def _claim(self) -> None:
        """Lock the file while it is open, and raise unless it is new or one of this version's sandbox."""
        # Two sandboxes on one file would overwrite each other. The lock ends with the process at the latest.
        self._connection.executescript("pragma locking_mode = exclusive; begin exclusive; commit;")
        (application,) = self._connection.execute("pragma application_id").fetchone()
        (tables,) = self._connection.execute("select count(*) from sqlite_master").fetchone()
        if tables and application != _APPLICATION_ID:
            raise sqlite3.DatabaseError("it belongs to another program, or to another version of the sandbox")
        self._connection.execute(f"pragma application_id = {_APPLICATION_ID}")

    def load(self, now: datetime) -> tuple[ServiceState, datetime]:
        """Return the saved state, and the instant that its clock had reached or `now`, whichever is later."""
        row = self._connection.execute("select body from state").fetchone()
        saved = _Saved(now, [], [], [], [], []) if row is None else _JSON.validate_json(row[0])
        state = ServiceState(callbacks=saved.callbacks, ledger=saved.ledger)
        for account, rate, health in saved.accounts:
            state.accounts[account.tenant_id] = AccountState(account, rate=rate, health=health)
        for transaction in saved.transactions:
            state.insert(transaction)
            state.put_on_agenda(transaction)
        for delivery in saved.deliveries:
            # A POST that was under way when the run ended is made again, since callbacks may arrive twice.
            delivery.due = delivery.due or now
            state.deliveries[delivery.id] = delivery
            state.put_on_agenda(delivery)
        return state, max(now, saved.now)

    def save(self, state: ServiceState, now: datetime) -> None:
        """Write everything, in one transaction."""
        accounts = [(each.account, each.rate, each.health) for each in state.accounts.values()]
        transactions, deliveries = list(state.transactions.values()), list(state.deliveries.values())
        saved = _Saved(now, accounts, transactions, deliveries, state.callbacks, state.ledger)
        with self._connection as connection:
            connection.execute("replace into state values (1, ?)", (_JSON.dump_json(saved).decode(),))

    def close(self) -> None:
        self._connection.close()
