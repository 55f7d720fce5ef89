"""What a `Journal` reports about all that it has, and how it is copied and anonymised."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from momopay._redaction import clears_frames
from momopay.errors import ConfigurationError, RequestValidationError
from momopay.journal.entries import EntryKind, Filters, JournalEntry, JournalState
from momopay.models.enums import TransactionStatus

if TYPE_CHECKING:  # at run time they need SQLAlchemy
    from momopay.journal.history import History
    from momopay.journal.refunds import Refunds
else:  # for `typing.get_type_hints`
    History = Refunds = Any

logger: logging.Logger = logging.getLogger("momopay")

_MIN_SECRET_BYTES = 16


@dataclass(frozen=True)
class JournalCheck:
    """What ``journal.check`` found.

    Attributes:
        account: The journal's account.
        version: Of the tables.
        mode: Of the keys, ``test`` or ``live``; None before the first payment.
        host: Of the service; None before the first payment.
        tenant_id: The tenant, once a response showed it.
        counts: How many entries there are of each kind and state, as stored: SENDING also of senders that died.
        unresolved: The references whose payments may have been made.
        not_settled: How many entries were accepted and wait for their end.
        paid_twice: The references of orders that were paid twice, and not paid back.
    """

    account: str
    version: int
    mode: str | None
    host: str | None
    tenant_id: str | None
    counts: Mapping[tuple[EntryKind, JournalState], int]
    unresolved: tuple[str, ...]
    not_settled: int
    paid_twice: tuple[str, ...]

    @property
    def needs_attention(self) -> bool:
        """Whether a person must do something: something is in doubt, or an order was paid twice."""
        return bool(self.unresolved or self.paid_twice)


class Reports:
    """The part of `Journal` that reads, copies and anonymises what is in it."""

    _history: History

    def entries(
        self,
        kind: EntryKind | None = None,
        state: JournalState | None = None,
        status: TransactionStatus | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> Iterator[JournalEntry]:
        """Iterate over the entries, newest first by `created_at`, whose value never changes.

        Reads the database page by page, so that a million entries need no memory. An entry that is added meanwhile may
        be missing; every other one comes once.

        Args:
            kind: Only payouts, or only collections.
            state: Only those in this state, as `get` shows it.
            status: Only those whose last known status this is.
            since: Only those whose reference was first used then or later.
            until: Only those whose reference was first used before.

        Returns:
            An iterator, to be used in this thread or in one other.

        Raises:
            RequestValidationError: Not a kind, a state or a status, or a time without a time zone.
            JournalError: During the iteration: the database failed.
        """
        _check_times(since=since, until=until)
        try:
            wanted = Filters(
                None if kind is None else EntryKind(kind),
                None if state is None else JournalState(state),
                None if status is None else TransactionStatus(status),
                since,
                until,
            )
        except ValueError:
            raise RequestValidationError({"kind, state or status": "is none that the journal knows"}) from None
        return (entry for page in self._history.pages(wanted) for entry in page)

    def backup(self, path: str | PathLike[str]) -> None:
        """Copy the whole database into a new file of SQLite, with all its accounts, while others write.

        The file has mode 0600 and appears at the path when it is complete. It opens as a journal,
        ``Journal("sqlite:///...", create=False)``, also if this one is in PostgreSQL. What was being sent at that
        moment reads as UNKNOWN there. Never pay from an old copy while a newer journal exists: it does not know what
        was paid since.

        Args:
            path: Where nothing is yet.

        Raises:
            RequestValidationError: There is a file.
            JournalError: The database or the disk failed; there is nothing at the path.
        """
        self._history.back_up(Path(path).absolute())

    @clears_frames
    def anonymise(self, *, before: datetime, secret: str | bytes | None = None) -> int:
        """Remove the phones, and the metadata, of the entries that ended before a time. It cannot be undone.

        The references stay used: nothing is paid again. `pay_once` of an anonymised reference still returns its
        transaction; if that was refused or not sent, it raises `DuplicatePayoutError`. Amounts, ids, receipts and times
        stay. So do references: if yours contain phones or names, the journal keeps them. What is open or in doubt stays
        whole. Copies made before are not changed, and PostgreSQL keeps old versions of rows until a VACUUM.

        Args:
            before: A time with a time zone: what ended, was refused, or was not sent before it.
            secret: Replace each phone by ``hmac-sha256:`` and its HMAC, keyed with this secret, so that the payments to
                one phone can still be recognised. From a random source, and kept outside the journal. With one of
                fewer than 16 bytes, which is logged at WARNING, the phones can be guessed.

        Returns:
            How many entries were changed.

        Raises:
            RequestValidationError: A time without a time zone; nothing was changed.
            ConfigurationError: An empty secret; nothing was changed.
            JournalError: The database failed. Call it again: what was changed stays changed.
        """
        _check_times(before=before)
        key = secret.encode() if isinstance(secret, str) else secret
        if key is not None and not key:
            raise ConfigurationError("the secret is empty; give one as from secrets.token_hex()")
        if key is not None and len(key) < _MIN_SECRET_BYTES:
            logger.warning("the secret has fewer than %d bytes: the phones can be guessed", _MIN_SECRET_BYTES)
        return self._history.anonymise(before, key)

    def check(self) -> JournalCheck:
        """Check the whole journal, as after a restore: the file, what it belongs to, and what needs a person.

        Changes nothing. Reads everything: a file of a gigabyte takes some seconds.

        Returns:
            What was found.

        Raises:
            JournalError: The database failed, or the file is damaged: restore it from a backup.
        """
        facts = self._history.facts()
        in_doubt = tuple(entry.reference for entry in self.entries(state=JournalState.UNKNOWN))
        refundable = (refunds_of(self, reference).refundable(besides="") for reference in facts.pop("paid_twice"))
        twice = tuple(each.of for each in refundable if each.overpaid)
        return JournalCheck(unresolved=in_doubt, paid_twice=twice, **facts)


def refunds_of(journal: object, of: str) -> Refunds:
    """Return the refunds of a collection; raise ConfigurationError if it is no journal."""
    if not isinstance(journal, Reports):
        raise ConfigurationError("journal must be a momopay.Journal")
    return journal._history.refunds(of)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  this module's own class


def _check_times(**times: datetime | None) -> None:
    for name, each in times.items():
        if each is not None and (not isinstance(each, datetime) or each.utcoffset() is None):
            raise RequestValidationError({name: "must be a datetime with a time zone"})
