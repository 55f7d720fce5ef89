"""What ``manage.py migrate`` makes, and what the admin shows.

The tables are the journal's own, which only the journal writes. The model is on a view of them, so that no statement of
Django can write a payment.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any, ClassVar, Final

from django.conf import settings
from django.db import models, transaction

from momopay._core.wiring import load
from momopay.integrations.django import conf
from momopay.models.enums import TransactionStatus

# `EntryKind` and `JournalState`, whose module takes a quarter of a second to import: each command would wait for it.
_KINDS: Final = [("COLLECTION", "Collection"), ("PAYOUT", "Payout")]
_STATES: Final = [(state, state) for state in ("SENDING", "ACCEPTED", "REFUSED", "NOT_SENT", "UNKNOWN")]
_STATUSES: Final = [(status.value, status.value) for status in TransactionStatus]

# A prompt that was accepted has the result code of success, so the code is shown once it has ended.
# Of a payment, the transaction that `JournalEntry.transaction` is: the first that was paid, else the latest attempt's.
_VIEW: Final = """
    CREATE VIEW momopay_admin_payments AS
    SELECT p.kind || ':' || p.reference AS id, p.kind, p.reference, p.phone, p.state, p.code, p.attempts,
        CAST(ROUND(CAST(p.amount AS NUMERIC) * 100) AS BIGINT) AS cents, p.created_at AS created_text,
        {created_at} AS created_at, p.metadata, p.refund_of, p.released_by, {released_at} AS released_at,
        t.transaction_id, t.status, t.receipt, {ended_at} AS ended_at,
        CASE WHEN t.ended_at IS NOT NULL THEN t.result_code END AS result_code
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
    """Make the journal's tables and the admin's view of them, all or nothing."""
    # The journal has times as text, in UTC. Without USE_TZ, Django takes what SQLite has for local time.
    moment = "CAST({} AS timestamp with time zone)"
    if connection.vendor == "sqlite":
        moment = "strftime('%Y-%m-%d %H:%M:%f', {}" + (")" if settings.USE_TZ else ", 'localtime')")
    columns = ("p.created_at", "p.released_at", "t.ended_at")
    moments = {column[2:]: moment.format(column) for column in columns}
    with connection.cursor() as cursor:
        if connection.vendor == "sqlite":  # here, where nobody else uses the file, and not under the first payment
            cursor.execute("PRAGMA journal_mode=WAL")
        with transaction.atomic(using=connection.alias):
            for statement in [*load("journal.schema.definitions")(connection.vendor), _VIEW.format(**moments)]:
                cursor.execute(statement)


class InJournal(models.Manager[Any]):
    """Reads the database that has the journal."""

    def get_queryset(self) -> models.QuerySet[Any]:
        """Return all rows."""
        return super().get_queryset().using(conf.database())


class Payment(models.Model):
    """One payment, with the transaction that counts. Amounts are in cents."""

    id: models.Field[str, str] = models.TextField(primary_key=True)
    kind: models.Field[str, str] = models.TextField(choices=_KINDS)
    reference: models.Field[str, str] = models.TextField()
    phone: models.Field[str, str] = models.TextField()
    cents: models.Field[int, int] = models.BigIntegerField()
    state: models.Field[str, str] = models.TextField(choices=_STATES)
    status: models.Field[str | None, str | None] = models.TextField(choices=_STATUSES, null=True)
    code: models.Field[str | None, str | None] = models.TextField("refused with", null=True)
    result_code: models.Field[str | None, str | None] = models.TextField(null=True)
    receipt: models.Field[str | None, str | None] = models.TextField(null=True)
    transaction_id: models.Field[str | None, str | None] = models.TextField(null=True)
    attempts: models.Field[int, int] = models.IntegerField()
    refund_of: models.Field[str | None, str | None] = models.TextField(null=True)
    metadata: models.Field[str | None, str | None] = models.TextField(null=True)
    created_text: models.Field[str, str] = models.TextField()  # has an index
    created_at: models.Field[Any, Any] = models.DateTimeField("created")
    ended_at: models.Field[Any, Any] = models.DateTimeField("ended", null=True)
    released_by: models.Field[str | None, str | None] = models.TextField(null=True)
    released_at: models.Field[Any, Any] = models.DateTimeField("released", null=True)

    objects: InJournal = InJournal()

    class Meta:
        managed = False
        db_table = "momopay_admin_payments"
        ordering: ClassVar[list[str]] = ["-created_text"]
        default_permissions: ClassVar[tuple[str, ...]] = ("view",)
        permissions: ClassVar[list[tuple[str, str]]] = [
            ("read_again_payment", "Can read payments again from the service"),
            ("refund_payment", "Can refund a payment"),
            ("release_payment", "Can release a payment whose outcome is unknown"),
        ]

    def __str__(self) -> str:
        return self.reference

    @property
    def amount(self) -> str:
        """KES."""
        return f"{Decimal(self.cents) / 100:,.2f}"
