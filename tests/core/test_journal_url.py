"""Where a journal may be: what is wrong is refused when a client or a journal is made, with what to write instead."""

from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import make_url

from in_turn import in_turn
from momopay import AsyncClient, Client, ConfigurationError, Journal
from momopay._core.journal_url import check_url, decoded, encoded, url_of

SECRET = "hunter2hunter2"
KEY, BASE = "pk_test_x", "http://127.0.0.1:1/v1"
WRITE = [
    # Another driver, or another name for PostgreSQL
    *(
        (f"{name}://me:{SECRET}@db/shop", "write postgresql+psycopg://")
        for name in (
            "postgresql+asyncpg",
            "postgresql+psycopg2",
            "postgresql+psycopg_async",
            "postgresql+pg8000",
            "postgres",
            "postgres+asyncpg",
            "psql",
            "pgsql",
            "postgis",
            "jdbc:postgresql",
        )
    ),
    *((f"{name}:///payments.db", "write sqlite:///payments.db") for name in ("sqlite+aiosqlite", "sqlite3", "file")),
    (f"POSTGRESQL://me:{SECRET}@db/shop", "begin with postgresql://, in small letters"),
    ("SQLite:///payments.db", "begin with sqlite://, in small letters"),
    # Another database
    *(
        (f"{name}://me:{SECRET}@db/shop", "SQLite file beside your own database works")
        for name in ("mysql", "mysql+pymysql", "mariadb", "mssql+pyodbc", "oracle", "mongodb+srv", "redis", "http")
    ),
    # No scheme
    ("payments.db", "write sqlite:///payments.db"),
    ("./data/payments.db", "write sqlite:///./data/payments.db"),
    ("/srv/shop/payments.db", "write sqlite:////srv/shop/payments.db"),
    (r"C:\shop\payments.db", r"write sqlite:///C:\shop\payments.db"),
    ("C:/shop/payments.db", "write sqlite:///C:/shop/payments.db"),
    (r"\\server\share\payments.db", r"write sqlite:///\\server\share\payments.db"),
    (Path("/srv/payments.db"), f"write sqlite:///{Path('/srv/payments.db')}"),
    # Too few slashes
    ("sqlite:payments.db", "write sqlite:///payments.db"),
    ("sqlite:/payments.db", "write sqlite:///payments.db"),
    ("sqlite://payments.db", "write sqlite:///payments.db"),
    ("file:payments.db", "write sqlite:///payments.db"),
    # What libpq and psql take
    (f"host=db user=me password={SECRET} dbname=shop", "postgresql+psycopg://user:password@host/database"),
    (f"me:{SECRET}@db/shop", "postgresql+psycopg://user:password@host/database"),
    ("db.example:5432/shop", "postgresql+psycopg://user:password@host/database"),
    (f"//me:{SECRET}@db/shop", "postgresql+psycopg://user:password@host/database"),
    (f"://me:{SECRET}@db/shop", "postgresql+psycopg://user:password@host/database"),
    # Nothing, or nothing that stays
    ("", "is empty"),
    ("  ", "is empty"),
    ("sqlite://", "outlives the process"),
    ("sqlite:///", "outlives the process"),
    ("sqlite:///:memory:", "outlives the process"),
    ("sqlite:///payments.db?mode=memory", "without options"),
    # As a file of settings has it
    (f'"postgresql://me:{SECRET}@db/shop"', "quotes"),
    ("sqlite:///payments.db\n", "invisible"),
    (" sqlite:///payments.db", "spaces"),
    (f"sqlite:///me:{SECRET}\u200b@db", "invisible"),
    (b"sqlite:///payments.db", "URL of a database"),
    (5, "URL of a database"),
]


@pytest.mark.parametrize(("given", "remedy"), WRITE, ids=repr)
def test_what_is_wrong_is_named_with_what_to_write(given: Any, remedy: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        check_url(given)
    assert remedy in caught.value.message
    assert SECRET not in repr(caught.value)
    assert not caught.value.may_have_executed


def made(kind: Any, url: str) -> Any:
    """Make a journal, or a client with one."""
    return Journal(url) if kind is Journal else kind(KEY, base_url=BASE, journal=url)


@pytest.mark.parametrize("kind", [Journal, Client, AsyncClient])
@pytest.mark.parametrize(("given", "remedy"), [WRITE[0], WRITE[18], ("payments.db", "write sqlite:///payments.db")])
def test_it_is_refused_when_a_journal_or_a_client_is_made(kind: Any, given: str, remedy: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        made(kind, given)
    assert remedy in caught.value.message


@pytest.mark.parametrize(
    "url",
    [
        "sqlite:///payments.db",
        "sqlite:////srv/payments.db",
        r"sqlite:///C:\shop\payments.db",
        r"sqlite:///\\?\C:\shop\payments.db",
        "sqlite://///?/C:/shop/payments.db",
        "sqlite+pysqlite:///payments.db",
        "postgresql://db/shop",
        "postgresql:///shop",
        f"postgresql+psycopg://me:{SECRET}@db:5432/shop?sslmode=require",
    ],
)
def test_what_a_journal_can_be_in_is_taken(url: str) -> None:
    check_url(url)
    assert url_of(url) == url


@in_turn("path", [r"\\?\C:\shop\payments.db", r"\\?\UNC\server\share\payments.db", "//?/C:/shop/payments.db"])
def test_a_long_path_of_windows_is_a_path_and_has_no_options(path: str) -> None:
    assert decoded(make_url(encoded(f"sqlite:///{path}")).database or "") == path
    assert url_of(path) == f"sqlite:///{path}"
    with pytest.raises(ConfigurationError, match="without options"):
        check_url(f"sqlite:///{path}?mode=ro")


# MOMOPAY_JOURNAL


@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_a_client_without_a_journal_takes_the_one_of_the_environment(
    kind: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MOMOPAY_JOURNAL", f"sqlite:///{tmp_path / 'named.db'}")
    for given in ({}, {"journal": None}):
        client = kind(KEY, base_url=BASE, **given)
        assert "named.db" in repr(client.journal)
        assert client.with_options(deadline=5.0).journal is client.journal
        assert client.with_options(journal=None).journal is None
        client.journal.close()
    own = kind(KEY, base_url=BASE, journal=f"sqlite:///{tmp_path / 'own.db'}")
    assert "own.db" in repr(own.journal)
    monkeypatch.setenv("MOMOPAY_JOURNAL", "")
    assert kind(KEY, base_url=BASE).journal is None


def test_the_variable_takes_a_file_as_the_commands_do_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    for path in ("payments.db", "/srv/payments.db", r"C:\shop\payments.db"):
        assert url_of(path) == f"sqlite:///{path}"
    for wrong, remedy in WRITE:
        if isinstance(wrong, str) and wrong.strip() and "write sqlite:///" not in remedy:
            monkeypatch.setenv("MOMOPAY_JOURNAL", wrong)
            with pytest.raises(ConfigurationError) as caught:
                Client(KEY, base_url=BASE)
            assert remedy in caught.value.message
            assert SECRET not in repr(caught.value)
