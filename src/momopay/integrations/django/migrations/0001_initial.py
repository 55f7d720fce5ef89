"""The journal's tables, and the admin's view of them."""

from __future__ import annotations

from typing import Any, ClassVar

from django.db import migrations, models

from momopay.integrations.django.models import Payment, create_tables


class Migration(migrations.Migration):
    """Creates the tables that `momopay.journal.schema` defines. The model is not managed, so it needs no fields."""

    atomic = False  # SQLite can switch to its write-ahead log only outside a transaction
    operations: ClassVar[Any] = [
        migrations.CreateModel(
            "Payment",
            fields=[("id", models.TextField(primary_key=True))],
            options=Payment._meta.original_attrs,  # noqa: SLF001  a public name of Django
        ),
        # Not reversible, because a payment that the journal forgot could be made again.
        migrations.RunPython(lambda _apps, editor: create_tables(editor.connection)),
    ]
