"""The versions of the journal's tables, and the upgrade of a journal to the newest one.

The folder ``versions`` has the SQL of each version, for each database: what it adds to the version before. These files
are frozen once a release has them, because journals were made by them; they are not derived from
`momopay.journal.schema`, which changes. A new journal is made by all of them in order, so there is one way to get a
table, and each journal has passed through it.

Processes of two versions share a journal while an application is deployed. So a version only adds, and the row of
`schema.versions` says the oldest version whose processes may still write. A process reads it when it first uses the
journal.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from sqlalchemy import Connection, func, select

from momopay.errors import ConfigurationError
from momopay.journal import schema

VERSION: Final = 2
"""The version of the tables that this momopay reads and writes."""

_FILES: Final = Path(__file__).with_name("versions")


class NoJournalError(ConfigurationError):
    """The database has no journal, and none may be created."""


def statements(version: int, dialect: str) -> list[str]:
    """Return the statements by which the tables come from the version before to this one."""
    text = (_FILES / f"{version}.{dialect}.sql").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if not line.startswith("--")]
    return [each.strip() for each in "\n".join(lines).split(";\n") if each.strip(" \n;")]


def creation(dialect: str) -> list[str]:
    """Return the statements that create the newest tables."""
    return [each for version in range(1, VERSION + 1) for each in statements(version, dialect)]


def version_in(connection: Connection, names: str) -> int:
    """Return the version of the tables that a database has, 0 if there are none; `names` lists its tables.

    Raise ConfigurationError if they are older than version 1, or newer and do not let this version write.
    """
    tables = set(connection.exec_driver_sql(names).scalars())
    if schema.journal.name not in tables:  # a user's own table may begin with "momopay_"
        return 0
    # Compare the columns first, as those of an older journal differ.
    columns = list(connection.exec_driver_sql("SELECT * FROM momopay_journal WHERE 1 = 0").keys())
    if columns != schema.journal.c.keys():
        raise ConfigurationError(
            "the database has a journal of an earlier version than 1, made by a momopay that was never released, which"
            " cannot be upgraded: give another database only if none of its payments must be remembered"
        )
    found: int = connection.execute(select(func.max(schema.journal.c.version))).scalar_one()
    if schema.versions.name not in tables and found <= VERSION:
        return 1  # or a copy that a process of version 1 made of a newer journal, without what it does not know
    if found > VERSION:
        oldest = select(schema.versions.c.oldest_writer).where(schema.versions.c.version == found)
        may_write = schema.versions.name in tables and connection.scalar(oldest)
        if not may_write or may_write > VERSION:
            raise ConfigurationError(
                f"the database has a journal of version {found}, which this momopay, of version {VERSION}, must not"
                " write; nothing was sent. Update momopay on this machine: pip install -U momopay"
            )
    return found


def upgrade(connection: Connection, found: int) -> None:
    """Bring the tables from a version to this one, within the caller's transaction. Version 0 has no tables."""
    for version in range(found + 1, VERSION + 1):
        for statement in statements(version, connection.dialect.name):
            connection.exec_driver_sql(statement)


def set_up(connection: Connection, names: str, *, create: bool) -> int:
    """Create the tables if there are none, or upgrade them, in the caller's transaction.

    Return the version that was found. Raise ConfigurationError if there are none and `create` is false, or as
    `version_in`.
    """
    found = version_in(connection, names)
    if not found and not create:
        raise NoJournalError(
            "the database has no journal, and create=False creates none: check the URL, or leave create out"
        )
    upgrade(connection, found)
    return found
