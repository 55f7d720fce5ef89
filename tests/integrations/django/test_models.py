"""What the admin reads: the journal's own words and times."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest
from django.test import override_settings

from integrations.django.conftest import Project, collect
from momopay import EntryKind, JournalState
from momopay.integrations.django.models import Payment, create_tables


def test_the_choices_are_those_of_the_journal() -> None:
    for name, words in (("kind", EntryKind), ("state", JournalState)):
        field: Any = Payment._meta.get_field(name)
        assert {word for word, _ in field.choices} == set(words)


@pytest.mark.parametrize("engine", ["sqlite", "postgresql"], indirect=True)
@pytest.mark.parametrize("project", [False], indirect=True)
def test_without_use_tz_times_are_local(project: Project) -> None:
    with override_settings(USE_TZ=False, TIME_ZONE="Africa/Nairobi"):
        create_tables(project.database)
        collect()
        created = Payment.objects.get().created_at
        assert abs((datetime.now() - created).total_seconds()) < 60  # noqa: DTZ005  as Django does without USE_TZ
