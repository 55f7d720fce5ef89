"""Which callbacks were handled: each (transaction id, status) once."""

from __future__ import annotations

import logging
from collections.abc import Generator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Final

from sqlalchemy import ColumnElement, and_, delete, select, update

from momopay.errors import CallbackError, MomoPayError
from momopay.journal.lease import Lease, LeaseHolder
from momopay.journal.schema import callbacks, insert_new, update_one
from momopay.models.callbacks import Callback

logger: logging.Logger = logging.getLogger("momopay")

HANDLING: Final = 600.0
"""Seconds after which a handler counts as dead, though its process may live."""


class SeenCallbacks:
    """What the journal remembers of callbacks."""

    def __init__(self, holding: LeaseHolder) -> None:
        self._holding = holding

    def first_seen(self, callback: Callback) -> bool:
        """Remember a callback as handled; tell whether it was not before."""
        with self._holding.claim() as claim:
            return self._insert(callback, claim, handled=True)

    @contextmanager
    def handling(self, callback: Callback) -> Generator[bool]:
        """Hold a callback while it is handled; see `Journal.handling`."""
        with self._holding.claim() as claim:
            if not self._take(callback, claim):
                yield False
                return
            mine = and_(_is(callback), callbacks.c.claim == claim.id)
            try:
                yield True
            except BaseException:
                self._let_go(callback, mine)
                raise
            with self._holding.connection() as connection:
                connection.execute(update(callbacks).where(mine).values(handled=True))

    def _let_go(self, callback: Callback, mine: ColumnElement[bool]) -> None:
        """Free the callback at once; if that fails it is free all the same, its claim being over."""
        try:
            with self._holding.connection() as connection:
                connection.execute(delete(callbacks).where(mine))
        except MomoPayError as error:
            logger.error("callback for %s: %s", callback.transaction_id, error)  # noqa: TRY400  the body's error is raised

    def _take(self, callback: Callback, claim: Lease) -> bool:
        """Hold the callback if nobody does; tell whether it is still to be handled.

        Raises:
            CallbackError: Somebody else is handling it.
        """
        if self._insert(callback, claim, handled=False):
            return True
        with self._holding.connection() as connection:
            row = connection.execute(select(callbacks).where(_is(callback))).mappings().one_or_none()
        if row is not None and row["handled"]:
            return False
        if row is not None and self._holding.is_over(row):
            again = update(callbacks).where(_is(callback), callbacks.c.claim == row["claim"], ~callbacks.c.handled)
            again = again.values(self._holding.mark(claim, HANDLING))
            with self._holding.connection() as connection:
                if update_one(connection, again):
                    return True
        raise CallbackError(f"another is handling the callback for {callback.transaction_id}; let it come again")

    def _insert(self, callback: Callback, claim: Lease, *, handled: bool) -> bool:
        values: dict[str, object] = {
            "transaction_id": callback.transaction.id,
            "status": str(callback.transaction.status),
            "seen_at": datetime.now(UTC).isoformat(),
            "handled": handled,
            **self._holding.mark(claim, HANDLING),
        }
        with self._holding.connection() as connection:
            return insert_new(connection, callbacks, values)


def _is(callback: Callback) -> ColumnElement[bool]:
    identity, status = callback.key
    return and_(callbacks.c.transaction_id == identity, callbacks.c.status == str(status))
