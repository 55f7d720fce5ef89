"""`Journal`, the public interface of the package. It decides nothing: `Payments` and `Callbacks` do.

Thread safety: a journal may be shared by all threads, and used after a fork.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol, Self, TypeVar

from momopay._redaction import clears_frames, redacted_repr
from momopay.errors import ConfigurationError
from momopay.journal.ends import Ends
from momopay.journal.entries import EntryKind, JournalEntry, JournalState
from momopay.journal.releases import check_free, check_lease_is_over
from momopay.journal.reports import Reports

if TYPE_CHECKING:  # at run time it needs SQLAlchemy
    from momopay.journal.accounts import Accounts
    from momopay.journal.collections import Collections
    from momopay.journal.payments import Payments

__all__ = ["Journal", "ReconcilingClient"]

T_co = TypeVar("T_co", covariant=True)
logger: logging.Logger = logging.getLogger("momopay")


class _ReconcilingPayouts(Protocol[T_co]):
    def _reconcile_all(self, *, journal: Journal) -> T_co: ...


class ReconcilingClient(Protocol[T_co]):
    """What `Journal.reconcile_all` takes: a `Client` or an `AsyncClient`. This module must not import them."""

    @property
    def payouts(self) -> _ReconcilingPayouts[T_co]:
        """B2C payouts."""
        ...


class Journal(Ends, Reports):
    """A durable record of payouts, one row for each reference, for ``payouts.pay_once``.

    One journal belongs to one account of the service. All processes that pay from the account share it, and no row is
    ever deleted. Its methods block for as long as the disk takes; from a coroutine, call them in a thread. Nothing here
    moves money. A forked child may go on using it; over SQLite only if no thread used it at that moment, else all that
    the child does with it raises JournalError.

    Args:
        url: ``sqlite:///payouts.db`` for the processes of one machine, on a local disk; or
            ``postgresql+psycopg://user@host/database`` for many. The tables are created at the first use.
        account: A name for the account of the service, so that one database can serve several. Each name is bound, at
            its first payment, to the mode of the key (test or live) and the host of the base URL; and to the tenant,
            once an answer has shown it. Another key, host or tenant is a ConfigurationError.
        create: False if the journal must exist: a database without one is a ConfigurationError at the first use, and
            nothing is created. A wrong path then never looks like an empty journal.

    Raises:
        ConfigurationError: Another database, or one that does not outlive the process; or the account has no name.
    """

    @clears_frames
    def __init__(self, url: str, *, account: str = "default", create: bool = True) -> None:
        try:  # the only imports of the optional libraries
            from sqlalchemy import make_url
            from sqlalchemy.exc import ArgumentError

            from momopay.journal.accounts import Accounts
            from momopay.journal.callbacks import Callbacks
            from momopay.journal.collections import Collections
            from momopay.journal.database import ForkSafeDatabase
            from momopay.journal.history import History
            from momopay.journal.lease import LeaseHolder
            from momopay.journal.lookups import Lookups
            from momopay.journal.payments import Payments
            from momopay.journal.recorder import Recorder
            from momopay.journal.sweeps import Sweeps
        except ModuleNotFoundError as missing:
            if missing.name not in {"filelock", "psycopg", "sqlalchemy"}:
                raise
            remedy = "the journal needs an extra: pip install 'momopay[journal]'"
            raise ModuleNotFoundError(remedy, name=missing.name) from missing
        try:
            parsed = make_url(url)
        except (ArgumentError, ValueError):
            parsed = None
        if parsed is None:  # raised out here, not chained: the error's text may quote a part of the password
            raise ConfigurationError('not the URL of a database; "sqlite:///payouts.db" is one')
        if not isinstance(account, str) or not account.strip():
            raise ConfigurationError("account must be a name, as text")
        self._database = ForkSafeDatabase(parsed, create=create)
        leases = LeaseHolder(self._database)
        self._accounts = Accounts(self._database, account)
        self._payments = Payments(self._database, leases, account)
        self._collections = Collections(self._database, leases, account)
        self._callbacks = Callbacks(self._database, leases, account)
        rows = {EntryKind.PAYOUT: self._payments, EntryKind.COLLECTION: self._collections}
        self._lookups = Lookups(self._database, account, rows)
        self._recorder = Recorder(self._payments, self._collections, self._lookups)
        self._history = History(self._database, leases, account)
        self._sweeps = Sweeps(self._database, account)
        self._name = parsed.render_as_string(hide_password=True)

    def get(self, reference: str, kind: EntryKind = EntryKind.PAYOUT) -> JournalEntry | None:
        """Return the entry of a reference.

        Args:
            reference: The caller's reference.
            kind: Of a payout or of a collection; each kind has references of its own.

        Returns:
            What is known of it, or None.

        Raises:
            JournalError: The database failed.
        """
        return rows_of(self, EntryKind(kind)).get(reference)

    def unresolved(self) -> list[JournalEntry]:
        """Return what may or may not have been paid, oldest first. What is being sent now is not among it.

        `reconcile_all` resolves what the service's list shows. The rest needs a human: look into the account console,
        then `release` what was certainly not paid.

        Returns:
            The entries in UNKNOWN, of both kinds.

        Raises:
            JournalError: The database failed.
        """
        return sorted(self._payments.unresolved() + self._collections.unresolved(), key=lambda entry: entry.sent_at)

    def release(self, reference: str, by: str | None = None, kind: EntryKind = EntryKind.PAYOUT) -> JournalEntry:
        """Allow, as a human, that a payment is sent which was not made: UNKNOWN becomes NOT_SENT.

        Prefer ``client.payouts.release``, which first searches the service's list. This one trusts you. If the payment
        was made after all, it may be made twice. Look into the account console first, and no sooner than its list can
        have caught up. Refused and unsent references may be sent without a release. Logged at WARNING.

        Args:
            reference: The caller's reference.
            by: Who decided, kept in the entry.
            kind: Of a payout or of a collection.

        Returns:
            The entry, as it is now.

        Raises:
            RequestValidationError: The reference was accepted, may still be sent by a process that died or is frozen
                (until a minute after its lease), or is not in the journal.
            JournalError: The database failed.
        """
        rows = rows_of(self, EntryKind(kind))
        entry = rows.get(reference)
        if entry is not None and entry.state is JournalState.UNKNOWN:
            check_lease_is_over(rows, entry)
            if rows.release(entry, by):
                logger.warning("reference %s was released: it may be sent", redacted_repr(reference))
            entry = rows.get(reference)
        return check_free(entry)

    def reconcile_all(self, client: ReconcilingClient[T_co]) -> T_co:
        """Search the service's list for all that is unresolved, in one walk; as at the start of a worker.

        Args:
            client: A client of the account; with an `AsyncClient`, await the result.

        Returns:
            A list of what was unresolved, as it is now. An entry is ACCEPTED where the list shows exactly one payout
            that fits, or a prompt of the order. Else it is still UNKNOWN.

        Raises:
            MomoPayError: What ``transactions.find`` raises; nothing is lost, call it again.
            JournalError: The database failed.
        """
        return client.payouts._reconcile_all(journal=self)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]

    def close(self) -> None:
        """Close the journal. It cannot be used afterwards."""
        self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Journal({self._name!r})"


def payments_of(journal: Journal) -> Payments:
    """Return the rows that ``payouts.pay_once`` writes; raise ConfigurationError if it is no journal."""
    _check_is_journal(journal)
    return journal._payments  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  this module's own class


def collections_of(journal: Journal) -> Collections:
    """Return the rows that ``stk.collect_once`` writes; raise ConfigurationError if it is no journal."""
    _check_is_journal(journal)
    return journal._collections  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  this module's own class


def rows_of(journal: Journal, kind: EntryKind) -> Payments:
    """Return the rows of a kind."""
    return collections_of(journal) if kind is EntryKind.COLLECTION else payments_of(journal)


def accounts_of(journal: Journal) -> Accounts:
    """Return what the journal is bound to; raise ConfigurationError if it is no journal."""
    _check_is_journal(journal)
    return journal._accounts  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  this module's own class


def _check_is_journal(journal: object) -> None:
    if not isinstance(journal, Journal):
        raise ConfigurationError("journal must be a momopay.Journal")
