"""How ``manage.py migrate`` makes the journal's tables, and what the admin lists.

Only the journal writes its tables. The model reads a database view of them, so that Django can never write a payment.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules
from types import SimpleNamespace
from typing import Any, ClassVar

from django.apps import apps
from django.conf import settings
from django.db import models, transaction
from django.db.migrations import RunPython

from momopay import EntryKind, JournalState, TransactionStatus
from momopay._core.wiring import load
from momopay.integrations.django import clients, migrations


def bring_tables_to(connection: Any, version: int) -> None:
    """Bring the journal's tables to a version, all or nothing, but only in the journal's database.

    If a `Journal` has brought them there or further, do nothing.
    """
    if connection.alias != clients.database():
        return
    with connection.cursor() as cursor:
        if connection.vendor == "sqlite":
            cursor.execute("PRAGMA journal_mode=WAL")  # now, while nobody else uses the file
        with transaction.atomic(using=connection.alias):
            found = 0
            if "momopay_journal" in connection.introspection.table_names(cursor):
                cursor.execute("SELECT version FROM momopay_journal")
                (found,) = cursor.fetchone()
            for number in range(found + 1, version + 1):
                for statement in load("journal.upgrade.statements")(number, connection.vendor):
                    cursor.execute(statement)


def create_tables(connection: Any) -> None:
    """Make in a database what the migrations make, for a test that does not run them."""
    for name in sorted(each.name for each in iter_modules(migrations.__path__)):
        for operation in import_module(f"{migrations.__name__}.{name}").Migration.operations:
            if isinstance(operation, RunPython):
                make: Any = operation.code
                make(apps, SimpleNamespace(connection=connection))


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
