"""Why a PostgreSQL database cannot be opened, and what to do about it, word for word.

The server says why in words that depend on its language, and before there is a connection in words alone. A reason that
is not recognised is shown as the server gave it, with a remedy for all of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final

import psycopg
from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from momopay.errors import ConfigurationError, JournalError
from momopay.journal import pooling
from momopay.journal.database import SERVER_IS_FULL
from momopay.journal.schema import metadata

_ANY: Final = "check host, port, user and database in the URL with psql, which takes it without +psycopg"
# By the server's or libpq's words, while it connects.
_WHILE_CONNECTING: Final[Sequence[tuple[str, str]]] = (
    (r'database "(.+?)" does not exist', 'create it, CREATE DATABASE "{0}";, or correct the name in the URL'),
    (r"no such database: (\S+)", 'name "{0}" in pgbouncer.ini under [databases], or correct the name in the URL'),
    (
        r'role "(.+?)" does not exist',
        'create it, CREATE ROLE "{0}" LOGIN PASSWORD ...;, or correct the user in the URL',
    ),
    (r"no such user", "name the user in PgBouncer's auth_file, or correct it in the URL"),
    (r"password authentication failed|SASL authentication failed", "correct the user or the password in the URL"),
    (r"no password supplied", "put the password into the URL, postgresql+psycopg://user:password@host/database"),
    (
        r'permission denied for database "(.+?)"',
        'run as its owner: GRANT CONNECT ON DATABASE "{0}" TO the role in the URL;',
    ),
    (
        r"pg_hba\.conf.*(no encryption|SSL off)|SSL (connection )?is required|TLS required",
        "add ?sslmode=require to the URL if the server takes only TLS; else its pg_hba.conf must let this user in",
    ),
    (r"pg_hba\.conf", "the server's pg_hba.conf must allow this host, user and database"),
    (r"does not support SSL", "the server has no TLS: take sslmode out of the URL, or set TLS up"),
    (r"certificate|sslrootcert|SSL error", "check sslmode and sslrootcert in the URL, and the server's certificate"),
    (
        r"translate host name|resolve host|Name or service not known|nodename nor servname",
        "correct the host in the URL, or this machine's DNS",
    ),
    (
        r"refused|No route|unreachable|timeout expired|timed out|No such file or directory|Network is down",
        "check that the server runs, host and port in the URL, and the firewall between",
    ),
    (
        "|".join((*SERVER_IS_FULL, "no more connections allowed")),
        "raise max_connections of the server, or let fewer processes use it: each takes up to 15 connections",
    ),
    (r"starting up|shutting down|in recovery mode|not yet accepting", "wait until the server has started"),
    (r"unsupported startup parameter: (\S+)", "add {0} to ignore_startup_parameters in pgbouncer.ini"),
)
_READ_ONLY: Final = "25006"
_NO_RIGHT: Final = "42501"
_NO_SCHEMA: Final = "3F000"

# The schema of the journal's tables, or else the one where they would be created, and what is in it. From the catalog,
# which everybody may read: a schema that the role may not use is missing from its search path.
_WHERE: Final = """
    SELECT quote_ident(current_user), quote_ident(nspname),
        ARRAY(SELECT format('%%I.%%I', nspname, relname) FROM pg_class
            WHERE relnamespace = namespace.oid AND relkind IN ('r', 'p') AND relname = ANY(%s) ORDER BY 1),
        ARRAY(SELECT format('%%I.%%I', nspname, relname) FROM pg_class
            WHERE relnamespace = namespace.oid AND relkind = 'S' AND relname LIKE 'momopay\\_%%' ORDER BY 1)
    FROM unnest(string_to_array(current_setting('search_path'), ',')) WITH ORDINALITY AS path(name, place)
    JOIN pg_namespace AS namespace ON nspname = replace(btrim(name, ' "'), '$user', current_user)
    ORDER BY place, EXISTS (SELECT FROM pg_class WHERE relnamespace = namespace.oid AND relname = 'momopay_journal')
    LIMIT 1"""
_MAY_WRITE: Final = """
    SELECT current_setting('transaction_read_only') = 'off', bool_and(CASE relkind
        WHEN 'S' THEN has_sequence_privilege(oid, 'USAGE')
        ELSE has_table_privilege(oid, 'SELECT') AND has_table_privilege(oid, 'INSERT')
            AND has_table_privilege(oid, 'UPDATE')
            AND (relname <> 'momopay_transactions' OR has_table_privilege(oid, 'DELETE')) END)
    FROM pg_class WHERE relnamespace = (SELECT relnamespace FROM pg_class
            WHERE relname = 'momopay_journal' AND pg_table_is_visible(oid))
        AND (relkind IN ('r', 'p') AND relname = ANY(%s) OR relkind = 'S' AND relname = 'momopay_history_number_seq')"""


def explain(
    error: JournalError, connect: Callable[[], AbstractContextManager[Connection]]
) -> ConfigurationError | None:
    """Return the refusal for an error of the first use; None if the database works, and only this use failed."""
    cause = error.__cause__
    reason: Any = cause.orig if isinstance(cause, DBAPIError) else cause
    if isinstance(reason, TimeoutError):
        return _refused("it did not answer in time", "check that the server runs, host and port, and the firewall")
    if not isinstance(reason, psycopg.Error):
        return None
    problem = str(reason).partition("\n")[0]
    if (refusal := pooling.explain(reason)) is not None:
        return refusal
    if reason.sqlstate == _READ_ONLY:
        return read_only()
    if reason.sqlstate in {_NO_RIGHT, _NO_SCHEMA}:
        return _refused(problem, _grants(problem, connect))
    is_connecting = reason.sqlstate is None and isinstance(reason, psycopg.OperationalError)
    return _refused(problem, _remedy_while_connecting(str(reason))) if is_connecting else None


def why_not_writable(connection: Connection) -> ConfigurationError | None:
    """Return why this role cannot write into the journal's tables, with a remedy; None if it can."""
    is_writable, has_rights = connection.exec_driver_sql(_MAY_WRITE, (_tables(),)).one()
    if not is_writable:
        return read_only()
    if has_rights is False:  # None: the tables are not there
        return _refused("a right to write into its tables is missing", _grants_in(connection))
    return None


def read_only() -> ConfigurationError:
    """Return the refusal of a server, a database or a role that takes no writes."""
    return _refused(
        "it is read-only",
        "give the URL of the primary server, or add ?target_session_attrs=read-write to one that names several hosts;"
        " where default_transaction_read_only is set for the database or the role, reset it",
    )


def _refused(problem: str, remedy: str) -> ConfigurationError:
    return ConfigurationError(f"the journal's database cannot be used: {problem}; nothing was sent. Remedy: {remedy}")


def _remedy_while_connecting(problem: str) -> str:
    for pattern, remedy in _WHILE_CONNECTING:
        found = re.search(pattern, problem, re.IGNORECASE | re.DOTALL)
        if found is not None:
            return remedy.format(*found.groups())
    return _ANY


def _grants(problem: str, connect: Callable[[], AbstractContextManager[Connection]]) -> str:
    try:
        with connect() as connection:
            if "for database" in problem:  # to create a schema
                role, database = connection.exec_driver_sql(
                    "SELECT quote_ident(current_user), quote_ident(current_database())"
                ).one()
                return f"run as the owner of the database: GRANT CREATE ON DATABASE {database} TO {role};"
            return _grants_in(connection)
    except (JournalError, SQLAlchemyError):
        return _ANY


def _grants_in(connection: Connection) -> str:
    """Return the statements that give the role of a connection all rights that the journal needs."""
    found = connection.exec_driver_sql(_WHERE, (_tables(),)).one_or_none()
    if found is None:
        return "name a schema that exists in the search_path of the role"
    role, schema, tables, sequences = found
    if not tables:
        return f"run as the owner of the schema: GRANT USAGE, CREATE ON SCHEMA {schema} TO {role};"
    grants = [
        f"GRANT USAGE ON SCHEMA {schema} TO {role};",
        f"GRANT SELECT, INSERT, UPDATE, DELETE ON {', '.join(tables)} TO {role};",
        *(f"GRANT USAGE ON SEQUENCE {each} TO {role};" for each in sequences),
    ]
    return f"run as the owner of the tables: {' '.join(grants)}"


def _tables() -> list[str]:
    return [table.name for table in metadata.sorted_tables]
