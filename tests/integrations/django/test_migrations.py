"""The migrations are frozen, and come to the same tables as a journal that Django does not know."""

from __future__ import annotations

from collections.abc import Mapping
from io import StringIO
from pathlib import Path
from typing import Any, Final

import pytest
from django.core.management import call_command
from sqlalchemy import URL

from integrations.django.conftest import ALIAS, Project, collect
from journal.database_kit import store_of
from journal.versions.kit import connected, fingerprint, load, structure_of
from momopay import Journal
from momopay.integrations.django import clients, migrations
from momopay.integrations.django.models import Payment
from momopay.journal.upgrade import VERSION

both_databases = pytest.mark.parametrize("engine", ["sqlite", "postgresql"], indirect=True)
FROZEN: Final = {"0001_initial.py": "13048cc319eef315", "0002_version_2.py": "bd3450d87c6b9b91"}


def test_the_migrations_are_frozen() -> None:
    """Projects have run them. What changes the tables is a migration of its own."""
    paths = sorted(Path(migrations.__path__[0]).glob("0*.py"))
    assert {path.name: fingerprint(path) for path in paths} == FROZEN
    assert len(FROZEN) == VERSION


def migrate(*arguments: str) -> None:
    call_command("migrate", "momopay", *arguments, database=ALIAS, verbosity=0, stdout=StringIO())


def url() -> str:
    return URL.create(**clients.journal_address()).render_as_string(hide_password=False)


def structure() -> Mapping[str, str]:
    with connected(url()) as connection:
        found = structure_of(connection)
    return {name: text for name, text in found.items() if name != Payment._meta.db_table}


@both_databases
@pytest.mark.parametrize("project", [False], indirect=True)
def test_each_migration_makes_its_own_version(project: Project, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    migrate("0001")
    first = structure()
    other = new_database(url(), tmp_path, request)
    load(other, 1)
    with connected(other) as connection:
        assert first == structure_of(connection)
    migrate()
    with Journal(other) as journal, store_of(journal).database.connection() as connection:
        assert structure() == structure_of(connection)
    assert collect().is_new
    assert Payment.objects.using(ALIAS).count() == 1


def new_database(of: str, tmp_path: Path, request: pytest.FixtureRequest) -> str:
    if of.startswith("sqlite"):
        return f"sqlite:///{tmp_path / 'other.db'}"
    server: Any = request.getfixturevalue("postgresql")
    return str(server.new_database())


@both_databases
@pytest.mark.parametrize("project", [False], indirect=True)
def test_a_journal_that_a_process_upgraded_is_migrated(project: Project) -> None:
    """The new code may run before `migrate` does."""
    migrate("0001")
    assert collect().is_new
    upgraded = structure()
    migrate()
    assert structure() == upgraded
    assert collect().is_new is False


@both_databases
@pytest.mark.parametrize("project", [False], indirect=True)
def test_a_journal_from_before_the_app_is_migrated(project: Project) -> None:
    load(url(), 1)
    migrate()
    assert Payment.objects.using(ALIAS).filter(reference="told").count() == 1
    with Journal(url(), create=False) as journal:
        assert journal.check().version == VERSION
