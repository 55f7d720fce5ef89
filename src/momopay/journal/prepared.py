"""Statements that every payment executes, in the form that the driver takes.

SQLAlchemy writes the SQL of each, once for a dialect, and its pool keeps the connections. Its `Connection` is left out:
the objects for its transaction and its result take six times as long as SQLite takes for a row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from sqlalchemy import ClauseElement, Engine, PoolProxiedConnection
from sqlalchemy.exc import DBAPIError


class Result(NamedTuple):
    """What a statement returned."""

    rows: list[dict[str, Any]]
    rowcount: int
    """How many rows it found or changed."""


class _Compiled(NamedTuple):
    text: str
    constants: Mapping[str, object]
    order: tuple[str, ...] | None
    """The names of the parameters, where the driver takes them by position."""


class Prepared:
    """One statement, which all its callers execute with values of the same names.

    Args:
        statement: The statement, or one for each dialect by its name. None of its columns needs SQLAlchemy to convert
            values.
    """

    def __init__(self, statement: ClauseElement | Mapping[str, ClauseElement]) -> None:
        self._statement = statement
        self._compiled: dict[str, _Compiled] = {}

    def execute(
        self, engine: Engine, values: Mapping[str, object], before: Callable[[Any], object] | None = None
    ) -> Result:
        """Execute the statement on a connection of the pool, where it commits by itself.

        `before` is called with the driver's cursor. Raises SQLAlchemy's errors.
        """
        dialect = engine.dialect
        text, constants, order = self._compiled.get(dialect.name) or self._compile(engine, values)
        given = {**constants, **values}
        connection: PoolProxiedConnection | None = None
        try:
            connection = engine.raw_connection()
            cursor = connection.cursor()
            if before is not None:
                before(cursor)
            cursor.execute(text, given if order is None else tuple([given[name] for name in order]))
            names = [column[0] for column in cursor.description or ()]
            # All rows, and the cursor closed: SQLite commits a statement only then.
            rows = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()] if names else []
            result = Result(rows, cursor.rowcount)
            cursor.close()
            connection.close()  # back to the pool
        except BaseException as error:
            driver = dialect.loaded_dbapi.Error
            inner: Any = None if connection is None else connection.dbapi_connection
            if connection is not None and inner is not None:  # else it went back to the pool before
                # A statement that the database refused leaves a connection that works. After anything else its state is
                # not known.
                if isinstance(error, driver) and not dialect.is_disconnect(error, inner, None):
                    connection.close()
                else:
                    connection.invalidate()
            if isinstance(error, driver):
                raise DBAPIError.instance(text, None, error, driver, hide_parameters=True, dialect=dialect) from error
            raise
        return result

    def _compile(self, engine: Engine, values: Mapping[str, object]) -> _Compiled:
        dialect = engine.dialect
        statement = self._statement
        if isinstance(statement, Mapping):
            statement = statement[dialect.name]
        compiled: Any = statement.compile(dialect=dialect, column_keys=list(values))
        order = tuple(compiled.positiontup) if compiled.positional else None
        # What the statement itself states as a value, such as a state that it expects, is a parameter too.
        constants = {name: value for name, value in compiled.params.items() if name not in values}
        new = self._compiled[dialect.name] = _Compiled(compiled.string, constants, order)
        return new
