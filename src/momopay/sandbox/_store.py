"""Keeps the state in an SQLite file, so that a restart continues where the last run stopped. No key is written.

Each body is the JSON of a dataclass, so the names of the fields are the format of the file. Renaming one requires a new
version of the format. Files of other versions are refused.
"""

import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from momopay.sandbox._accounts import Account
from momopay.sandbox._records import CallbackRecord, Delivery, Movement, Transaction
from momopay.sandbox._state import AccountState, RateWindow, ServiceState, StkHealth

_SCHEMA = """
create table if not exists records (kind text, id text, place integer, body text not null, primary key (kind, id));
"""
# "mom" and the version of the format. It is checked so that nothing is written to another program's database.
_APPLICATION_ID = 0x6D6F6D05
_ADAPTERS: Mapping[str, TypeAdapter[Any]] = {
    "account": TypeAdapter(tuple[Account, RateWindow, StkHealth]),
    "transaction": TypeAdapter(Transaction),
    "delivery": TypeAdapter(Delivery),
    "callback": TypeAdapter(CallbackRecord),
    "movement": TypeAdapter(Movement),
    "now": TypeAdapter(datetime),
}


class Store:
    """One state file. One thread opens it and the event loop's thread uses it, never both at once."""

    def __init__(self, path: str | Path) -> None:
        try:
            self._connection = sqlite3.connect(path, check_same_thread=False, timeout=0.5)
        except sqlite3.OperationalError as error:
            raise ValueError(f"{path} cannot be opened: {error}") from error
        try:
            self._claim()
            self._connection.executescript(_SCHEMA)
        except sqlite3.DatabaseError as error:
            self._connection.close()
            if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_BUSY:
                raise ValueError(f"{path} is in use by another sandbox") from error
            raise ValueError(f"{path} is no sandbox state: {error}") from error
        self._saved_callbacks = self._saved_movements = 0

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
        state = ServiceState()
        for account, rate, health in self._read("account"):
            state.accounts[account.tenant_id] = AccountState(account, rate=rate, health=health)
        for transaction in self._read("transaction"):
            state.insert(transaction)
            state.put_on_agenda(transaction)
        for delivery in self._read("delivery"):
            # A POST that was under way when the run ended is made again, since callbacks may arrive twice.
            delivery.due = delivery.due or now
            state.deliveries[delivery.id] = delivery
            state.put_on_agenda(delivery)
        for record in self._read("callback"):
            state.add_callback(record)
        state.ledger = list(self._read("movement"))
        self._saved_callbacks, self._saved_movements = len(state.callbacks), len(state.ledger)
        return state, max(now, next(self._read("now"), now))

    def _read(self, kind: str) -> Iterator[Any]:
        rows = self._connection.execute("select body from records where kind = ? order by place, id", (kind,))
        return (_ADAPTERS[kind].validate_json(body) for (body,) in rows)

    def save(self, state: ServiceState, now: datetime) -> None:
        """Write what changed, in one transaction."""
        # Callbacks and movements are only appended. Accounts and open deliveries are few, so all of them are written.
        callbacks, movements = self._saved_callbacks, self._saved_movements
        with self._connection as connection:
            connection.execute("delete from records where kind = 'delivery'")
            self._write("now", [("", 0, now)])
            accounts = state.accounts.items()
            self._write("account", ((key, 0, (each.account, each.rate, each.health)) for key, each in accounts))
            self._write("transaction", ((each.id, each.number, each) for each in state.unsaved.values()))
            self._write("delivery", ((each.id, 0, each) for each in state.deliveries.values()))
            new_callbacks = enumerate(state.callbacks[callbacks:], callbacks)
            self._write("callback", ((each.id, at, each) for at, each in new_callbacks))
            new_movements = enumerate(state.ledger[movements:], movements)
            self._write("movement", ((str(at), at, each) for at, each in new_movements))
        self._saved_callbacks, self._saved_movements = len(state.callbacks), len(state.ledger)

    def _write(self, kind: str, rows: Iterable[tuple[str, int, object]]) -> None:
        dump = _ADAPTERS[kind].dump_json
        values = ((kind, key, place, dump(body).decode()) for key, place, body in rows)
        self._connection.executemany("replace into records values (?, ?, ?, ?)", values)

    def clear(self) -> None:
        with self._connection as connection:
            connection.execute("delete from records")
        self._saved_callbacks = self._saved_movements = 0

    def close(self) -> None:
        self._connection.close()
