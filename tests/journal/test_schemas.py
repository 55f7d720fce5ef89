"""The journal's tables have a schema of their own, which a project's own tools do not see."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from alembic import command
from alembic.config import Config
from sqlalchemy import make_url

from in_turn import some_by_default
from journal.database_kit import another_process, execute, store_of
from journal.kit import found, put
from journal.versions.kit import connected, load
from momopay import ConfigurationError, Journal
from momopay.journal.upgrade import VERSION
from postgresql import PostgresqlServer

ENVIRONMENT = """
from alembic import context
from sqlalchemy import Column, Integer, MetaData, NullPool, Table, create_engine

metadata = MetaData()
Table("orders", metadata, Column("id", Integer, primary_key=True))

{include_name}

with create_engine("{url}", poolclass=NullPool).connect() as connection:
    context.configure(connection=connection, target_metadata=metadata, {options})
    with context.begin_transaction():
        context.run_migrations()
"""
# As docs/operate/many-machines.md has it.
INCLUDE_NAME = """
def include_name(name, type_, parent_names):
    return not (name or "").startswith("momopay")
"""


@pytest.fixture
def url(postgresql: PostgresqlServer) -> str:
    return postgresql.new_database()


def schemas_of(url: str) -> dict[str, int]:
    """Return the number of the journal's tables by schema."""
    with connected(url) as connection:
        counts = "SELECT schemaname, count(*) FROM pg_tables WHERE tablename LIKE 'momopay_%%' GROUP BY 1"
        return {str(name): int(count) for name, count in connection.exec_driver_sql(counts)}


def proposed(url: str, folder: Path, *, options: str = "", include_name: str = "") -> list[str]:
    """Return what `alembic revision --autogenerate` writes into the upgrade of a project with one table."""
    config = Config(str(folder / "alembic.ini"))
    command.init(config, str(folder / "migrations"))
    environment = ENVIRONMENT.format(url=url, options=options, include_name=include_name)
    (folder / "migrations" / "env.py").write_text(environment)
    config.set_main_option("script_location", str(folder / "migrations"))
    script: Any = command.revision(config, autogenerate=True)
    text = Path(script.path).read_text().partition("def upgrade")[2].partition("def downgrade")[0]
    return [line.strip() for line in text.splitlines() if "op." in line]


MAKES_ORDERS = "op.create_table('orders',"


def test_alembic_proposes_nothing(url: str, tmp_path: Path) -> None:
    with Journal(url) as journal:
        put(journal)
    assert proposed(url, tmp_path) == [MAKES_ORDERS]


def test_alembic_proposes_nothing_for_all_schemas_with_three_lines(url: str, tmp_path: Path) -> None:
    with Journal(url) as journal:
        put(journal)
    options = "include_schemas=True"
    without = proposed(url, tmp_path / "without", options=options)
    assert "op.drop_table('momopay_payments', schema='momopay')" in without  # the control
    options += ", include_name=include_name"
    assert proposed(url, tmp_path / "with", options=options, include_name=INCLUDE_NAME) == [MAKES_ORDERS]


@pytest.mark.parametrize("is_old", [True, False])
def test_alembic_proposes_nothing_for_tables_beside_the_projects_own(url: str, tmp_path: Path, *, is_old: bool) -> None:
    """Those of version 1, and those that a person wants there."""
    if is_old:
        load(url, 1)
    with Journal(url if is_old else f"{url}?schema=public") as journal:
        put(journal)
    assert "op.drop_table('momopay_payments')" in proposed(url, tmp_path / "without")  # the control
    options = "include_name=include_name"
    assert proposed(url, tmp_path / "with", options=options, include_name=INCLUDE_NAME) == [MAKES_ORDERS]


@pytest.mark.parametrize(
    ("option", "schema"),
    some_by_default(
        [
            ("", "momopay"),
            ("?schema=Pay%20%22us%22%2550", 'Pay "us"%50'),
            ("?schema=payments", "payments"),
            ("?schema=public", "public"),
            ("?options=-csearch_path%3Dpublic", "public"),
        ],
        2,
    ),
)
def test_the_tables_are_in_the_schema_that_the_url_names(url: str, tmp_path: Path, option: str, schema: str) -> None:
    with Journal(url + option) as journal:
        put(journal)
        assert (found(journal).attempts, journal.check().differing) == (1, ())
        journal.backup(tmp_path / "copy.db")
    tables = schemas_of(url)
    assert list(tables) == [schema]
    with another_process(url + option, create=False) as journal:
        assert found(journal).attempts == 1
    with Journal(f"sqlite:///{tmp_path / 'copy.db'}", create=False) as copy:
        assert found(copy).attempts == 1
    assert Journal.migrate(url + option, check=True) == ""
    assert schemas_of(url) == tables


def test_tables_of_version_1_are_found_and_stay(url: str) -> None:
    load(url, 1)
    with Journal(url) as journal:
        assert found(journal, "told").attempts == 1
        assert journal.check().version == VERSION
    assert list(schemas_of(url)) == ["public"]


def test_tables_of_version_1_in_the_search_path_of_a_role_are_found_and_stay(url: str) -> None:
    name = make_url(url).database
    with connected(url) as connection:
        connection.exec_driver_sql("CREATE SCHEMA shop")
        connection.exec_driver_sql(f'ALTER DATABASE "{name}" SET search_path = shop, public')
    load(url, 1)
    with Journal(url) as journal:
        put(journal, "new")
    assert list(schemas_of(url)) == ["shop"]
    with connected(url) as connection:
        connection.exec_driver_sql("CREATE TABLE momopay_of_ours (id INTEGER)")
    with another_process(url) as journal:
        assert found(journal, "new").attempts == 1


def test_of_two_journals_none_is_used_until_the_url_says_which(url: str) -> None:
    with Journal(url) as journal:
        put(journal)
    load(url, 1)
    for create in (True, False):
        with (
            another_process(url, create=create) as other,
            pytest.raises(ConfigurationError, match="two journals, in the schemas momopay and public") as caught,
        ):
            other.get("r")
        assert not caught.value.may_have_executed
    with another_process(f"{url}?schema=momopay") as other:
        assert found(other).attempts == 1
    with another_process(f"{url}?schema=public") as other:
        assert other.get("r") is None


def test_journals_of_two_schemas_are_apart_in_one_process(url: str) -> None:
    with Journal(url) as one, Journal(f"{url}?schema=two") as two:
        put(one)
        assert two.get("r") is None
        put(two, "s")
        assert one.get("s") is None
    assert set(schemas_of(url)) == {"momopay", "two"}


def test_nothing_is_created_without_create_and_nothing_is_left_of_a_refusal(url: str) -> None:
    for attempt in ("", "?schema=shop"):
        with pytest.raises(ConfigurationError, match="create=False"), Journal(url + attempt, create=False) as journal:
            journal.get("r")
        assert Journal.migrate(url + attempt, check=True)
    with connected(url) as connection:
        found_schemas = connection.exec_driver_sql("SELECT nspname FROM pg_namespace").scalars().all()
    assert not {"momopay", "shop"} & set(found_schemas)
    with pytest.raises(ConfigurationError, match="twice"):
        Journal(f"{url}?schema=a&schema=b")


def test_a_role_that_may_not_create_a_schema_is_told_what_to_run(url: str) -> None:
    role = f"r{make_url(url).database}"
    with connected(url) as owner:
        owner.exec_driver_sql(f"CREATE ROLE {role} LOGIN")
    as_role = make_url(url).set(username=role).render_as_string()
    with another_process(as_role) as journal, pytest.raises(ConfigurationError, match="GRANT") as caught:
        journal.get("r")
    assert "GRANT CREATE ON DATABASE" in str(caught.value)
    with connected(url) as owner:
        owner.exec_driver_sql(f'GRANT CREATE ON DATABASE "{make_url(url).database}" TO {role}')
    with another_process(as_role) as journal:
        put(journal)
        role_of = execute(journal, "SELECT current_user")
        assert role_of == [(role,)]
    with another_process(url, create=False) as journal:
        assert found(journal).attempts == 1
        assert store_of(journal).database.shared.refusal is None


def test_a_role_without_rights_in_the_schema_is_told_what_to_run(url: str) -> None:
    with Journal(url) as journal:
        put(journal)
    role = f"r{make_url(url).database}"
    with connected(url) as owner:
        owner.exec_driver_sql(f"CREATE ROLE {role} LOGIN")
    as_role = make_url(url).set(username=role).render_as_string()
    with (
        another_process(as_role) as journal,
        pytest.raises(ConfigurationError, match="GRANT USAGE") as caught,
    ):
        journal.get("r")
    grants = str(caught.value).split("Remedy: ")[1].split(": ", 1)[1]
    with connected(url) as owner:
        for grant in grants.split(";"):
            if "GRANT" in grant:
                owner.exec_driver_sql(grant[grant.index("GRANT") :])
    with another_process(as_role, create=False) as journal:
        put(journal, "s")
