"""What ``manage.py migrate`` creates, and what the admin lists.

Only the journal writes its tables. The model reads a database view of them, so that Django can never write a payment.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

from django.conf import settings
from django.db import models, transaction

from momopay import EntryKind, JournalState, TransactionStatus
from momopay._core.wiring import load
from momopay.integrations.django import clients

# The transaction is that of `JournalEntry.transaction`: the first that was paid, else the latest attempt's.
# `search_text` has all of them: if an order was paid twice, the customer may quote either receipt.
_VIEW: Final = """
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


def create_tables(connection: Any) -> None:
    """Create the journal's tables and the admin's view, all or nothing, but only in the journal's database."""
    if connection.alias != clients.database():
        return
    # The journal stores times as text, in UTC.
    time = "CAST(p.created_at AS timestamp with time zone)"
    view = _VIEW.format(time=time, local=time, join="string_agg")
    with connection.cursor() as cursor:
        if connection.vendor == "sqlite":
            time = "strftime('%Y-%m-%d %H:%M:%f', p.created_at"
            view = _VIEW.format(time=f"{time})", local=f"{time}, 'localtime')", join="group_concat")
            cursor.execute("PRAGMA journal_mode=WAL")  # now, while nobody else uses the file
        with transaction.atomic(using=connection.alias):
            has_journal = "momopay_journal" in connection.introspection.table_names(cursor)  # made by `Journal`
            made = [] if has_journal else load("journal.upgrade.creation")(connection.vendor)
            for statement in [*made, view]:
                cursor.execute(statement)


class Payment(models.Model):
    """One payment, with the status and the receipt of the transaction that counts."""

    id: models.Field[str, str] = models.TextField(primary_key=True)
    reference: models.Field[str, str] = models.TextField()
    kind: models.Field[str, str] = models.TextField(choices=[(each, each) for each in EntryKind])
    amount: models.Field[Any, Any] = models.DecimalField("amount, KES", max_digits=20, decimal_places=2)
    phone: models.Field[str, str] = models.TextField()
    state: models.Field[str, str] = models.TextField(choices=[(each, each) for each in JournalState])
    status: models.Field[Any, Any] = models.TextField(choices=[(each, each) for each in TransactionStatus], null=True)
    receipt: models.Field[Any, Any] = models.TextField(null=True)
    # Without USE_TZ, Django takes what SQLite has for a time in TIME_ZONE.
    created_at: models.Field[Any, Any] = models.DateTimeField(
        "created", db_column="created_at" if settings.USE_TZ else "created_local"
    )
    search_text: models.Field[str, str] = models.TextField()

    class Meta:
        managed = False
        db_table = "momopay_admin_payments"
        ordering: ClassVar[list[str]] = ["-created_at"]
        default_permissions: ClassVar[tuple[str, ...]] = ("view", "refund", "release")

    def __str__(self) -> str:
        return self.reference

    @property
    def entry(self) -> Any:
        """The journal's entry, a `momopay.JournalEntry`. There always is one, because entries are never deleted."""
        return clients.the_journal().get(self.reference, EntryKind(self.kind))
