"""`Journal`, the public interface of the package: it checks arguments and delegates to the other modules."""

from __future__ import annotations

import logging
from collections.abc import Coroutine, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import UTC, date, datetime, tzinfo
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, overload

from momopay._redaction import clears_frames, redacted_repr
from momopay.errors import ConfigurationError, RequestValidationError
from momopay.journal.activity import ActivityDay
from momopay.journal.entries import HistoryEntry, JournalCheck, JournalEntry, JournalState
from momopay.journal.internals import Internals
from momopay.models.callbacks import Callback, CallbackTransaction
from momopay.models.enums import EntryKind, TransactionStatus
from momopay.models.payments import Payment
from momopay.models.transactions import Payout, TransactionSummary

if TYPE_CHECKING:  # a journal uses them only as the caller's
    from momopay.client import AsyncClient, Client
else:  # for `typing.get_type_hints`
    AsyncClient = Client = Any

logger: logging.Logger = logging.getLogger("momopay")

_MIN_SECRET_BYTES, _MOST_DAYS = 16, 366  # the days of a report
_FIRST, _LAST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)


class Journal:
    """A durable record of payments, one entry for each reference, for the calls that pay or collect once.

    One journal belongs to one account of the service. All processes that pay from the account share it. No entry is
    ever deleted, and no method moves money.

    The methods block while the database works; from a coroutine, call them in a thread. Each raises JournalError if the
    database fails. All threads may share a journal, and a forked child may use its parent's. With SQLite, all calls of
    the child raise JournalError if any thread was using the journal during the fork.

    `record` and `settle` trust the callback that you pass, and anybody can send one. Pass it only if
    ``transactions.confirm`` confirmed it or a `CallbackSigner` verified its URL, as `momopay.integrations` do.

    Args:
        url: ``sqlite:///payments.db`` for the processes of one machine, on a local disk; or
            ``postgresql+psycopg://user@host/database`` for many machines. The tables are created at the first use.
        account: A name for the account of the service, so that one database can serve several. Its first payment binds
            it to the mode of the key (test or live), the host of the base URL, and the tenant. For a key that the
            journal does not know, the client first reads the tenant. Another mode, host or tenant is a
            ConfigurationError.
        create: If False, the journal must exist: a database without one is a ConfigurationError at the first use, and
            nothing is created. Use it so that a wrong path does not look like an empty journal.

    Raises:
        ConfigurationError: The URL is of another database, or of one that does not outlive the process; or the account
            has no name. At the first use: the database cannot be opened, has a journal of another version, or is a file
            with a second name.
    """

    @clears_frames
    def __init__(self, url: str, *, account: str = "default", create: bool = True) -> None:
        if not isinstance(account, str) or not account.strip():
            raise ConfigurationError('account must be a name for this account in the database, as text, such as "shop"')
        self._internals = Internals(url, account, create=create)

    def get(self, reference: str, kind: EntryKind | None = None) -> JournalEntry | None:
        """Return the entry of a reference, or None.

        Each kind has its own references. Without `kind`, both are searched.

        Raises:
            ValueError: A payout and a collection have this reference: pass `kind`.
        """
        kinds = list(EntryKind) if kind is None else [EntryKind(kind)]
        found = [entry for each in kinds if (entry := self._internals.store.get(each, reference)) is not None]
        if len(found) > 1:
            raise ValueError("a PAYOUT and a COLLECTION have this reference: pass kind=EntryKind.PAYOUT or .COLLECTION")
        return found[0] if found else None

    def unresolved(self) -> list[JournalEntry]:
        """Return the entries that may or may not have been paid, oldest first, without those being sent now.

        `reconcile_all` resolves those that the service's list shows. A person must decide about the rest: look in the
        account console, then call ``client.payouts.release`` for a payment that was certainly not made.
        """
        return self._internals.store.unresolved()

    def open(self) -> list[JournalEntry]:
        """Return the entries of both kinds with an accepted transaction that has not settled, oldest first.

        A payout that FAILED is open until it is REVERSED, and a paid order while another of its prompts is. A sweep
        follows all of them. For payments that may not have been accepted, see `unresolved`.
        """
        return self._internals.store.open()

    def entries(
        self,
        kind: EntryKind | None = None,
        state: JournalState | None = None,
        status: TransactionStatus | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> Iterator[JournalEntry]:
        """Iterate over the entries, newest first by `created_at`.

        The iterator reads a page at a time, so memory does not grow with the number of entries. An entry that is added
        meanwhile may be missing. One thread at a time may use the iterator.

        Args:
            kind: Only payouts, or only collections.
            state: Only entries in this state, as `get` returns it.
            status: Only entries with this last known status.
            since: Only entries created at this time or later.
            until: Only entries created before this time.

        Raises:
            RequestValidationError: An unknown kind, state or status, or a time without a time zone.
        """
        _check_times(since=since, until=until)
        try:
            kind = None if kind is None else EntryKind(kind)
            state = None if state is None else JournalState(state)
            status = None if status is None else TransactionStatus(status)
        except ValueError:
            raise RequestValidationError({"kind, state or status": "is none that the journal knows"}) from None
        return (entry for page in self._internals.store.pages(kind, state, status, since, until) for entry in page)

    def activity(self, days: int = 30, *, last: date | None = None, zone: tzinfo | None = None) -> list[ActivityDay]:
        """Return what was collected, paid out, refunded and not paid on each day, oldest first.

        With the success rate of prompts. A transaction counts on the day on which it ended, by the service's clock.
        ``momopay report`` shows this.

        Args:
            days: How many days, at most 366.
            last: The last of them. By default today.
            zone: The time zone of the days, such as ``ZoneInfo("Africa/Nairobi")``. By default this machine's.

        Raises:
            RequestValidationError: Another number of days, or days at the edge of the calendar.
        """
        if type(days) is not int or not 1 <= days <= _MOST_DAYS:
            raise RequestValidationError({"days": f"must be a whole number from 1 to {_MOST_DAYS}"})
        last = last or datetime.now(UTC).astimezone(zone).date()
        try:
            return list(self._internals.store.days(last, days, zone))
        except (OverflowError, ValueError):
            raise RequestValidationError({"last": "is at the edge of the calendar"}) from None

    def by_receipt(self, receipt: str) -> JournalEntry | None:
        """Return the entry with the provider's receipt that a customer quotes; None if no record had it.

        If several entries have it, return the newest and log a WARNING. If there is none, its callback may have been
        lost, and the reads that found the payment had no receipt: search by phone, with ``transactions.find`` or
        ``momopay transactions find --phone``.

        Args:
            receipt: The receipt in any case, with spaces, dots, dashes or invisible characters in it or around it, or
                the whole message that the customer got.
        """
        entries = self._internals.store.by_receipt(receipt)
        if len(entries) > 1:
            logger.warning("%d entries have the receipt %s", len(entries), redacted_repr(receipt))
        return entries[0] if entries else None

    def by_transaction(self, evidence: TransactionSummary | Payout | Callback) -> JournalEntry | None:
        """Return the entry that has a transaction, or that has its reference, amount and phone.

        The entry has its kind and your reference; the service may know an order by another one of up to 12 characters.
        Nothing is recorded. Return None if there is no such entry, as for a payment that was sent without the journal.
        """
        return self._internals.recorder.entry_of(evidence.transaction if isinstance(evidence, Callback) else evidence)

    def record(self, callback: Callback) -> JournalEntry | None:
        """Record what a callback says: receipt, status, result code, fee and end.

        A prompt that the journal does not know is not recorded: pass what ``transactions.confirm`` returns to `settle`.

        Returns:
            The updated entry. None if no entry has the callback's transaction or reference, or if its transaction is
            not known and it lacks an amount or a phone.

        Raises:
            CallbackMismatchError: The callback has another amount, phone or reference than the entry. Nothing was
                recorded. Respond with a status other than 2xx, and find out who sent it.
        """
        return self._internals.recorder.record(callback)

    def settle(self, evidence: TransactionSummary | Payout | Callback) -> JournalEntry | None:
        """Record what the service's own record says: that it accepted a payment, and how the payment ended.

        Pass a callback, or a transaction from ``transactions.confirm``, ``get``, ``find`` or ``wait``. After this, a
        payout with that reference is never sent again.

        Returns:
            The updated entry; None if the transaction belongs to none. A transaction with another amount or phone, or a
            new one that lacks either, does not belong to the entry of its reference.
        """
        return self._internals.recorder.settle(evidence.transaction if isinstance(evidence, Callback) else evidence)

    def history(self, reference: str, kind: EntryKind | None = None) -> list[HistoryEntry]:
        """Return what happened to a payment, in order: each change of it and its transactions, and each delivery.

        An order may have the same reference as a payout: pass `kind` for one of them. Only what was delivered is known
        of a payment that no entry knows, under the service's reference.
        """
        return self._internals.store.history(reference, None if kind is None else EntryKind(kind))

    def handling(self, end: Payment | Callback | TransactionSummary) -> AbstractContextManager[bool]:
        """Return a context in which to handle an end once. If it succeeds, the end is recorded as delivered.

        If the context raises, the end can be handled again. ``transactions.receive`` and ``sweep`` use this, so an end
        that both bring is handled once. Two ends are the same if they have the same transaction id and status; FAILED,
        CANCELLED and EXPIRED count as one status, which is not handled after SUCCESS or REVERSED. A status that is no
        end, such as PROCESSING, is not handled after an end.

        An end is handled at least once if its callback comes again or a sweep runs. It may be handled twice if the
        process dies, or the database fails, before the context ends, or if the context takes over ten minutes.

        Returns:
            A context manager that yields True if you are to handle the end, False if it was handled before.

        Raises:
            CallbackError: On entering: another call is handling this end, or another end of the transaction. Respond
                with a status other than 2xx, so that the callback comes again.
        """
        from momopay.journal.delivery import end_in

        record = end.transaction if isinstance(end, Callback) else end
        if isinstance(record, TransactionSummary | CallbackTransaction):
            return self._internals.deliveries.handling(end_in(record, self._internals.recorder.entry_of(record)))
        return self._internals.deliveries.handling(record)

    @overload
    def reconcile_all(self, client: Client) -> list[JournalEntry]: ...
    @overload
    def reconcile_all(self, client: AsyncClient) -> Coroutine[Any, Any, list[JournalEntry]]: ...
    def reconcile_all(self, client: Client | AsyncClient) -> Any:
        """Search the service's list once for all unresolved payments, for example when a worker starts.

        Returns:
            The entries that were unresolved, as they are now; with an `AsyncClient`, await it. An entry is ACCEPTED if
            the list shows exactly one payout that fits, or a prompt of the order. Otherwise it is still UNKNOWN.
        """
        return client.payouts._reconcile_all(self)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]

    def accept_restored(self, *, by: str) -> str:
        """Accept a journal that went back in time: a restored copy, a truncated log, a failover to an older standby.

        Such a journal does not know what was paid since, and every durable call refuses it. First reconcile the days
        between, with ``transactions.reconcile`` or ``momopay reconcile``. `by` is the name of who decides; an empty one
        is a RequestValidationError. The name and the days are logged at WARNING. If this process knows that nothing was
        lost, nothing changes.

        Returns:
            Which days to reconcile, as a sentence; "" if nothing changed.
        """
        if not isinstance(by, str) or not by.strip():
            raise RequestValidationError({"by": "must be the name of who decides, as text"})
        from momopay.journal.guards import accept_restored

        return accept_restored(self._internals.store.accounts, self._internals.store.watermark, by)

    def check(self) -> JournalCheck:
        """Check the whole journal, for example after a restore, and return what it belongs to and what needs a person.

        Ends that no handler got within 30 days are counted. This changes nothing. It reads everything, which takes some
        seconds for a gigabyte. A damaged file is a JournalError: restore it from a backup.
        """
        queue = self._internals.queue
        return replace(self._internals.store.inspect(), skipped=queue.skipped()[0] if queue.has_delivered() else 0)

    def backup(self, path: str | PathLike[str]) -> None:
        """Copy the whole database, with all its accounts, into a new SQLite file while others write.

        The file has mode 0600 and appears at the path when it is complete. Also if this journal is in PostgreSQL, the
        copy opens with ``Journal("sqlite:///...", create=False)``. Payments that were being sent read as UNKNOWN in it.
        Never pay from an old copy while a newer journal exists: it does not know what was paid since. If the path
        exists, this is a RequestValidationError.
        """
        from momopay.journal.retention import back_up

        back_up(self._internals.store.database, Path(path).absolute())

    @clears_frames
    def anonymise(self, *, before: datetime, secret: str | bytes | None = None) -> int:
        """Remove the phones and the metadata of the entries that ended before a time. This cannot be undone.

        References, amounts, ids, receipts and times stay, so nothing is paid again; so does a phone in a reference.
        `pay_once` with an anonymised reference still returns its transaction, or raises DuplicatePayoutError if the
        payout was refused or not sent. Open and unresolved entries are not changed, nor are earlier copies. PostgreSQL
        keeps old versions of rows until a VACUUM.

        Args:
            before: A time with a time zone. Entries that ended, were refused or were not sent before it are changed.
            secret: Replace each phone by ``hmac-sha256:`` and its HMAC with this secret, so that the same phone can
                still be recognised. Generate it at random, of 16 bytes and more, and keep it outside the journal.

        Returns:
            The number of entries that were changed. With a time without a zone (RequestValidationError) or an empty
            secret (ConfigurationError), it is none.
        """
        _check_times(before=before)
        key = secret.encode() if isinstance(secret, str) else secret
        if key is not None and not key:
            raise ConfigurationError("the secret is empty; give one as from secrets.token_hex()")
        if key is not None and len(key) < _MIN_SECRET_BYTES:
            logger.warning("the secret has fewer than %d bytes: the phones can be guessed", _MIN_SECRET_BYTES)
        from momopay.journal.retention import anonymise

        return anonymise(self._internals.store, before, key)

    @staticmethod
    @clears_frames
    def migrate(url: str, *, check: bool = False) -> str:
        """Create the journal's tables, or upgrade them to the version of this momopay, if that is to be done.

        The first use of a journal does it, too. Call this as a step of a deploy where the application's role may not
        create tables, or the journal is large. Processes of the version before may run meanwhile. Indexes that are
        missing or differ are made anew.

        Args:
            url: As for `Journal`.
            check: Only say what is to be done; nothing is changed.

        Returns:
            What was done, or with `check` what is to be done, as a sentence; "" if nothing.

        Raises:
            ConfigurationError: The database cannot be opened, or has a newer journal that this momopay must not write.
        """
        from momopay.journal.migrate import migrate, pending

        database = Internals(url, "default", create=not check).store.database
        try:
            return pending(database) if check else migrate(database)
        finally:
            database.close()

    @clears_frames
    def move_to(self, url: str, *, undo: bool = False, lost: bool = False) -> str:
        """Move the whole journal, with all accounts and its history, to another database; return what was done.

        Every row is compared. From then on, this journal refuses every call, also of processes that have it open, and
        says where it is. If this is killed, at most one of the two can be used, and calling it again finishes.

        Args:
            url: Of the target, which must hold no payment. Its tables are created.
            undo: Open this journal again, if no payment was begun in the target.
            lost: With `undo`: the target is lost. What was paid there is unknown: `accept_restored` each account.

        Raises:
            ConfigurationError: A call is sending, the target holds payments, or there is nothing to undo.
        """
        from momopay.journal import moving

        target = Internals(url, "default", create=not undo).store.database
        try:
            do = (moving.undo_without if lost else moving.undo) if undo else moving.move
            return do(self._internals.store.database, target)
        finally:
            target.close()

    def close(self) -> None:
        """Close the journal. It cannot be used afterwards, except by calls under way, which record their outcomes."""
        self._internals.store.database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Journal({redacted_repr(self._internals.name)})"


def internals(journal: Journal) -> Internals:
    """Return the objects behind a journal; raise ConfigurationError if it is none."""
    if not isinstance(journal, Journal):
        raise ConfigurationError('journal must be a momopay.Journal, or its URL, such as "sqlite:///payments.db"')
    return journal._internals  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  this module's own class


def _check_times(**times: datetime | None) -> None:
    for name, each in times.items():
        if each is None:
            continue
        if not isinstance(each, datetime) or each.utcoffset() is None or not _FIRST <= each <= _LAST:
            raise RequestValidationError({name: "must be a datetime with a time zone, of the years 1 to 9999 in UTC"})
