"""Copies a journal while other processes write to it. The copy is always a SQLite file that opens as a journal.

It is a snapshot, in which no sender is alive: a row that was in SENDING reads as UNKNOWN.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Final
from uuid import uuid4

from sqlalchemy import URL, Connection, create_engine, insert, select

from momopay.errors import RequestValidationError
from momopay.journal.database import Database
from momopay.journal.schema import metadata

_LONGEST_BACKUP: Final = 3600.0  # seconds
_ROWS_AT_ONCE: Final = 1000


def back_up(database: Database, path: Path) -> None:
    """Copy the database into a new file; see `Journal.backup`. A failure leaves nothing at the path."""
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
                _export(connection, temporary)
            _sync(temporary)
            temporary.rename(path)
            _sync(path.parent)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise


def _export(source: Connection, path: Path) -> None:
    """Copy a snapshot of the server's tables into a new SQLite file."""
    engine = create_engine(URL.create("sqlite", database=str(path)), isolation_level="AUTOCOMMIT", hide_parameters=True)
    source = source.execution_options(isolation_level="REPEATABLE READ", stream_results=True)
    try:
        with engine.connect() as copy:
            copy.exec_driver_sql("PRAGMA journal_mode=MEMORY").close()  # no second file; `back_up` syncs the copy
            copy.exec_driver_sql("BEGIN")
            metadata.create_all(copy)
            with source.begin():
                for table in metadata.sorted_tables:
                    rows = source.execute(select(table)).mappings()
                    for page in rows.partitions(_ROWS_AT_ONCE):
                        copy.execute(insert(table), [dict(row) for row in page])
            copy.exec_driver_sql("COMMIT")  # slow for a large copy: the server would end an idle transaction
    finally:
        engine.dispose()


def _sync(path: Path) -> None:
    """Flush a file, or the names in a folder, to disk."""
    with suppress(PermissionError):  # Windows cannot open a folder
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
