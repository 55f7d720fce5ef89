"""Moves a whole journal to another database. At every moment, at most one of the two can be paid from.

A journal is closed while it must not be used: its marks are below 0, which every call reads first, and triggers refuse
each write, also of processes that have it open and of earlier versions. The steps of a move are transactions:

1. The target, in which nothing was paid, is claimed: it is closed.
2. The source is closed, unless a call is sending.
3. All rows are copied to the target and compared, and the target is opened.

A process that dies in between leaves the journal where it was, or closed, and the next run goes on. Undoing a move
takes the same steps backwards. Rows of `schema.moves` say which move a database was part of.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final
from uuid import uuid4

from sqlalchemy import Connection, Table, delete, func, insert, select, update

from momopay.errors import ConfigurationError, JournalError
from momopay.journal.database import bounded
from momopay.journal.entries import JournalState
from momopay.journal.leases import LeaseHolder
from momopay.journal.schema import (
    PAYMENT,
    accounts,
    deliveries,
    history,
    journal,
    metadata,
    moves,
    payments,
    transactions,
    versions,
)
from momopay.journal.sharing import OpenDatabase
from momopay.journal.upgrade import VERSION, set_up

_LONGEST: Final = 3600.0  # seconds
_REACH_TIMEOUT: Final = 10.0  # seconds to find out whether a database can be reached
_AT_ONCE: Final = 1000  # rows
# What is of a database itself, and not of the journal in it.
_COPIED: Final = [table for table in metadata.sorted_tables if table not in {moves, versions}]
_MEMORY: Final = (payments, history, deliveries)  # if they have rows, payments were made
# Not the accounts, so that a call that raises their mark reads that the journal is closed, and says why.
_GUARDED: Final = [table.name for table in (payments, transactions, history, deliveries)]
_NEWEST: Final = select(moves).order_by(moves.c.begun_at.desc(), moves.c.id).limit(1)
# The mark of an account is a sum of both, which becomes -1 - sum; a second time, it is what it was.
_FLIP: Final = (
    update(accounts).values(sequence=-accounts.c.sequence),
    update(journal).values(sequence=-1 - journal.c.sequence),
)
_OPEN_FOR_EACH: Final = update(accounts).values(
    sequence=accounts.c.sequence + 2 * select(journal.c.sequence).scalar_subquery() + 1
)
_AGAIN: Final = "run `momopay journal move --from {} --to {}` again, which finishes it, or with --undo"


def move(source: OpenDatabase, target: OpenDatabase) -> str:
    """Move a journal, or finish a move; see `Journal.move_to`."""
    if source.shared is target.shared:
        raise ConfigurationError("source and target are the same database; nothing was changed")
    here, there = source.shared.name, target.shared.name
    with source.transaction(seconds=_LONGEST) as connection:
        _check_version(source, connection)
        found = _newest(connection)
        if not _is_closed(connection):
            identity = uuid4().hex
            _check_nobody_sends(source, connection)
        elif _is_moved_away(found):
            identity = found["id"]
        else:
            raise ConfigurationError(refusal(connection))
    if _claim(target, identity, here):
        _close_source(source, identity, there)
        with target.transaction(seconds=_LONGEST) as connection:
            _lock(connection)
            _open(connection, source)
            _note(connection, identity, "done_at")
    with source.transaction() as connection:
        _note(connection, identity, "done_at")
    return f"moved the journal from {here} to {there}: give {there} to every program that pays"


def undo(source: OpenDatabase, target: OpenDatabase) -> str:
    """Open the journal that was moved away again; see `Journal.move_to`."""
    here, there = source.shared.name, target.shared.name
    with source.transaction() as connection:
        found = _newest(connection)
        is_closed, begun = _is_closed(connection), _marks(connection)
    if not (is_closed and _is_moved_away(found)):
        return _unclaim(source, target)
    with target.transaction(seconds=_LONGEST) as connection:
        _lock(connection)
        other = _newest(connection)
        if other.get("id") != found["id"]:
            raise ConfigurationError(f"{there} is not where {here} was moved to, which is {found['other']}")
        if not _is_closed(connection):
            if _marks(connection) != {account: (restored, -1 - mark) for account, (restored, mark) in begun.items()}:
                raise ConfigurationError(
                    f"{there} has begun payments since the move, so it cannot be undone; nothing was changed. To go"
                    f" back, move the journal: momopay journal move --from {there} --to {here}"
                )
            _close(connection, f"the move to this journal was undone; use {here}")
        _note(connection, found["id"], "undone_at")
    with source.transaction(seconds=_LONGEST) as connection:
        _lock(connection)
        # What was recorded there since, such as the end of a payment, comes along.
        _open(connection, target if other["done_at"] else None)
        _note(connection, found["id"], "undone_at")
    return f"undone: {here} is open again, and {there} is closed"


def undo_without(source: OpenDatabase, target: OpenDatabase) -> str:
    """Open the journal that was moved away without its target, which is lost; see `Journal.move_to`."""
    here, there = source.shared.name, target.shared.name
    try:
        with bounded(_REACH_TIMEOUT), target.connection() as connection:
            is_there = bool(_newest(connection))
    except (ConfigurationError, JournalError):
        is_there = False
    if is_there:
        raise ConfigurationError(f"{there} can be reached: leave out --lost, so that nothing is lost")
    with source.transaction() as connection:
        _lock(connection)
        found = _newest(connection)
        if not (_is_closed(connection) and _is_moved_away(found)):
            raise ConfigurationError(f"{here} was not moved away; nothing was changed")
        _unguard(connection)
        # The marks of the accounts stay below 0, until a person accepts each.
        connection.execute(_OPEN_FOR_EACH)
        connection.execute(_FLIP[1])
        _note(connection, found["id"], "undone_at")
    return (
        f"undone without {there}: what was paid there is unknown to {here}, so each account must be accepted. Reconcile"
        f" the days since {found['begun_at'][:10]}, then run momopay journal accept-restored --by NAME"
    )


def refusal(connection: Connection) -> str:
    """Return why nobody may pay from a journal whose mark is below 0."""
    found = _newest(connection)
    other = found.get("other")
    if not found:
        return "the journal's sequence is out of reach: restore it from a backup; nothing was sent"
    if found["place"] == "target" and found["undone_at"]:
        return f"the move of {other} to this journal was undone; nothing was sent. Use {other}"
    if found["place"] == "target":
        finish = _AGAIN.format(other, "THIS")
        return f"the move of {other} to this journal has not been finished; nothing was sent: {finish}"
    if found["undone_at"]:
        return (
            f"this journal was opened again without {other}, to which it had been moved, and does not know what was"
            f" paid there; nothing was sent. Reconcile the days since {found['begun_at'][:10]}, then run momopay"
            " journal accept-restored --by NAME, or call journal.accept_restored(by=...)"
        )
    if not found["done_at"]:
        return (
            f"this journal is being moved to {other}; nothing was sent. If nobody does: {_AGAIN.format('THIS', other)}"
        )
    return f"this journal was moved to {other}; nothing was sent. Use {other}"


def may_be_accepted(connection: Connection) -> bool:
    """Return whether a person may accept a journal whose mark is below 0: it was opened again without its target."""
    found = _newest(connection)
    return found.get("place") == "source" and bool(found["undone_at"])


def _claim(target: OpenDatabase, identity: str, source: str) -> bool:
    """Close the target for a move to it; return False if that move was finished."""
    # In the transaction that creates its tables, so that it is never an open journal.
    with target.shared.opening(create=True) as connection:
        set_up(connection, target.shared.table_names, create=True)
        _check_version(target, connection)
        _lock(connection)
        found = _newest(connection)
        if found.get("id") == identity:
            return not found["done_at"]
        if _is_closed(connection):
            # Another move is not finished; or it is what was moved to the source, and comes back.
            is_free = found["undone_at"] or found["other"] == source
            if not is_free:
                raise ConfigurationError(f"{target.shared.name} cannot be the target: {refusal(connection)}")
        else:
            if any(connection.execute(select(func.count()).select_from(table)).scalar_one() for table in _MEMORY):
                raise ConfigurationError(
                    f"{target.shared.name} holds payments already, and a journal is moved only to an empty one; nothing"
                    " was changed"
                )
            _close(connection, f"the move of {source} to this journal has not been finished")
        begun = {"id": identity, "place": "target", "other": source, "begun_at": _now()}
        connection.execute(insert(moves).values(begun))
        return True


def _close_source(source: OpenDatabase, identity: str, other: str) -> None:
    with source.transaction(seconds=_LONGEST) as connection:
        _lock(connection)
        if _is_closed(connection):
            found = _newest(connection)
            if found["id"] == identity and found["place"] == "source":
                return
            if found["id"] == identity:  # the row of the claim: both URLs lead to one database
                _unguard(connection)
                _flip(connection)
                connection.execute(delete(moves).where(moves.c.id == identity))
                connection.exec_driver_sql("COMMIT")
            raise ConfigurationError("source and target are the same database; nothing was changed")
        _check_nobody_sends(source, connection)
        begun = {"id": identity, "place": "source", "other": other, "begun_at": _now()}
        connection.execute(insert(moves).values(begun))
        _close(connection, f"this journal was moved to {other}")


def _unclaim(source: OpenDatabase, target: OpenDatabase) -> str:
    """Give up a move whose source was not closed yet. The target stays closed: two journals would pay twice."""
    here, there = source.shared.name, target.shared.name
    with target.transaction() as connection:
        _lock(connection)
        found = _newest(connection)
        is_claimed = found.get("place") == "target" and not found["done_at"] and not found["undone_at"]
        if not (is_claimed and _is_closed(connection) and found["other"] == here):
            raise ConfigurationError(f"{here} was not moved to {there}; nothing was changed")
        _note(connection, found["id"], "undone_at")
    return f"undone: {here} was not closed yet, and {there} stays closed"


def _check_version(database: OpenDatabase, connection: Connection) -> None:
    version = connection.execute(select(journal.c.version)).scalar_one()
    if version != VERSION:
        raise ConfigurationError(
            f"{database.shared.name} has a journal of version {version}, of which this momopay does not know all;"
            " nothing was changed. Update momopay on this machine, then move it"
        )


def _check_nobody_sends(database: OpenDatabase, connection: Connection) -> None:
    columns = (PAYMENT[name] for name in ("account", "reference", "state", "claim", "sender", "machine"))
    sending = select(*columns, PAYMENT.lease_seconds, PAYMENT.lease_until).where(PAYMENT.state == JournalState.SENDING)
    rows, ended = LeaseHolder(database).read(connection, sending, ("state", JournalState.SENDING))
    if any(row["claim"] not in ended for row in rows):
        raise ConfigurationError(
            "a call is sending a payment with this journal; nothing was changed. Stop the programs that pay, or try"
            " again in a minute"
        )


def _open(connection: Connection, source: OpenDatabase | None) -> None:
    """Open a closed journal, with the rows of another one, which is closed, too."""
    _unguard(connection)
    if source is not None:
        for table in _COPIED:
            connection.execute(delete(table))
        copied = {table.name: _copy(source, connection, table) for table in _COPIED}
        there = {table.name: _checksum(iter(connection.execute(select(table)).mappings())) for table in _COPIED}
        if there != copied:
            raise JournalError("the copy differs from the journal; nothing was changed")
        if connection.dialect.name == "postgresql":
            number = "SELECT setval('momopay_history_number_seq', coalesce(max(number), 0) + 1, false)"
            connection.exec_driver_sql(f"{number} FROM momopay_history").close()
    _flip(connection)


def _copy(source: OpenDatabase, target: Connection, table: Table) -> tuple[int, int]:
    """Copy the rows of a table, and return their number and checksum."""

    def copied() -> Iterator[Mapping[str, Any]]:
        with source.connection(seconds=_LONGEST) as connection:
            if connection.dialect.name == "postgresql":  # not all rows at once
                connection.execution_options(isolation_level="REPEATABLE READ", stream_results=True)
            with connection.begin():
                source.shared.set_search_path(connection)
                for page in connection.execute(select(table)).mappings().partitions(_AT_ONCE):
                    rows = [dict(row) for row in page]
                    target.execute(insert(table), rows)
                    yield from rows

    return _checksum(copied())


def _checksum(rows: Iterator[Mapping[Any, Any]]) -> tuple[int, int]:
    """Return the number of rows, and a checksum of all of them in any order."""
    number = total = 0
    for row in rows:
        number += 1
        total += int.from_bytes(hashlib.sha256(repr(list(row.items())).encode()).digest(), "big")
    return number, total


def _lock(connection: Connection) -> None:
    """Wait for the payments that are beginning, and keep others out until the transaction ends."""
    connection.execute(select(journal.c.sequence).with_for_update()).close()


def _newest(connection: Connection) -> Mapping[Any, Any]:
    """Return the row of the latest move that a database was part of; empty if there was none."""
    return connection.execute(_NEWEST).mappings().one_or_none() or {}


def _is_moved_away(found: Mapping[Any, Any]) -> bool:
    """Return whether the latest move of a database is one away from it, finished or not, that was not undone."""
    return found.get("place") == "source" and not found["undone_at"]


def _is_closed(connection: Connection) -> bool:
    sequence: int = connection.execute(select(journal.c.sequence)).scalar_one()
    return sequence < 0


def _marks(connection: Connection) -> dict[str, tuple[int, int]]:
    restored, sequence = connection.execute(select(journal.c.restored, journal.c.sequence)).one()
    rows = connection.execute(select(accounts.c.account, accounts.c.restored, accounts.c.sequence))
    return {account: (own + restored, mark + sequence) for account, own, mark in rows}


def _flip(connection: Connection) -> None:
    for statement in _FLIP:
        connection.execute(statement)


def _close(connection: Connection, why: str) -> None:
    _flip(connection)
    text = why.replace("'", "''")
    for table in _GUARDED:
        for statement in _GUARDS[connection.dialect.name]:
            connection.exec_driver_sql(statement.format(table=table, why=text.replace("%", "%%")))


def _unguard(connection: Connection) -> None:
    for table in _GUARDED:
        for statement in _UNGUARDS[connection.dialect.name]:
            connection.exec_driver_sql(statement.format(table=table))


def _note(connection: Connection, identity: str, what: str) -> None:
    """Note that a move was done or undone now, "done_at" or "undone_at", unless that is noted."""
    unset = update(moves).where(moves.c.id == identity, moves.c[what].is_(None))
    connection.execute(unset.values({what: _now()}))


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds")


_EVENTS: Final = ("INSERT", "UPDATE", "DELETE")
_GUARDS: Final = {
    "sqlite": [
        f"CREATE TRIGGER {{table}}_closed_{event} BEFORE {event} ON {{table}} BEGIN SELECT RAISE(ABORT, '{{why}}'); END"
        for event in _EVENTS
    ],
    "postgresql": [
        """CREATE OR REPLACE FUNCTION momopay_closed() RETURNS trigger LANGUAGE plpgsql AS
            $$ BEGIN RAISE EXCEPTION USING MESSAGE = TG_ARGV[0]; END $$""",
        """CREATE TRIGGER momopay_closed BEFORE INSERT OR UPDATE OR DELETE ON {table} FOR EACH STATEMENT
            EXECUTE FUNCTION momopay_closed('{why}')""",
    ],
}
_UNGUARDS: Final = {
    "sqlite": [f"DROP TRIGGER IF EXISTS {{table}}_closed_{event}" for event in _EVENTS],
    "postgresql": ["DROP TRIGGER IF EXISTS momopay_closed ON {table}"],
}
