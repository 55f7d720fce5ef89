"""Creates the journal's tables, and changes those of an older version in place.

Everything is changed in one transaction of the connection that is given, while no other process has one
(`connect_for_setup`). So a process that is killed in the middle leaves the old tables, whole.
"""

from __future__ import annotations

import logging
from typing import Any, Final

from sqlalchemy import (
    Boolean,
    ColumnClause,
    Connection,
    Table,
    case,
    column,
    func,
    insert,
    literal,
    null,
    or_,
    select,
    table,
    text,
    update,
)
from sqlalchemy.schema import CreateIndex, CreateTable

from momopay._redaction import redacted_repr
from momopay.errors import ConfigurationError
from momopay.journal.entries import JournalState
from momopay.journal.schema import (
    VERSION,
    accounts,
    callbacks,
    existing_tables,
    insert_new,
    keys,
    look_alikes,
    metadata,
    payments,
    prompts,
    versions,
)
from momopay.models.enums import FAILURES, TransactionStatus
from momopay.models.references import canonical

logger: logging.Logger = logging.getLogger("momopay")

# Nothing can write to it, as DISTINCT makes the view read-only in PostgreSQL, too (in SQLite every view is). A process
# of version 1 that still runs fails at the row that it writes before it sends; one that starts fails at its index.
# Without the view, its CREATE TABLE IF NOT EXISTS would make the table anew, and everything would be paid again.
_VIEW: Final = """
CREATE VIEW momopay_payouts AS
SELECT DISTINCT reference, amount, phone, body_hash, state, transaction_id, code, sent_at,
    released_at IS NOT NULL AS released, claim, sender, lease_until
FROM momopay_payments WHERE account = 'default' AND kind = 'PAYOUT'
"""


def set_up(connection: Connection, *, create: bool) -> None:
    """Create the tables, or change them to this version; raise ConfigurationError if they are of another one."""
    tables = existing_tables(connection)
    found = connection.scalar(select(versions.c.version)) if versions.name in tables else None
    if found == VERSION:
        return
    if found is None and tables:
        raise ConfigurationError(
            "the database has a journal's tables, but not its version: it was copied or created only in part."
            " Restore it from a backup"
        )
    if found not in {None, 1}:
        raise ConfigurationError(f"the journal has version {found}, and this momopay reads version {VERSION}")
    if found is None and not create:
        raise ConfigurationError("the database has no journal, and create=False creates none")
    if connection.dialect.name == "sqlite":
        connection.exec_driver_sql("BEGIN IMMEDIATE")  # the driver begins no transaction for DDL
    if found == 1:
        _migrate_from_1(connection)
    else:
        _create(connection, *metadata.sorted_tables)
        connection.execute(text(_VIEW))
        connection.execute(versions.insert().values(version=VERSION))


def _create(connection: Connection, *tables: Table) -> None:
    for each in tables:
        connection.execute(CreateTable(each))
        for index in each.indexes:
            connection.execute(CreateIndex(index))


# Version 1 had no accounts and no collections.
_COLUMNS_1: Final = (
    *("reference", "amount", "phone", "body_hash", "state", "transaction_id", "code", "sent_at"),
    *("claim", "sender", "lease_until"),
)
_payouts_1: Final = table("momopay_payouts", *map(column, _COLUMNS_1), column("released", Boolean))
_ATTEMPTED: Final = (JournalState.ACCEPTED, JournalState.UNKNOWN, JournalState.SENDING, JournalState.REFUSED)


def _migrate_from_1(connection: Connection) -> None:
    _make_transactions_unique(connection)
    _create(connection, payments, prompts, accounts, keys, look_alikes)
    old = _payouts_1.c
    copied = {name: old[name] for name in _COLUMNS_1} | {
        "account": literal("default"),
        "kind": literal("PAYOUT"),
        "attempts": case((or_(old.state.in_(_ATTEMPTED), old.released), 1), else_=0),
        "created_at": old.sent_at,
        "released_at": case((old.released, old.sent_at), else_=null()),
        "released_by": case((old.released, literal("version 1")), else_=null()),
    }
    connection.execute(insert(payments).from_select(list(copied), select(*copied.values())))
    _list_look_alikes(connection)
    connection.execute(text("DROP TABLE momopay_payouts"))
    connection.execute(text(_VIEW))

    # SQLite changes no primary key in place.
    connection.execute(text("ALTER TABLE momopay_callbacks RENAME TO momopay_callbacks_1"))
    _create(connection, callbacks)
    _copy_callbacks(connection)
    connection.execute(text("DROP TABLE momopay_callbacks_1"))
    connection.execute(update(versions).values(version=VERSION))


def _copy_callbacks(connection: Connection) -> None:
    """Copy what version 1 handled. It told FAILED, CANCELLED and EXPIRED apart, which are one end now."""
    names = [each.name for each in callbacks.c if each.name != "account"]  # by default it is that of version 1
    columns: dict[str, ColumnClause[Any]] = {name: column(name) for name in names}
    end = case((columns["status"].in_(FAILURES), TransactionStatus.FAILED), else_=columns["status"])
    # Of several that are one, the first that was handled stays; a row that was not handled is handled anew.
    order = case((column("handled", Boolean), 0), else_=1), columns["seen_at"], columns["status"]
    number = func.row_number().over(partition_by=(columns["transaction_id"], end), order_by=order)
    copied = [end.label("status") if name == "status" else columns[name] for name in names]
    source = select(*copied, number.label("number")).select_from(table("momopay_callbacks_1")).subquery()
    rows = select(*(source.c[name] for name in names)).where(source.c.number == 1)
    connection.execute(insert(callbacks).from_select(names, rows))


def _list_look_alikes(connection: Connection) -> None:
    """List what version 1 accepted as a reference and this version refuses, so that it is not paid again corrected."""
    for (reference,) in connection.execute(select(_payouts_1.c.reference).order_by(_payouts_1.c.sent_at)):
        if canonical(reference) != reference:
            insert_new(
                connection,
                look_alikes,
                {"account": "default", "canonical": canonical(reference), "reference": reference},
            )


def _make_transactions_unique(connection: Connection) -> None:
    """Put in doubt what version 1 let share the transaction of an earlier payout."""
    old = _payouts_1.c
    accepted = (old.state == JournalState.ACCEPTED, old.transaction_id.is_not(None))
    earlier = func.row_number().over(partition_by=old.transaction_id, order_by=(old.sent_at, old.reference))
    numbered = select(old.reference, old.transaction_id, earlier.label("number")).where(*accepted).subquery()
    for row in connection.execute(select(numbered).where(numbered.c.number > 1)).all():
        connection.execute(update(_payouts_1).where(old.reference == row.reference).values(state=JournalState.UNKNOWN))
        logger.error(
            "reference %s: its transaction %s is that of an earlier payout, too; it is UNKNOWN now",
            redacted_repr(row.reference),
            row.transaction_id,
        )
