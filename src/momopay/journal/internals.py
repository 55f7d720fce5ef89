"""What is behind a `Journal`: it is loaded when one is made, because it needs the optional libraries."""

from __future__ import annotations

from os import PathLike
from typing import TYPE_CHECKING

from momopay._core.journal_url import check_url, decoded, encoded
from momopay.errors import ConfigurationError

if TYPE_CHECKING:
    from momopay.journal.delivery import Deliveries, Recorder
    from momopay.journal.queue import Queue
    from momopay.journal.store import Store


class Internals:
    """The objects behind a journal. They are in a class of their own so that editors do not offer them."""

    def __init__(self, url: str, account: str, *, create: bool) -> None:
        if isinstance(url, str | PathLike):  # Django passes a URL of SQLAlchemy
            check_url(url)
            url = encoded(url)
        try:  # the only imports of the optional libraries
            from sqlalchemy import make_url
            from sqlalchemy.exc import ArgumentError

            from momopay.journal.delivery import Deliveries, Recorder
            from momopay.journal.queue import Queue
            from momopay.journal.sharing import open_database
            from momopay.journal.store import Store

            try:
                parsed = make_url(url)
                parsed = parsed.set(database=decoded(parsed.database or "") or None)
                shown = parsed.difference_update_query(["password"])  # libpq takes it there, too
                self.name: str = shown.render_as_string(hide_password=True)  # refuses what is not Unicode
            except (ArgumentError, ValueError):
                parsed = None
            if parsed is None:  # raised here, without a chain: the text of the error may quote part of the password
                raise ConfigurationError('journal must be the URL of a database, such as "sqlite:///payments.db"')
            database = open_database(parsed, create=create)  # loads the driver
        except ModuleNotFoundError as missing:
            if missing.name not in {"psycopg", "sqlalchemy"}:
                raise
            remedy = 'the journal needs an extra: pip install "momopay[journal]"'
            if str(url).startswith("postgres"):
                remedy = (
                    'the journal in PostgreSQL needs psycopg 3: pip install "momopay[postgresql]". psycopg2 may stay'
                    " installed, but does not serve the journal"
                )
            raise ModuleNotFoundError(remedy, name=missing.name) from missing
        self.store: Store = Store(database, account)
        self.recorder: Recorder = Recorder(self.store)
        self.queue: Queue = Queue(self.store)
        self.deliveries: Deliveries = Deliveries(self.store)
