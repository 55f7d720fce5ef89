"""The journal's tables of version 2. A `Journal` may have made them before, at its first use. Frozen."""

from __future__ import annotations

from typing import Any, ClassVar

from django.db import migrations

from momopay.integrations.django.models import bring_tables_to


class Migration(migrations.Migration):
    """Upgrades the tables. Not reversible, as the first migration."""

    atomic = False  # the upgrade has a transaction of its own
    dependencies: ClassVar[Any] = [("momopay", "0001_initial")]
    operations: ClassVar[Any] = [migrations.RunPython(lambda _apps, editor: bring_tables_to(editor.connection, 2))]
