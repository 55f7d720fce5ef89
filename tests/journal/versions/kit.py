"""Databases of earlier versions, as the code of those versions made them."""

from __future__ import annotations

import hashlib
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from sqlalchemy import Connection, create_engine, make_url

from momopay.journal.structure import columns_of, indexes_of
from momopay.journal.upgrade import VERSION

EARLIER: Final = range(1, VERSION)


@contextmanager
def connected(url: str) -> Generator[Connection]:
    """Yield a connection to a database that does not know of a journal. Each statement commits by itself."""
    engine = create_engine(make_url(url), isolation_level="AUTOCOMMIT")
    try:
        with engine.connect() as connection:
            yield connection
    finally:
        engine.dispose()


def structure_of(connection: Connection) -> dict[str, str]:
    """Return what tables and indexes a database has."""
    return {**columns_of(connection), **indexes_of(connection)}


def fingerprint(path: Path) -> str:
    """Return a number that shows whether a file was changed."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def load(url: str, version: int) -> None:
    """Make the database of a version, with payments in every state."""
    with connected(url) as connection:
        path = Path(__file__).with_name(f"{version}.{connection.dialect.name}.sql")
        for statement in path.read_text().split(";\n"):
            if statement.strip():
                connection.exec_driver_sql(statement)
