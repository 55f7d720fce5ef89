"""The journal's tables of version 1, and the admin's view of them. Frozen: databases were made by it."""

from __future__ import annotations

from typing import Any, ClassVar

from django.db import migrations, models, transaction

from momopay.integrations.django import clients
from momopay.integrations.django.models import bring_tables_to

# The transaction is that of `JournalEntry.transaction`: the first that was paid, else the latest attempt's.
# `search_text` has all of them: if an order was paid twice, the customer may quote either receipt.
_VIEW = """
    CREATE VIEW momopay_admin_payments AS
    SELECT p.kind || ':' || p.reference AS id, p.kind, p.reference, CAST(p.amount AS NUMERIC) AS amount, p.phone,
        p.state, t.status, t.receipt, {time} AS created_at, {local} AS created_local,
        '+' || p.phone || ' 0' || substr(p.phone, 4) || COALESCE((
            SELECT {join}(' +' || o.phone || ' 0' || substr(o.phone, 4) || ' ' || COALESCE(o.receipt, ''), '')
            FROM momopay_transactions o
            WHERE o.account = p.account AND o.kind = p.kind AND o.reference = p.reference), '') AS search_text
    FROM momopay_payments p LEFT JOIN momopay_transactions t
    ON t.account = p.account AND t.transaction_id = (
        SELECT o.transaction_id FROM momopay_transactions o
        WHERE o.account = p.account AND o.kind = p.kind AND o.reference = p.reference
            AND (p.state = 'ACCEPTED' OR o.status = 'SUCCESS')
        ORDER BY CASE WHEN o.status = 'SUCCESS' THEN 0 ELSE 1 END,
            CASE WHEN o.status = 'SUCCESS' THEN o.sent_at END, o.sent_at DESC
        LIMIT 1)
    WHERE p.account = 'default'"""


def create(_apps: Any, editor: Any) -> None:
    """Create the tables and the view, but only in the journal's database."""
    connection = editor.connection
    bring_tables_to(connection, 1)
    if connection.alias != clients.database():
        return
    # The journal stores times as text, in UTC.
    time = "CAST(p.created_at AS timestamp with time zone)"
    view = _VIEW.format(time=time, local=time, join="string_agg")
    if connection.vendor == "sqlite":
        time = "strftime('%Y-%m-%d %H:%M:%f', p.created_at"
        view = _VIEW.format(time=f"{time})", local=f"{time}, 'localtime')", join="group_concat")
    with transaction.atomic(using=connection.alias), connection.cursor() as cursor:
        cursor.execute(view)


class Migration(migrations.Migration):
    """Creates the tables and the view. The model is not managed, so it needs no fields."""

    atomic = False  # SQLite can switch to its write-ahead log only outside a transaction
    operations: ClassVar[Any] = [
        migrations.CreateModel(
            "Payment",
            fields=[("id", models.TextField(primary_key=True))],
            options={
                "managed": False,
                "db_table": "momopay_admin_payments",
                "ordering": ["-created_at"],
                "default_permissions": ("view", "refund", "release"),
            },
        ),
        # Not reversible, because a payment that the journal forgot could be made again.
        migrations.RunPython(create),
    ]
