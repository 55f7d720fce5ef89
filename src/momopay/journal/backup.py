"""Copies of a journal, made while others write to it: always a file of SQLite, which opens as a journal.

The copy is what the database was at one moment. Who was sending then is not alive in the copy, so its rows in SENDING
read as UNKNOWN there.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Final
from uuid import uuid4

from sqlalchemy import URL, Connection, create_engine, insert, select

from momopay.errors import RequestValidationError
from momopay.journal.database import Database, in_use
from momopay.journal.schema import metadata

_LONGEST_BACKUP: Final = 3600.0  # seconds
_ROWS_AT_ONCE: Final = 1000


def back_up(database: Database, path: Path) -> None:
    """Do what `Journal.backup` promises. If it fails, nothing is left at the path."""
    with in_use(_LONGEST_BACKUP):
        if path.exists():
            raise RequestValidationError({"path": "exists already, and a backup overwrites nothing"})
        temporary = path.with_name(f"{path.name}.{uuid4().hex}.tmp")
        os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        try:
            with database.connection(seconds=_LONGEST_BACKUP) as connection:
                if connection.dialect.name == "sqlite":
                    # One reading transaction, which nobody who writes waits for.
                    connection.exec_driver_sql("VACUUM INTO ?", (str(temporary),))
                else:
                    _export(connection, temporary)
            _sync(temporary)
            temporary.rename(path)
            _sync(path.parent)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise


def _export(source: Connection, path: Path) -> None:
    """Copy a snapshot of a server's tables into a new journal in a file."""
    engine = create_engine(URL.create("sqlite", database=str(path)), isolation_level="AUTOCOMMIT", hide_parameters=True)
    source = source.execution_options(isolation_level="REPEATABLE READ", stream_results=True)
    try:
        with source.begin(), engine.connect() as copy:
            copy.exec_driver_sql("PRAGMA journal_mode=MEMORY").close()  # no file beside it; it is synced at the end
            copy.exec_driver_sql("BEGIN")
            metadata.create_all(copy)
            for table in metadata.sorted_tables:
                rows = source.execute(select(table)).mappings()
                for page in rows.partitions(_ROWS_AT_ONCE):
                    copy.execute(insert(table), [dict(row) for row in page])
            copy.exec_driver_sql("COMMIT")
    finally:
        engine.dispose()


def _sync(path: Path) -> None:
    """Return once a file, or the names in a folder, are on disk."""
    # Windows opens no folders.
    with suppress(PermissionError):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
