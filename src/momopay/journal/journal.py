"""`Journal`, the public interface of the package. It decides nothing.

Thread safety: a journal may be shared by all threads, and used after a fork.
"""

from __future__ import annotations

import logging
from collections.abc import Coroutine, Iterator
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from os import PathLike
from pathlib import Path
from typing import Any, Self, overload

import momopay
from momopay._redaction import clears_frames, redacted_repr
from momopay.errors import ConfigurationError, RequestValidationError
from momopay.journal.entries import EntryKind, JournalCheck, JournalEntry, JournalState
from momopay.models.callbacks import Callback
from momopay.models.enums import TransactionStatus
from momopay.models.transactions import Payout, TransactionSummary

logger: logging.Logger = logging.getLogger("momopay")

_MIN_SECRET_BYTES = 16
_FIRST, _LAST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)


class Parts:
    """What a journal is made of. A class of its own, so that editors do not offer it."""

    def __init__(self, url: str, account: str, *, create: bool) -> None:
        try:  # the only imports of the optional libraries
            from sqlalchemy import make_url
            from sqlalchemy.exc import ArgumentError

            from momopay.journal.callbacks import Callbacks, Recorder
            from momopay.journal.database import Database
            from momopay.journal.reports import Reports
            from momopay.journal.store import Store

            try:
                parsed = make_url(url)
                self.name: str = parsed.render_as_string(hide_password=True)  # refuses what is not Unicode
            except (ArgumentError, ValueError):
                parsed = None
            if parsed is None:  # raised out here, not chained: the error's text may quote a part of the password
                raise ConfigurationError('journal must be the URL of a database, such as "sqlite:///payments.db"')
            database = Database(parsed, create=create)  # loads the driver
        except ModuleNotFoundError as missing:
            if missing.name not in {"psycopg", "sqlalchemy"}:
                raise
            remedy = "the journal needs an extra: pip install 'momopay[journal]'"
            raise ModuleNotFoundError(remedy, name=missing.name) from missing
        self.store: Store = Store(database, account)
        self.recorder: Recorder = Recorder(self.store)
        self.reports: Reports = Reports(self.store)
        self.callbacks: Callbacks = Callbacks(self.store)


class Journal:
    """A durable record of payments, one entry for each reference, for the calls that pay or collect once.

    One journal belongs to one account of the service. All processes that pay from the account share it, and no entry is
    ever deleted. Nothing here moves money.

    Its methods block for as long as the disk takes; from a coroutine, call them in a thread. Each raises JournalError
    if the database failed. A forked child may go on using it; over SQLite only if no thread used it at that moment,
    else all that the child does with it raises JournalError.

    `record` and `settle` believe the callback that you pass, and anybody can send one: pass it only if
    ``transactions.confirm`` confirmed it, or a `CallbackSigner` verified its URL, as `momopay.integrations` do.

    Args:
        url: ``sqlite:///payments.db`` for the processes of one machine, on a local disk; or
            ``postgresql+psycopg://user@host/database`` for many. The tables are created at the first use.
        account: A name for the account of the service, so that one database can serve several. Each name is bound, at
            its first payment, to the mode of the key (test or live) and the host of the base URL; and to the tenant,
            which a key that the journal does not know is asked for. Another key, host or tenant is a
            ConfigurationError.
        create: False if the journal must exist: a database without one is a ConfigurationError at the first use, and
            nothing is created. A wrong path then never looks like an empty journal.

    Raises:
        ConfigurationError: Another database, or one that does not outlive the process; or the account has no name. At
            the first use: it cannot be opened, is of another version, or has a second name.
    """

    @clears_frames
    def __init__(self, url: str, *, account: str = "default", create: bool = True) -> None:
        if not isinstance(account, str) or not account.strip():
            raise ConfigurationError('account must be a name for this account in the database, as text, such as "shop"')
        self._parts = Parts(url, account, create=create)

    # What it has

    def get(self, reference: str, kind: EntryKind | None = None) -> JournalEntry | None:
        """Return the entry of a reference, or None.

        Each kind has references of its own. Without `kind` it is whichever there is; if a payout and a collection have
        the reference, ValueError.
        """
        kinds = list(EntryKind) if kind is None else [EntryKind(kind)]
        found = [entry for each in kinds if (entry := self._parts.store.get(each, reference)) is not None]
        if len(found) > 1:
            raise ValueError("a PAYOUT and a COLLECTION have this reference: pass kind=EntryKind.PAYOUT or .COLLECTION")
        return found[0] if found else None

    def unresolved(self) -> list[JournalEntry]:
        """Return what may or may not have been paid, oldest first. What is being sent now is not among it.

        `reconcile_all` resolves what the service's list shows. The rest needs a person: look into the account console,
        then ``client.payouts.release`` what was certainly not paid.
        """
        return self._parts.store.unresolved()

    def open(self) -> list[JournalEntry]:
        """Return what the service accepted and what has not settled, of both kinds, oldest first.

        A payout that FAILED is open until it is REVERSED, and a paid order is while another prompt of it is open.
        ``transactions.sweep`` follows all of them. What is UNKNOWN is not among them: see `unresolved`.
        """
        return self._parts.reports.open()

    def entries(
        self,
        kind: EntryKind | None = None,
        state: JournalState | None = None,
        status: TransactionStatus | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> Iterator[JournalEntry]:
        """Iterate over the entries, newest first by `created_at`, whose value never changes.

        Reads page by page, so that a million entries need no memory. An entry that is added meanwhile may be missing.
        The iterator may be used in this thread or in one other.

        Args:
            kind: Only payouts, or only collections.
            state: Only those in this state, as `get` shows it.
            status: Only those whose last known status this is.
            since: Only those whose reference was first used then or later.
            until: Only those whose reference was first used before.

        Raises:
            RequestValidationError: Not a kind, a state or a status, or a time without a time zone.
        """
        _check_times(since=since, until=until)
        try:
            kind = None if kind is None else EntryKind(kind)
            state = None if state is None else JournalState(state)
            status = None if status is None else TransactionStatus(status)
        except ValueError:
            raise RequestValidationError({"kind, state or status": "is none that the journal knows"}) from None
        return (entry for page in self._parts.reports.pages(kind, state, status, since, until) for entry in page)

    def by_receipt(self, receipt: str) -> JournalEntry | None:
        """Return the entry of the provider's receipt, which a customer quotes; None if no recorded callback had it.

        If several have it, it is the newest, and a WARNING is logged.
        """
        entries = self._parts.store.by_receipt(receipt)
        if len(entries) > 1:
            logger.warning("%d entries have the receipt %s", len(entries), redacted_repr(receipt))
        return entries[0] if entries else None

    def by_transaction(self, evidence: TransactionSummary | Payout | Callback) -> JournalEntry | None:
        """Return the entry that has a transaction, or that has its reference, amount and phone.

        It shows whether that is an order or a payout, and with which reference of yours: the service may know an order
        under another one, at most 12 characters long. Nothing is recorded. None if the journal has none, as of a
        payment that was sent without it.
        """
        return self._parts.recorder.entry_of(evidence.transaction if isinstance(evidence, Callback) else evidence)

    # What the service says

    def record(self, callback: Callback) -> JournalEntry | None:
        """Record what a callback says: receipt, status, result code, fee and end.

        A prompt that the journal does not know is recorded only if this very callback was confirmed.

        Returns:
            The entry as it is now, of a payout or a collection; None if the journal has none with that reference, or
            if the callback states no amount or phone and its transaction is not known.

        Raises:
            CallbackMismatchError: The callback states another amount, phone or reference than the entry; nothing was
                recorded. Respond with a status other than 2xx, and find out who sent it.
        """
        return self._parts.recorder.record(callback)

    def settle(self, evidence: TransactionSummary | Payout | Callback) -> JournalEntry | None:
        """Record what the service's own record says: that it accepted a payment, and how that ended.

        It may be a transaction from ``transactions.confirm``, ``get``, ``find`` or ``wait``; or a callback. The
        reference of a payout is never sent again after this.

        Returns:
            The entry as it is now; None if the transaction is none of this journal's. One with another amount or phone,
            or with none at all, does not identify it.
        """
        return self._parts.recorder.settle(evidence.transaction if isinstance(evidence, Callback) else evidence)

    def first_seen(self, callback: Callback | TransactionSummary) -> bool:
        """Record that an end was seen; return True once, and False ever after, in all processes.

        Ends are compared as by `handling`, which is for work that may fail: this stays recorded even if the work that
        follows fails.
        """
        return self._parts.callbacks.first_seen(callback)

    def handling(self, callback: Callback | TransactionSummary) -> AbstractContextManager[bool]:
        """Handle an end once: held for the context, recorded if it ends well, free again if it raises.

        Callbacks and ``transactions.sweep`` share it, so an end that both bring is handled once. Two ends are the same
        if their transaction's id and status are; FAILED, CANCELLED and EXPIRED count as one status. None of the three
        is handled after SUCCESS or REVERSED was.

        An end is handled at least once, if it comes again or somebody sweeps; and twice if the process died, or the
        database failed, between the effect and the end of this context, or if the body took longer than ten minutes.

        Returns:
            A context that gives True to the one that is to handle it, False if it was handled before.

        Raises:
            CallbackError: On entering: another call is handling it, or another end of its transaction; answer non-2xx,
                and it comes again.
        """
        return self._parts.callbacks.handling(callback)

    @overload
    def reconcile_all(self, client: momopay.Client) -> list[JournalEntry]: ...
    @overload
    def reconcile_all(self, client: momopay.AsyncClient) -> Coroutine[Any, Any, list[JournalEntry]]: ...
    def reconcile_all(self, client: momopay.Client | momopay.AsyncClient) -> Any:
        """Search the service's list for all that is unresolved, in one walk; as at the start of a worker.

        Returns:
            A list of what was unresolved, as it is now; with an `AsyncClient`, await it. An entry is ACCEPTED where the
            service's list shows exactly one payout that fits, or a prompt of the order. Else it is still UNKNOWN.
        """
        return client.payouts._reconcile_all(self)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]

    # Looking after it

    def accept_restored(self, *, by: str) -> str:
        """Let a journal be used that went back in time: a restored copy, a cut log, a failover to an older standby.

        Such a journal does not know what was paid since, and each durable call refuses it. Reconcile the days between
        first: ``transactions.reconcile``, or ``momopay reconcile``. `by` is who decides; an empty name is a
        RequestValidationError. Logged at WARNING, with these days. Does nothing to a journal that lost nothing.

        Returns:
            Which days to reconcile, as a sentence; "" if nothing was lost.
        """
        if not isinstance(by, str) or not by.strip():
            raise RequestValidationError({"by": "must be the name of who decides, as text"})
        return self._parts.store.watermark.accept(by)

    def check(self) -> JournalCheck:
        """Check the whole journal, as after a restore: the file, what it belongs to, and what needs a person.

        Changes nothing. Reads everything, which takes some seconds for a gigabyte. A damaged file is a JournalError:
        restore it from a backup.
        """
        return self._parts.reports.check()

    def backup(self, path: str | PathLike[str]) -> None:
        """Copy the whole database into a new file of SQLite, with all its accounts, while others write.

        The file has mode 0600 and appears at the path when it is complete. It opens as a journal,
        ``Journal("sqlite:///...", create=False)``, also if this one is in PostgreSQL. What was being sent at that
        moment reads as UNKNOWN there. Never pay from an old copy while a newer journal exists: it does not know what
        was paid since. A file that is there already is a RequestValidationError.
        """
        from momopay.journal.backup import back_up

        back_up(self._parts.store.database, Path(path).absolute())

    @clears_frames
    def anonymise(self, *, before: datetime, secret: str | bytes | None = None) -> int:
        """Remove the phones, and the metadata, of the entries that ended before a time. It cannot be undone.

        References, amounts, ids, receipts and times stay: nothing is paid again, and a phone or a name in a reference
        is kept. `pay_once` of an anonymised reference still returns its transaction; if that was refused or not sent,
        it raises `DuplicatePayoutError`. What is open or unresolved stays whole. Copies made before are not changed,
        and PostgreSQL keeps old versions of rows until a VACUUM.

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
        """
        _check_times(before=before)
        key = secret.encode() if isinstance(secret, str) else secret
        if key is not None and not key:
            raise ConfigurationError("the secret is empty; give one as from secrets.token_hex()")
        if key is not None and len(key) < _MIN_SECRET_BYTES:
            logger.warning("the secret has fewer than %d bytes: the phones can be guessed", _MIN_SECRET_BYTES)
        return self._parts.reports.anonymise(before, key)

    def close(self) -> None:
        """Close the journal. It cannot be used afterwards."""
        self._parts.store.database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Journal({self._parts.name!r})"


def parts_of(journal: Journal) -> Parts:
    """Return what a journal is made of; raise ConfigurationError if it is no journal."""
    if not isinstance(journal, Journal):
        raise ConfigurationError('journal must be a momopay.Journal, or its URL, such as "sqlite:///payments.db"')
    return journal._parts  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  this module's own class


def _check_times(**times: datetime | None) -> None:
    for name, each in times.items():
        if each is None:
            continue
        if not isinstance(each, datetime) or each.utcoffset() is None or not _FIRST <= each <= _LAST:
            raise RequestValidationError({name: "must be a datetime with a time zone, of the years 1 to 9999 in UTC"})
