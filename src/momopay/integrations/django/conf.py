"""The setting ``MOMOPAY``: options of the clients, the signer of callback URLs, and the journal's database."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import quote, urlencode

from django.conf import settings
from django.db import DEFAULT_DB_ALIAS, connections

from momopay.errors import ConfigurationError
from momopay.signing import CallbackSigner

_OWN: Final = {"CALLBACK_BASE_URL", "CALLBACK_SECRETS", "DATABASE"}


def options() -> dict[str, Any]:
    """Return the setting."""
    return dict(getattr(settings, "MOMOPAY", {}))


def client_options() -> dict[str, Any]:
    """Return the arguments of the clients, apart from the journal."""
    return {name.lower(): value for name, value in options().items() if name not in _OWN}


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
    """Return the journal's URL; raise ConfigurationError if it cannot be in a database of that kind."""
    connection: Any = connections[database()]
    if connection.vendor == "sqlite":
        return f"sqlite:///{connection.settings_dict['NAME']}"
    if connection.vendor != "postgresql":
        raise ConfigurationError(
            f"the database {connection.alias!r} is {connection.vendor}: payments need SQLite or PostgreSQL"
        )
    # What libpq takes. The rest are objects and switches of Django and psycopg.
    found = connection.get_connection_params()
    given = {name: str(value) for name, value in found.items() if type(value) in {str, int}}
    given.pop("prepare_threshold", None)
    # Not in the query: what shows a URL hides the password where it belongs.
    user, password = (quote(given.pop(name, ""), safe="") for name in ("user", "password"))
    return f"postgresql+psycopg://{user}:{password}@/?{urlencode(given, quote_via=quote)}"
