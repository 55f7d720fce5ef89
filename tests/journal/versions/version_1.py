"""What a process of version 1 executes, word for word, which has a journal open while another process upgrades it."""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection

from journal.constants import PHONE

READ: Final = (
    "SELECT momopay_journal.restored, momopay_journal.sequence, momopay_payments.state FROM momopay_journal"
    " LEFT OUTER JOIN momopay_payments ON momopay_payments.account = 'default' AND momopay_payments.kind = 'PAYOUT'"
    " AND momopay_payments.reference = '{reference}'"
)
RAISE: Final = "UPDATE momopay_journal SET sequence=(momopay_journal.sequence + 1) RETURNING restored, sequence"
BIND: Final = (
    "INSERT INTO momopay_accounts (account, mode, host, tenant_id, bound_at)"
    " VALUES ('{account}', 'test', 'api.example', NULL, '2026-11-28T10:00:00+00:00') ON CONFLICT DO NOTHING"
)
_INSERT: Final = (
    "INSERT INTO momopay_payments (account, kind, reference, amount, phone, state, attempts, created_at, sent_at,"
    " wire_reference, refund_of, revision, claim, sender, machine, lease_seconds, lease_until)"
    " VALUES ('default', 'PAYOUT', '{reference}', '10', '{phone}', 'SENDING', 1, '2026-11-28T10:00:00.000001+00:00',"
    " '2026-11-28T10:00:00.000001+00:00', '{reference}', NULL, 1, 'c', 's', 'm', 90, 0) ON CONFLICT DO NOTHING"
)
_HISTORY: Final = (
    "INSERT INTO momopay_history (account, kind, reference, at, what, after, attempt)"
    " VALUES ('default', 'PAYOUT', '{reference}', 1795904965.6, 'begun', 'SENDING', 1)"
)


def begin(connection: Connection, reference: str, *, commit: bool = True) -> int:
    """Begin a payout; return the sequence number. Without `commit`, leave the transaction open."""
    connection.exec_driver_sql("BEGIN IMMEDIATE" if connection.dialect.name == "sqlite" else "BEGIN")
    sequence: int = connection.exec_driver_sql(RAISE).one()[1]
    for statement in (_INSERT, _HISTORY):
        connection.exec_driver_sql(statement.format(reference=reference, phone=PHONE))
    if commit:
        connection.exec_driver_sql("COMMIT")
    return sequence


def state_of(connection: Connection, reference: str) -> str | None:
    """Read the journal's mark and a payout, as each call does first."""
    found: str | None = connection.exec_driver_sql(READ.format(reference=reference)).one()[2]
    return found
