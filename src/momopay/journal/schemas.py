"""In which schema of a PostgreSQL database the journal's tables are.

They are in one of their own, so that tools which compare a project's schema with its models, such as Alembic, do not
see them: such a tool proposes to drop what it does not know.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import URL, Connection

from momopay.errors import ConfigurationError

DEFAULT: Final = "momopay"

_RESET: Final = "SELECT set_config('search_path', reset_val, true) FROM pg_settings WHERE name = 'search_path'"
_EXISTS: Final = "SELECT count(*) FROM pg_namespace WHERE nspname = %s"
_HAS_JOURNAL: Final = """
    SELECT count(*) FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
    WHERE relname = 'momopay_journal' AND relkind IN ('r', 'p', 'v') AND nspname = %s"""
_OF_SEARCH_PATH: Final = """
    SELECT nspname FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
    WHERE relname = 'momopay_journal' AND relkind IN ('r', 'p', 'v') AND pg_table_is_visible(pg_class.oid)"""


class Schemas:
    """The schema that a journal's URL asks for: by its option ``schema``, or by a search path that it sets itself."""

    def __init__(self, url: URL) -> None:
        given = url.query.get("schema")
        if not (given is None or isinstance(given, str)):
            raise ConfigurationError("the journal's URL has the option schema twice")
        if given is None and "search_path" in str(url.query.get("options", "")):
            given = ""
        self.wanted: str | None = given
        """The name; "" for the connection's own search path; None to look for the tables."""

    def search_path(self, connection: Connection, *, create: bool) -> str | None:
        """Return the search path in which the tables are, or are to be created; None for the connection's own.

        Create the schema if it is to be used and does not exist, and `create` is true.
        """
        connection.exec_driver_sql(_RESET)  # an earlier use may have set it
        name = DEFAULT if self.wanted is None else self.wanted
        if not name:
            return None
        if self.wanted is None:
            # Where the first version made them, or where a person moved them.
            visible = connection.exec_driver_sql(_OF_SEARCH_PATH).scalar()
            is_elsewhere = visible not in {None, DEFAULT}
            if is_elsewhere and connection.exec_driver_sql(_HAS_JOURNAL, (DEFAULT,)).scalar_one():
                raise ConfigurationError(
                    f"the database has two journals, in the schemas {DEFAULT} and {visible}; nothing was sent. Find out"
                    f" which one knows your payments, and add ?schema={DEFAULT} or ?schema={visible} to the URL"
                )
            if visible is not None:
                return None
        quoted = '"' + name.replace('"', '""') + '"'
        if create and not connection.exec_driver_sql(_EXISTS, (name,)).scalar_one():
            connection.exec_driver_sql(f"CREATE SCHEMA {quoted}".replace("%", "%%"))
        return quoted
