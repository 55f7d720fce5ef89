"""All entries of an account: read page by page, checked, and anonymised once they are old.

Memory is bounded by a page, however many rows there are. Pages follow the key (created_at, kind, reference), which
never changes, so that every entry comes once, whatever others write meanwhile.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from sqlalchemy import Connection, RowMapping, bindparam, func, select, tuple_, update

from momopay.errors import JournalError
from momopay.journal.backup import back_up
from momopay.journal.collections import Collections
from momopay.journal.database import transaction
from momopay.journal.entries import (
    ANONYMISED,
    MAY_BE_SENT,
    OPEN,
    EntryKind,
    Filters,
    JournalEntry,
    JournalState,
)
from momopay.journal.refunds import Refunds
from momopay.journal.schema import HAS_NOT_SETTLED, accounts, lease_left, payments, prompts, update_one, versions
from momopay.models.enums import TransactionStatus

_PAGE: Final = 500  # rows; databases limit the parameters of a statement
# Seconds for which a check of a whole file may take.
_LONGEST_CHECK: Final = 3600.0

_columns: Final = payments.c
_KEY: Final = (_columns.created_at, _columns.kind, _columns.reference)
_IN_ACCOUNT: Final = _columns.account == bindparam("the_account")
# The hash of the body goes too: it is that of the phone and little else, so trying all phones would find the phone.
_ANONYMISE: Final = (
    update(payments)
    .where(
        _IN_ACCOUNT,
        _columns.kind == bindparam("the_kind"),
        _columns.reference == bindparam("the_reference"),
        _columns.state == bindparam("the_state"),
        _columns.claim == bindparam("the_claim"),
    )
    .values(phone=bindparam("new_phone"), metadata=None, body_hash="")
)
_SELECT_ACCOUNT: Final = select(accounts).where(accounts.c.account == bindparam("the_account"))
_COUNTS: Final = (
    select(_columns.kind, _columns.state, func.count().label("entries"))
    .where(_IN_ACCOUNT)
    .group_by(_columns.kind, _columns.state)
)
_COUNT_NOT_SETTLED: Final = select(func.count()).select_from(payments).where(_IN_ACCOUNT, HAS_NOT_SETTLED)
_PAID_TWICE: Final = (
    select(prompts.c.reference)
    .where(prompts.c.account == bindparam("the_account"), prompts.c.status == TransactionStatus.SUCCESS.value)
    .group_by(prompts.c.reference)
    .having(func.count() > 1)
    .order_by(prompts.c.reference)
)


class History(Collections):
    """The entries of an account, of both kinds."""

    def pages(self, wanted: Filters) -> Iterator[list[JournalEntry]]:
        """Yield pages of the entries that are wanted, newest first; a page may be empty."""
        statement = select(payments, lease_left(payments)).where(_IN_ACCOUNT)
        statement = statement.order_by(*(each.desc() for each in _KEY)).limit(_PAGE)
        if wanted.kind is not None:
            statement = statement.where(_columns.kind == wanted.kind.value)
        if wanted.state is not None:  # a row in SENDING may read as UNKNOWN
            stored = OPEN if wanted.state in OPEN else {wanted.state}
            statement = statement.where(_columns.state.in_([each.value for each in stored]))
        if wanted.status is not None:
            statement = statement.where(_columns.status == wanted.status.value)
        if wanted.since is not None:
            statement = statement.where(_columns.created_at >= _as_text(wanted.since))
        if wanted.until is not None:
            statement = statement.where(_columns.created_at < _as_text(wanted.until))
        last: RowMapping | None = None
        while True:
            page = statement if last is None else statement.where(_before(last))
            with self._database.connection() as connection:
                rows = connection.execute(page, self._rows).mappings().all()
                entries = self._complete(connection, rows)
            # The connection is free again: whoever iterates may take long.
            yield [each for each in entries if wanted.state in {None, each.state}]
            if len(rows) < _PAGE:
                return
            last = rows[-1]

    def anonymise(self, before: datetime, secret: bytes | None) -> int:
        """Remove the phones of what ended before, or replace them by their hashes; return of how many entries."""
        changed = 0
        for page in self.pages(Filters(until=before)):
            ended = [entry for entry in page if not entry.is_anonymised and _ended_before(entry, before)]
            with self._database.connection() as connection, transaction(connection):
                if connection.dialect.name == "sqlite":  # which would leave the phones in unused parts of the file
                    connection.exec_driver_sql("PRAGMA secure_delete=ON").close()
                for entry in ended:
                    values: dict[str, object] = {
                        "the_kind": entry.kind,
                        "the_state": entry.state,
                        "the_claim": entry.claim,
                    }
                    values["new_phone"] = _anonymous(entry.phone, secret)
                    # Whoever sends it again has changed the row, and needs the phone.
                    changed += update_one(connection, _ANONYMISE, self._values(entry.reference, values))
        with self._database.connection() as connection:
            if connection.dialect.name == "sqlite":  # and in the log beside it; somebody who reads may hinder this
                connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)").close()
        return changed

    def back_up(self, path: Path) -> None:
        """Copy the database, as `momopay.journal.backup` does."""
        back_up(self._database, path)

    def refunds(self, of: str) -> Refunds:
        """Return the refunds of a collection."""
        return Refunds(self._database, self.leases, self._account, of)

    def facts(self) -> dict[str, Any]:
        """Return what `JournalCheck` shows of the database, by its names."""
        with self._database.connection(seconds=_LONGEST_CHECK) as connection:
            if connection.dialect.name == "sqlite":  # a server checks its pages as it reads them
                problem = connection.exec_driver_sql("PRAGMA integrity_check(1)").scalar()
                if problem != "ok":
                    raise JournalError(f"the journal's file is damaged; restore it from a backup: {problem}")
            bound = connection.execute(_SELECT_ACCOUNT, self._rows).mappings().one_or_none()
            row: Mapping[Any, Any] = bound or {}
            counted = connection.execute(_COUNTS, self._rows).all()
            return {
                "account": self._account,
                "version": connection.scalar(select(versions.c.version)),
                **{name: row.get(name) for name in ("mode", "host", "tenant_id")},
                "counts": {(EntryKind(each.kind), JournalState(each.state)): each.entries for each in counted},
                "not_settled": connection.scalar(_COUNT_NOT_SETTLED, self._rows),
                "paid_twice": connection.scalars(_PAID_TWICE, self._rows).all(),
            }

    def _complete(self, connection: Connection, rows: Sequence[RowMapping]) -> list[JournalEntry]:
        collections = [row for row in rows if row["kind"] == EntryKind.COLLECTION]
        orders = {entry.reference: entry for entry in super()._complete(connection, collections)}
        return [orders[row["reference"]] if row["kind"] == EntryKind.COLLECTION else self._entry(row) for row in rows]


def _ended_before(entry: JournalEntry, before: datetime) -> bool:
    if any(prompt.is_open for prompt in entry.prompts):
        return False
    if entry.state is JournalState.ACCEPTED and entry.has_settled:
        return (entry.ended_at or entry.sent_at) < before
    return entry.state in MAY_BE_SENT and entry.sent_at < before


def _anonymous(phone: str, secret: bytes | None) -> str:
    return "" if secret is None else ANONYMISED + hmac.new(secret, phone.encode(), "sha256").hexdigest()


def _before(row: RowMapping) -> Any:
    return tuple_(*_KEY) < tuple_(row["created_at"], row["kind"], row["reference"])


def _as_text(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="microseconds")
