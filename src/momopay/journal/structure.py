"""What tables and indexes a database has, compared with what the journal's versions make.

A journal may lose an index, for example to a restore that left indexes out, or keep one with the condition of an
earlier version. The statements that need it then read whole tables, and nothing else shows that.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping
from typing import Final

from sqlalchemy import Connection, create_engine
from sqlalchemy.exc import SQLAlchemyError

from momopay.journal.upgrade import VERSION, creation, upgrade

logger: logging.Logger = logging.getLogger("momopay")

_COLUMNS: Final = {
    "sqlite": "SELECT m.name, c.name || ' ' || c.type || ' ' || c.\"notnull\" || ' ' || coalesce(c.dflt_value, '')"
    " || ' ' || c.pk FROM sqlite_master m, pragma_table_info(m.name) c WHERE m.type = 'table'",
    "postgresql": "SELECT c.relname, a.attname || ' ' || format_type(a.atttypid, a.atttypmod) || ' ' || a.attnotnull"
    " || ' ' || coalesce(pg_get_expr(d.adbin, d.adrelid), '') || ' ' || coalesce(array_position(p.conkey, a.attnum), 0)"
    " FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped"
    " LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum"
    " LEFT JOIN pg_constraint p ON p.conrelid = c.oid AND p.contype = 'p'"
    " WHERE c.relkind IN ('r', 'p') AND starts_with(c.relname, 'momopay_') AND pg_table_is_visible(c.oid)",
}
# An index that PostgreSQL could not build to the end is there, and not used.
_INDEXES: Final = {
    "sqlite": "SELECT name, sql FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL",
    "postgresql": "SELECT c.relname, pg_get_indexdef(c.oid) || CASE WHEN i.indisvalid THEN '' ELSE ' INVALID' END"
    " FROM pg_class c JOIN pg_index i ON i.indexrelid = c.oid"
    " WHERE NOT i.indisprimary AND starts_with(c.relname, 'momopay_') AND pg_table_is_visible(c.oid)",
}
_PREFIX: Final = "momopay_"
_SCHEMA: Final = re.compile(r"(?:\"(?:[^\"]|\"\")+\"|\w+)\.(?=momopay_)")


def columns_of(connection: Connection) -> Mapping[str, str]:
    """Return the columns of each of the journal's tables, by the table's name."""
    rows: dict[str, list[str]] = {}
    for table, column in connection.exec_driver_sql(_COLUMNS[connection.dialect.name]):
        rows.setdefault(table, []).append(column)
    return _own((name, ", ".join(sorted(columns))) for name, columns in rows.items())


def indexes_of(connection: Connection) -> Mapping[str, str]:
    """Return the definition of each of the journal's indexes, by its name."""
    return _own(tuple(row) for row in connection.exec_driver_sql(_INDEXES[connection.dialect.name]))


def _own(rows: Iterable[tuple[str, ...]]) -> Mapping[str, str]:
    # Without line breaks, and without the schema, which PostgreSQL shows if it is not in the search path.
    return {name: " ".join(_SCHEMA.sub("", text).split()) for name, text in rows if name.startswith(_PREFIX)}


def differing_indexes(connection: Connection) -> Mapping[str, str]:
    """Return the statements that make those of the journal's indexes that are missing or different, by their names.

    Call it in a transaction. What else the database has is not looked at. A newer journal is not compared.
    """
    dialect = connection.dialect.name
    if connection.exec_driver_sql("SELECT version FROM momopay_journal").scalar() != VERSION:
        return {}
    found = indexes_of(connection)
    if dialect == "sqlite":
        engine = create_engine("sqlite://", isolation_level="AUTOCOMMIT")
        with engine.connect() as memory:
            upgrade(memory, 0)
            expected = indexes_of(memory)
        engine.dispose()
    else:
        connection.exec_driver_sql("SAVEPOINT momopay_comparison")
        try:
            # The server shows a definition in its own words, so let it make the same tables, as temporary ones.
            connection.exec_driver_sql("SET LOCAL search_path = pg_temp")
            upgrade(connection, 0)
            expected = indexes_of(connection)
        except SQLAlchemyError as error:
            logger.warning("the journal's indexes were not compared: %s", str(error).partition("\n")[0])
            return {}
        finally:
            connection.exec_driver_sql("ROLLBACK TO SAVEPOINT momopay_comparison")
    made_by = {each.split()[2]: each for each in creation(dialect) if each.startswith("CREATE INDEX")}
    return {name: made_by[name] for name, text in expected.items() if found.get(name) != text}


def repair_indexes(connection: Connection) -> list[str]:
    """Make the indexes that are missing or different, and return their names. Call it in a transaction."""
    differing = differing_indexes(connection)
    for name, statement in sorted(differing.items()):
        connection.exec_driver_sql(f"DROP INDEX IF EXISTS {name}")
        connection.exec_driver_sql(statement)
    return sorted(differing)
