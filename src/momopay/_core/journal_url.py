"""Check where a journal is to be, when a client or a `Journal` is made. No I/O, and no library beside Python's own.

A wrong URL is refused before the first customer pays, and with what to write instead. No message shows more of it than
the name of the database and a path: the rest may hold a password.
"""

from __future__ import annotations

import re
from pathlib import PurePath
from typing import Final

from momopay.errors import ConfigurationError

SQLITE: Final = frozenset({"sqlite", "sqlite+pysqlite"})
POSTGRESQL: Final = frozenset({"postgresql", "postgresql+psycopg"})

_KINDS: Final = (
    "a journal can be in a SQLite file, sqlite:///payments.db, or in PostgreSQL,"
    " postgresql+psycopg://user:password@host/database"
)
_SCHEME: Final = re.compile(r"\s*((?:jdbc:)?[A-Za-z][A-Za-z0-9+._-]{1,39})://")  # of two characters: C:// is a drive
_POSTGRESQL_NAMES: Final = re.compile(r"(jdbc:)?(postgres|pgsql|psql|postgis|pg$|pg\+)", re.IGNORECASE)
_SQLITE_NAMES: Final = re.compile(r"(jdbc:)?(sqlite|file|libsql)", re.IGNORECASE)
_SQLITE_WITHOUT_SLASHES: Final = re.compile(r"(?:jdbc:)?(?:sqlite|file)[+\w]*:/*(?P<path>.*)", re.IGNORECASE)
_ENCODED: Final = re.compile(r"^([\\/]{2})%3F(?=[\\/])")
_LONG_PATH: Final = re.compile(r"(sqlite[+\w]*:///[\\/]{2})\?(?=[\\/])")  # \\?\C:\..., as Windows has long paths
# What libpq and other programs take: "host=db password=...", "user:password@host/database", "host:5432/database".
_OF_A_SERVER: Final = re.compile(r"@|\b(host|hostaddr|dbname|user|password|port)\s*=|^[\w.-]{2,}:\d+(/|$)")


def check_url(url: object) -> None:
    """Raise ConfigurationError unless this is the URL of a database that a journal can be in."""
    if isinstance(url, PurePath):
        raise ConfigurationError(f"journal must be text, not a path: write {_sqlite(str(url))}")
    if not isinstance(url, str):
        raise ConfigurationError(f"journal must be the URL of a database: {_KINDS}")
    if not url.strip():
        raise ConfigurationError(f"journal is empty: {_KINDS}")
    if url != url.strip() or url[0] in "'\"" or not url.isprintable():
        raise ConfigurationError(
            f"journal has spaces, quotes or invisible characters around or inside its URL: remove them; {_KINDS}"
        )
    url = encoded(url)
    found = _SCHEME.match(url)
    if found is None:
        raise _without_scheme(url)
    name = found[1]
    check_name(name)
    if name in SQLITE:
        path, question_mark, _options = url[found.end() :].partition("?")
        if path and not path.startswith("/"):
            raise ConfigurationError(f"the URL of a SQLite file has three slashes: write {_sqlite(path)}")
        check_sqlite(path[1:], has_options=bool(question_mark))


def encoded(url: str) -> str:
    r"""Return the URL of a journal with the question mark of a path such as \\?\C:\shop.db, which begins no options."""
    return _LONG_PATH.sub(r"\1%3F", url)


def decoded(path: str) -> str:
    """Return the path of an `encoded` URL as it was; SQLAlchemy decodes it in its later versions only."""
    return _ENCODED.sub(r"\1?", path)


def check_name(name: str) -> None:
    """Raise ConfigurationError unless this names a database that a journal can be in, by a driver that it uses."""
    if name not in SQLITE | POSTGRESQL:
        raise ConfigurationError(_of_another(name))


def check_sqlite(path: str | None, *, has_options: bool) -> None:
    """Raise ConfigurationError unless this is a file that outlives the process."""
    if not path or path == ":memory:" or has_options:
        raise ConfigurationError(
            'a journal needs a file that outlives the process, and a URL without options: "sqlite:///payouts.db"'
        )


def url_of(text: str) -> str:
    """Return the URL of what MOMOPAY_JOURNAL names: itself, or that of a SQLite file as the commands take it."""
    is_path = _SCHEME.match(text) is None and _SQLITE_WITHOUT_SLASHES.match(text) is None
    return f"sqlite:///{text}" if is_path and not _OF_A_SERVER.search(text) and text.strip() else text


def _without_scheme(text: str) -> ConfigurationError:
    if (found := _SQLITE_WITHOUT_SLASHES.match(text)) is not None:
        return ConfigurationError(f"journal is no URL of a database: write {_sqlite(found['path'])}")
    if _OF_A_SERVER.search(text) or "://" in text:
        return ConfigurationError(f"journal is no URL of a database: {_KINDS}")
    return ConfigurationError(f"journal is a path, not a URL: write {_sqlite(text)}")


def _of_another(name: str) -> str:
    """Return why a journal cannot be in the database or use the driver that a URL names, and what to write."""
    lower = name.lower()
    if lower in SQLITE | POSTGRESQL:
        return f"journal must begin with {lower}://, in small letters, not with {name}://"
    if _POSTGRESQL_NAMES.match(name):
        return (
            f"journal begins with {name}://, and the journal uses PostgreSQL by psycopg 3: write postgresql+psycopg://"
            ' in its place; the rest may stay, without options of another driver. pip install "momopay[postgresql]"'
            " installs psycopg"
        )
    if _SQLITE_NAMES.match(name):
        return f"journal begins with {name}://, and the journal uses Python's own SQLite: write sqlite:///payments.db"
    return (
        f"a journal cannot be in the database of {name}://: {_KINDS}. A SQLite file beside your own database works, for"
        " all processes of one machine"
    )


def _sqlite(path: str) -> str:
    """Return the URL of a file, or of an example where the path may hold a secret."""
    is_shown = path.isprintable() and len(path.strip()) > 0 and not set(path) & set("@=?#&")
    return f"sqlite:///{path}" if is_shown else "sqlite:///payments.db"
