"""The journal's tables, and the admin's view of them."""

from __future__ import annotations

from typing import Any, ClassVar

from django.db import migrations, models

from momopay.integrations.django.models import Payment, create_tables


class Migration(migrations.Migration):
    """Makes the tables as `momopay.journal.schema` defines them. The model is not managed, so it needs no fields."""

    atomic = False  # SQLite changes to its write-ahead log outside a transaction only
    operations: ClassVar[Any] = [
        migrations.CreateModel(
            "Payment",
            fields=[("id", models.TextField(primary_key=True))],
            options=Payment._meta.original_attrs,  # noqa: SLF001  a public name of Django
        ),
        # It cannot be reversed: a payment that the journal forgot could be made again.
        migrations.RunPython(lambda _apps, editor: create_tables(editor.connection)),
    ]
