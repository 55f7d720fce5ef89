"""What is kept of a journal, and what is not: copies of the whole database, and the removal of phones.

A copy is always a SQLite file that opens as a journal. It is a snapshot, in which no sender is alive: a row that was in
SENDING reads as UNKNOWN.
"""

from __future__ import annotations

import hmac
import logging
import os
import sys
from datetime import datetime
from pathlib import Path
from typing import Final
from uuid import uuid4

from sqlalchemy import URL, Connection, bindparam, create_engine, delete, insert, select, update

from momopay.errors import JournalError, RequestValidationError
from momopay.journal import history
from momopay.journal.database import Database, change
from momopay.journal.entries import ANONYMISED, MAY_BE_SENT, HistoryKind, JournalEntry, JournalState
from momopay.journal.schema import PAYMENT, metadata, payments, transactions
from momopay.journal.sharing import OpenDatabase
from momopay.journal.statements import AS_READ, IS_ROW, IS_TRANSACTION
from momopay.journal.store import Store
from momopay.journal.upgrade import upgrade

logger: logging.Logger = logging.getLogger("momopay")

_LONGEST_BACKUP: Final = 3600.0  # seconds
_ROWS_AT_ONCE: Final = 1000  # rows of a table that are copied by one statement
_ANONYMISE: Final = (
    update(payments)
    .where(IS_ROW, AS_READ)
    .values(
        phone=bindparam("new_phone"),
        metadata=None,
        # Whoever knows the other fields of a key could try all phones until it fits.
        idempotency_key=None,
        key_since=None,
        search_after=None,  # a search without the phone would match other payments
        revision=PAYMENT.revision + 1,
    )
)
_ANONYMISE_TRANSACTION: Final = update(transactions).where(IS_TRANSACTION).values(phone=bindparam("new_phone"))


def back_up(database: OpenDatabase, path: Path) -> None:
    """Copy the database into a new file; see `Journal.backup`. A failure leaves nothing at the path."""
    if "\0" in str(path):
        raise RequestValidationError({"path": "has a NUL character, which no file's name can have"})
    with database.connection(seconds=_LONGEST_BACKUP) as connection:
        if path.exists():
            raise RequestValidationError({"path": "exists already, and a backup overwrites nothing"})
        temporary = path.with_name(f"{path.name}.{uuid4().hex}.tmp")
        os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        try:
            if connection.dialect.name == "sqlite":
                # A single read transaction, which blocks no writer.
                connection.exec_driver_sql("VACUUM INTO ?", (str(temporary),))
            else:
                _export(database.shared, connection, temporary)
            _sync(temporary)
            temporary.rename(path)
            _sync(path.parent)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise


def _export(database: Database, source: Connection, path: Path) -> None:
    """Copy a snapshot of the server's tables into a new SQLite file."""
    engine = create_engine(URL.create("sqlite", database=str(path)), isolation_level="AUTOCOMMIT", hide_parameters=True)
    source = source.execution_options(isolation_level="REPEATABLE READ", stream_results=True)
    try:
        with engine.connect() as copy:
            copy.exec_driver_sql("PRAGMA journal_mode=MEMORY").close()  # no second file; `back_up` syncs the copy
            copy.exec_driver_sql("BEGIN")
            upgrade(copy, 0)
            with source.begin():
                database.set_search_path(source)
                for table in metadata.sorted_tables:
                    copy.execute(delete(table))  # the versions of the copy, which are the source's
                    rows = source.execute(select(table)).mappings()
                    for page in rows.partitions(_ROWS_AT_ONCE):
                        copy.execute(insert(table), [dict(row) for row in page])
            copy.exec_driver_sql("COMMIT")  # slow for a large copy: the server would end an idle transaction
    finally:
        engine.dispose()


def _sync(path: Path) -> None:
    """Flush a file, or the names in a folder, to disk."""
    if path.is_dir():
        if sys.platform == "win32":
            return  # which opens no folder, and keeps names without it
        flags = os.O_RDONLY
    else:
        flags = os.O_RDWR  # Windows flushes only what may be written
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def anonymise(store: Store, before: datetime, secret: bytes | None) -> int:
    """Remove or hash the phones of the entries that ended before; return the number of changed entries."""
    changed = 0
    for page in store.pages(until=before):
        with store.database.transaction() as connection:
            due = [each for each in page if not each.is_anonymised and _ended_before(each, before)]
            # As a sweep does, whatever order of texts the database has: so neither waits for the other in a circle.
            store.lock_all(connection, due)
            changed += sum(_anonymise(connection, store, each, secret) for each in due)
    try:
        with store.database.connection() as connection:
            stays = store.database.shared.clear(connection)
    except JournalError as error:
        stays = f"in the journal's files, which could not be written anew: {error}. Anonymise again"
    if stays:
        logger.error("the rows have no phones any more, but those removed may still be readable %s", stays)
    return changed


def _anonymise(connection: Connection, store: Store, entry: JournalEntry, secret: bytes | None) -> bool:
    as_read = store.values(entry, the_revision=entry.revision)
    # If the row has changed, the payment may be sent again, which needs the phone.
    if not change(connection, _ANONYMISE, as_read | {"new_phone": _anonymous(entry.phone, secret)}):
        return False
    for each in entry.transactions:
        new_phone = _anonymous(each.phone, secret)
        values = store.values(entry, the_transaction_id=each.transaction_id, new_phone=new_phone)
        change(connection, _ANONYMISE_TRANSACTION, values)
    history.add(connection, store.account, entry, [(HistoryKind.ANONYMISED, None, None)])
    return True


def _ended_before(entry: JournalEntry, before: datetime) -> bool:
    if any(each.is_open for each in entry.transactions):
        return False
    if entry.state is JournalState.ACCEPTED and entry.has_settled:
        return (entry.ended_at or entry.sent_at) < before
    return entry.state in MAY_BE_SENT and entry.sent_at < before


def _anonymous(phone: str, secret: bytes | None) -> str:
    return "" if secret is None else ANONYMISED + hmac.new(secret, phone.encode(), "sha256").hexdigest()
