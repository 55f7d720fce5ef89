"""The setting ``MOMOPAY``: options of the clients, the signer of callback URLs, and the journal's database."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote, urlencode

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import DEFAULT_DB_ALIAS, connections
from django.utils.connection import ConnectionDoesNotExist

from momopay.client import Client
from momopay.errors import ConfigurationError
from momopay.signing import CallbackSigner

_OWN: Final = {"CALLBACK_BASE_URL", "CALLBACK_SECRETS", "DATABASE"}
# Of the clients, by the names of their arguments. The app brings the journal; each client has its own transport.
_OF_CLIENTS: Final = {name.upper() for name in inspect.signature(Client).parameters} - {"JOURNAL", "TRANSPORT"}


def options() -> Mapping[str, Any]:
    """Return the setting; raise ConfigurationError if it is no mapping of the names that there are."""
    given: object = getattr(settings, "MOMOPAY", {})
    if not isinstance(given, Mapping):
        raise ConfigurationError('MOMOPAY must be a dict, such as {"API_KEY": ..., "BASE_URL": ...}')
    found: Mapping[Any, Any] = given  # pyright: ignore[reportUnknownVariableType]
    names = _OF_CLIENTS | _OWN
    unknown = ", ".join(sorted(repr(name) for name in found if name not in names))
    if unknown:
        raise ConfigurationError(f"MOMOPAY has {unknown}, which is none of {', '.join(sorted(names))}")
    return found


def client_options() -> dict[str, Any]:
    """Return the arguments of the clients, apart from the journal."""
    return {name.lower(): value for name, value in options().items() if name in _OF_CLIENTS}


def signer() -> CallbackSigner:
    """Return what signs and verifies callback URLs, by default with the secrets of Django."""
    return CallbackSigner(options().get("CALLBACK_SECRETS") or [settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS])


def callback_url() -> str | None:
    """Return the address of the app's callback view without a token, None if the setting has none."""
    base = options().get("CALLBACK_BASE_URL")
    return f"{str(base).rstrip('/')}/callback" if base else None


def database() -> str:
    """Return the alias of the database that has the journal."""
    return str(options().get("DATABASE") or DEFAULT_DB_ALIAS)


def journal_url() -> str:
    """Return the journal's URL; raise ConfigurationError if the database cannot have one."""
    alias = database()
    try:
        connection: Any = connections[alias]
        if connection.vendor == "postgresql":
            return _postgresql_url(connection)
    except (ConnectionDoesNotExist, ImproperlyConfigured) as error:
        raise ConfigurationError(f"the database {alias!r} (MOMOPAY's DATABASE): {error}") from error
    if connection.vendor != "sqlite":
        raise ConfigurationError(
            f"the database {alias!r} is {connection.vendor}: payments need SQLite or PostgreSQL. Name another one by"
            ' MOMOPAY["DATABASE"]'
        )
    name = str(connection.settings_dict["NAME"])
    if not name or name.startswith(("file:", ":memory:")):
        raise ConfigurationError(
            f"the database {alias!r} is in memory, or has no path: payments need a file, or PostgreSQL. In a test,"
            " use the fixture momopay_django"
        )
    return f"sqlite:///{name}"


def _postgresql_url(connection: Any) -> str:
    # What libpq takes. The rest are objects and switches of Django and psycopg.
    found = connection.get_connection_params()
    given = {name: str(value) for name, value in found.items() if type(value) in {str, int}}
    given.pop("prepare_threshold", None)
    role = connection.settings_dict["OPTIONS"].get("assume_role")
    if role:
        given["options"] = f"{given.get('options', '')} -c role={role}".strip()
    # Not in the query: what shows a URL hides the password where it belongs.
    user, password = (quote(given.pop(name, ""), safe="") for name in ("user", "password"))
    return f"postgresql+psycopg://{user}:{password}@/?{urlencode(given, quote_via=quote)}"
