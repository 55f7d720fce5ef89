"""The journal's database, from Django's settings."""

from pathlib import Path
from typing import Any

from django.test import override_settings
from sqlalchemy import make_url

from integrations.django.conftest import ALIAS, database
from momopay.integrations.django.conf import journal_url


def url_of(kind: str, **engine: Any) -> str:
    with database({"ENGINE": f"django.db.backends.{kind}", **engine}), override_settings(MOMOPAY={"DATABASE": ALIAS}):
        return journal_url()


def test_the_journal_is_in_the_file_or_on_the_server_that_django_uses(tmp_path: Path) -> None:
    path = tmp_path / "shop.sqlite3"
    assert url_of("sqlite3", NAME=path) == f"sqlite:///{path}"
    server = {"NAME": "shop", "HOST": "db.example", "PORT": "5433"}
    options = {"sslmode": "require", "server_side_binding": True, "connect_timeout": 5}
    url = make_url(url_of("postgresql", **server, USER="u@x", PASSWORD="p/w:%", OPTIONS=options))
    assert (url.username, url.password, url.database) == ("u@x", "p/w:%", "")
    expected = {"dbname": "shop", "host": "db.example", "port": "5433", "sslmode": "require", "connect_timeout": "5"}
    assert url.query == expected | {"client_encoding": "UTF8"}
    assert make_url(url_of("postgresql", **server)).translate_connect_args() == {}
