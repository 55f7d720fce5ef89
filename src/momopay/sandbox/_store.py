"""Keeps the state in a SQLite file, so that a restart continues where the last run stopped. No key is written.

Each body is the JSON of a dataclass: its field names are the format of the file. Whoever renames one must raise
`_VERSION`, and files of the version before are refused.
"""

import sqlite3
from datetime import datetime
from pathlib import Path

from pydantic import TypeAdapter

from momopay.sandbox._accounts import Account
from momopay.sandbox._records import CallbackRecord, Delivery, Movement, Transaction
from momopay.sandbox._state import AccountState, ServiceState
from momopay.sandbox._throttling import RateWindow, StkHealth

_SCHEMA = """
create table if not exists meta (name text primary key, value text not null);
create table if not exists accounts (id text primary key, account text, health text, rate text);
create table if not exists transactions (id text primary key, place integer not null, body text not null);
create table if not exists deliveries (id text primary key, body text not null);
create table if not exists callbacks (place integer primary key, body text not null);
create table if not exists ledger (place integer primary key, body text not null);
"""
_VERSION = "1"
# "momo", in the head of the file: it is checked before anything is written to somebody else's database.
_APPLICATION_ID = 0x6D6F6D6F
_HEALTH = TypeAdapter(StkHealth)
_RATE = TypeAdapter(RateWindow)
_TRANSACTION = TypeAdapter(Transaction)
_DELIVERY = TypeAdapter(Delivery)
_CALLBACK = TypeAdapter(CallbackRecord)
_MOVEMENT = TypeAdapter(Movement)


class Store:
    """One state file. Made on one thread and used on another, never on two at once."""

    def __init__(self, path: str | Path) -> None:
        """Open or create the file.

        Raises:
            ValueError: The file cannot be opened, is not a state file of this version, or another sandbox has it open.
        """
        try:
            # Opened by the thread that starts the sandbox and used by the event loop's, one after the other.
            self._connection = sqlite3.connect(path, check_same_thread=False, timeout=0.5)
        except sqlite3.OperationalError as error:
            raise ValueError(f"{path} cannot be opened: {error}") from error
        try:
            self._claim()
            self._connection.executescript(_SCHEMA)
            version = self._meta("version", _VERSION)
        except sqlite3.DatabaseError as error:
            self._connection.close()
            if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_BUSY:
                raise ValueError(f"{path} is in use by another sandbox") from error
            raise ValueError(f"{path} is no sandbox state: {error}") from error
        if version != _VERSION:
            self._connection.close()
            raise ValueError(f"{path} was written by another version of the sandbox")
        self._saved_callbacks = self._saved_movements = 0

    def _claim(self) -> None:
        """Lock the file for as long as it is open, and make sure that it is ours or new."""
        # Two sandboxes on one file would overwrite each other. The lock ends with the process.
        self._connection.executescript("pragma locking_mode = exclusive; begin exclusive; commit;")
        (application,) = self._connection.execute("pragma application_id").fetchone()
        (tables,) = self._connection.execute("select count(*) from sqlite_master").fetchone()
        if application != _APPLICATION_ID and tables:
            raise sqlite3.DatabaseError("it belongs to another program")
        self._connection.execute(f"pragma application_id = {_APPLICATION_ID}")

    def _meta(self, name: str, default: str) -> str:
        with self._connection as connection:
            connection.execute("insert or ignore into meta values (?, ?)", (name, default))
            row: tuple[str] = connection.execute("select value from meta where name = ?", (name,)).fetchone()
        return row[0]

    def load(self, now: datetime) -> tuple[ServiceState, datetime]:
        """Return the state as it was saved, and the instant that its clock had reached (never before `now`)."""
        state, query = ServiceState(), self._connection.execute
        for account, health, rate in query("select account, health, rate from accounts"):
            account_state = AccountState(Account.model_validate_json(account))
            account_state.health, account_state.rate = _HEALTH.validate_json(health), _RATE.validate_json(rate)
            state.accounts[account_state.account.tenant_id] = account_state
        for (body,) in query("select body from transactions order by place"):
            transaction = _TRANSACTION.validate_json(body)
            state.insert(transaction)
            if transaction.due is not None:
                state.scheduler.add(transaction.due, "transaction", transaction.id)
        for (body,) in query("select body from deliveries"):
            delivery = _DELIVERY.validate_json(body)
            # A POST that was under way when the run ended is made again: callbacks may arrive twice.
            delivery.due = delivery.due or now
            state.deliveries[delivery.id] = delivery
            state.scheduler.add(delivery.due, "delivery", delivery.id)
        for (body,) in query("select body from callbacks order by place"):
            state.add_callback(_CALLBACK.validate_json(body))
        state.ledger = [_MOVEMENT.validate_json(body) for (body,) in query("select body from ledger order by place")]
        self._saved_callbacks, self._saved_movements = len(state.callbacks), len(state.ledger)
        return state, max(now, datetime.fromisoformat(self._meta("now", now.isoformat())))

    def save(self, state: ServiceState, now: datetime) -> None:
        """Write what changed, in one transaction."""
        # Callbacks and movements are only ever appended; accounts and open deliveries are few, and written whole.
        with self._connection as connection:
            connection.execute("update meta set value = ? where name = 'now'", (now.isoformat(),))
            connection.executemany(
                "replace into accounts values (?, ?, ?, ?)",
                [
                    (
                        tenant_id,
                        account_state.account.model_dump_json(),
                        _HEALTH.dump_json(account_state.health).decode(),
                        _RATE.dump_json(account_state.rate).decode(),
                    )
                    for tenant_id, account_state in state.accounts.items()
                ],
            )
            connection.executemany(
                "replace into transactions values (?, ?, ?)",
                [
                    (transaction.id, transaction.number, _TRANSACTION.dump_json(transaction).decode())
                    for transaction in state.unsaved.values()
                ],
            )
            connection.execute("delete from deliveries")
            connection.executemany(
                "insert into deliveries values (?, ?)",
                [(delivery.id, _DELIVERY.dump_json(delivery).decode()) for delivery in state.deliveries.values()],
            )
            connection.executemany(
                "insert into callbacks (body) values (?)",
                [(_CALLBACK.dump_json(record).decode(),) for record in state.callbacks[self._saved_callbacks :]],
            )
            connection.executemany(
                "insert into ledger (body) values (?)",
                [(_MOVEMENT.dump_json(entry).decode(),) for entry in state.ledger[self._saved_movements :]],
            )
        self._saved_callbacks, self._saved_movements = len(state.callbacks), len(state.ledger)

    def clear(self) -> None:
        """Empty the file."""
        with self._connection as connection:
            for table in ("accounts", "transactions", "deliveries", "callbacks", "ledger"):
                connection.execute(f"delete from {table}")  # noqa: S608 - names from the line above
        self._saved_callbacks = self._saved_movements = 0

    def close(self) -> None:
        """Close the file."""
        self._connection.close()
