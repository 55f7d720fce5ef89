"""Keeps the state in a SQLite file, for a restart to go on where the last run stopped. No key is written."""

import sqlite3
from datetime import datetime
from pathlib import Path

from pydantic import TypeAdapter

from momopay.sandbox._accounts import Account
from momopay.sandbox._deliveries import CallbackRecord, Delivery
from momopay.sandbox._health import Health
from momopay.sandbox._limits import RateWindow
from momopay.sandbox._state import Book, World
from momopay.sandbox._transactions import Movement, Transaction

_SCHEMA = """
create table if not exists meta (name text primary key, value text not null);
create table if not exists accounts (id text primary key, account text, health text, rate text);
create table if not exists transactions (id text primary key, place integer not null, body text not null);
create table if not exists deliveries (id text primary key, body text not null);
create table if not exists callbacks (place integer primary key, body text not null);
create table if not exists ledger (place integer primary key, body text not null);
"""
_VERSION = "1"
_APPLICATION = 0x6D6F6D6F  # "momo", in the head of the file: whose it is, before anything is written to it
_HEALTH = TypeAdapter(Health)
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
            ValueError: The file cannot be opened, is no state of this version, or another sandbox has it open.
        """
        try:
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
        self._callbacks = self._movements = 0

    def _claim(self) -> None:
        """Lock the file for as long as it is open, and make sure that it is ours or new."""
        # Two sandboxes on one file would undo each other's work; the lock dies with the process.
        self._connection.executescript("pragma locking_mode = exclusive; begin exclusive; commit;")
        (application,) = self._connection.execute("pragma application_id").fetchone()
        (tables,) = self._connection.execute("select count(*) from sqlite_master").fetchone()
        if application != _APPLICATION and tables:
            raise sqlite3.DatabaseError("it belongs to another program")
        self._connection.execute(f"pragma application_id = {_APPLICATION}")

    def _meta(self, name: str, default: str) -> str:
        with self._connection as connection:
            connection.execute("insert or ignore into meta values (?, ?)", (name, default))
            row: tuple[str] = connection.execute("select value from meta where name = ?", (name,)).fetchone()
        return row[0]

    def load(self, now: datetime) -> tuple[World, datetime]:
        """The world as it was saved, and the instant its clock had come to (never before `now`)."""
        world, query = World(), self._connection.execute
        for account, health, rate in query("select account, health, rate from accounts"):
            book = Book(Account.model_validate_json(account))
            book.health, book.rate = _HEALTH.validate_json(health), _RATE.validate_json(rate)
            world.books[book.account.tenant_id] = book
        for (body,) in query("select body from transactions order by place"):
            transaction = _TRANSACTION.validate_json(body)
            world.enter(transaction)
            if transaction.due is not None:
                world.agenda.add(transaction.due, "transaction", transaction.id)
        for (body,) in query("select body from deliveries"):
            delivery = _DELIVERY.validate_json(body)
            # A POST that was under way when the run ended is made again: callbacks may arrive twice.
            delivery.due = delivery.due or now
            world.deliveries[delivery.id] = delivery
            world.agenda.add(delivery.due, "delivery", delivery.id)
        world.callbacks = [
            _CALLBACK.validate_json(body) for (body,) in query("select body from callbacks order by place")
        ]
        world.ledger = [_MOVEMENT.validate_json(body) for (body,) in query("select body from ledger order by place")]
        self._callbacks, self._movements = len(world.callbacks), len(world.ledger)
        return world, max(now, datetime.fromisoformat(self._meta("now", now.isoformat())))

    def save(self, world: World, now: datetime) -> None:
        """Write what changed, in one transaction."""
        with self._connection as connection:
            connection.execute("update meta set value = ? where name = 'now'", (now.isoformat(),))
            connection.executemany(
                "replace into accounts values (?, ?, ?, ?)",
                [
                    (
                        tenant_id,
                        book.account.model_dump_json(),
                        _HEALTH.dump_json(book.health).decode(),
                        _RATE.dump_json(book.rate).decode(),
                    )
                    for tenant_id, book in world.books.items()
                ],
            )
            connection.executemany(
                "replace into transactions values (?, ?, ?)",
                [
                    (transaction.id, transaction.number, _TRANSACTION.dump_json(transaction).decode())
                    for transaction in world.touched.values()
                ],
            )
            connection.execute("delete from deliveries")
            connection.executemany(
                "insert into deliveries values (?, ?)",
                [(delivery.id, _DELIVERY.dump_json(delivery).decode()) for delivery in world.deliveries.values()],
            )
            connection.executemany(
                "insert into callbacks (body) values (?)",
                [(_CALLBACK.dump_json(record).decode(),) for record in world.callbacks[self._callbacks :]],
            )
            connection.executemany(
                "insert into ledger (body) values (?)",
                [(_MOVEMENT.dump_json(entry).decode(),) for entry in world.ledger[self._movements :]],
            )
        self._callbacks, self._movements = len(world.callbacks), len(world.ledger)

    def clear(self) -> None:
        """Empty the file."""
        with self._connection as connection:
            for table in ("accounts", "transactions", "deliveries", "callbacks", "ledger"):
                connection.execute(f"delete from {table}")  # noqa: S608 - names from the line above
        self._callbacks = self._movements = 0

    def close(self) -> None:
        """Close the file."""
        self._connection.close()
