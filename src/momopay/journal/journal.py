"""The journal as its users see it."""

from __future__ import annotations

import logging
from collections.abc import Coroutine
from contextlib import AbstractContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeAlias, overload

from momopay._redaction import clears_frames, redacted_repr
from momopay.errors import ConfigurationError, RequestValidationError
from momopay.journal.entries import MAY_BE_SENT, JournalEntry
from momopay.models.callbacks import Callback
from momopay.models.enums import TransactionType
from momopay.models.payouts import Payout
from momopay.models.transactions import TransactionSummary
from momopay.phones import same_phone

if TYPE_CHECKING:
    from momopay.client import AsyncClient, Client
    from momopay.journal.payments import Payments

logger: logging.Logger = logging.getLogger("momopay")

Evidence: TypeAlias = TransactionSummary | Payout | Callback
"""What may tell that a payout was accepted."""


class Journal:
    """What was paid, durably: a row for each reference, for ``payouts.pay_once``.

    One journal belongs to one account of the service. All processes that pay from it share one, and no row is ever
    deleted. Its methods block for as long as the disk takes; from a coroutine, call them in a thread. Nothing here
    moves money. A forked child may go on with it; over SQLite only if no thread used it at that moment, else all that
    it does there raises JournalError.

    Args:
        url: ``sqlite:///payouts.db`` for the processes of one machine, on a local disk; or
            ``postgresql+psycopg://user@host/database`` for many. The tables are made at the first use.

    Raises:
        ConfigurationError: Another database, or one that does not outlive the process.
    """

    @clears_frames
    def __init__(self, url: str) -> None:
        try:
            from sqlalchemy import make_url
            from sqlalchemy.exc import ArgumentError

            from momopay.journal.callbacks import SeenCallbacks
            from momopay.journal.lease import LeaseHolder
            from momopay.journal.payments import Payments
        except ModuleNotFoundError as missing:
            if missing.name not in {"filelock", "psycopg", "sqlalchemy"}:
                raise
            remedy = "the journal needs an extra: pip install 'momopay[journal]'"
            raise ModuleNotFoundError(remedy, name=missing.name) from missing
        try:
            parsed = make_url(url)
        except (ArgumentError, ValueError):
            parsed = None
        if parsed is None:
            raise ConfigurationError('not the URL of a database; "sqlite:///payouts.db" is one')
        self._holding = LeaseHolder(parsed)
        self._rows = Payments(self._holding)
        self._seen = SeenCallbacks(self._holding)
        self._name = parsed.render_as_string(hide_password=True)

    def get(self, reference: str) -> JournalEntry | None:
        """Look a reference up.

        Args:
            reference: The caller's reference.

        Returns:
            What is known of it, or None.

        Raises:
            JournalError: The database failed.
        """
        return self._rows.get(reference)

    def unresolved(self) -> list[JournalEntry]:
        """List what may or may not have been paid, oldest first; what is being sent now is not among it.

        `reconcile_all` settles what the service's list shows. What it leaves needs a human: look into the account
        console, then `release` what was surely not paid.

        Returns:
            The entries in UNKNOWN.

        Raises:
            JournalError: The database failed.
        """
        return self._rows.unresolved()

    def release(self, reference: str) -> JournalEntry:
        """Say, as a human, that a payout was not made and may be sent: UNKNOWN becomes NOT_SENT.

        The only way by which a reference in doubt is ever sent again: if the word is wrong, it is paid twice. Look
        into the account console first, and no sooner than its list can have caught up. Refused and unsent
        references may be sent without it.

        Args:
            reference: The caller's reference.

        Returns:
            The entry, as it is now.

        Raises:
            RequestValidationError: The reference was accepted, is being sent at this moment, or is not here.
            JournalError: The database failed.
        """
        if self._rows.release(reference):
            logger.warning("reference %s was released: it may be sent", redacted_repr(reference))
        entry = self.get(reference)
        if entry is None:
            raise RequestValidationError({"reference": "is not in the journal"})
        if entry.state not in MAY_BE_SENT:
            problem = f"was accepted as transaction {entry.transaction_id}" if entry.transaction_id else "is being sent"
            raise RequestValidationError({"reference": f"{problem}; it must not be sent again"})
        return entry

    def settle(self, told: Evidence) -> JournalEntry | None:
        """Note that the service has a payout, by its own record; the reference is never sent again after this.

        Args:
            told: What the service says: a transaction from ``transactions.confirm``, ``get``, ``find`` or ``wait``;
                or a callback, once it was confirmed or came by a URL that a `CallbackSigner` verified. Never a callback
                by itself: anybody can send one.

        Returns:
            The entry as it is now; None if the transaction is no payout, or none of this journal's.

        Raises:
            JournalError: The database failed.
        """
        record = told.transaction if isinstance(told, Callback) else told
        reference = record.reference if isinstance(record, Payout) else record.account_reference
        entry = None if reference is None or record.type != TransactionType.B2C else self.get(reference)
        if entry is None:
            return None
        if entry.amount != record.amount or not same_phone(entry.phone, record.phone):
            logger.warning(
                "transaction %s has reference %s, and another amount or phone",
                record.transaction_id,
                redacted_repr(entry.reference),
            )
            return None
        return self._rows.accept(entry.reference, record.transaction_id)

    @overload
    def reconcile_all(self, client: Client) -> list[JournalEntry]: ...
    @overload
    def reconcile_all(self, client: AsyncClient) -> Coroutine[Any, Any, list[JournalEntry]]: ...
    def reconcile_all(self, client: Client | AsyncClient) -> Any:
        """Look for all that is unresolved in the service's list, in one walk; as at the start of a worker.

        Args:
            client: A client of the account; with an `AsyncClient`, await the result.

        Returns:
            What was unresolved, as it is now: ACCEPTED where the list shows exactly one payout that fits, else
            UNKNOWN still.

        Raises:
            MomoPayError: Whatever ``transactions.find`` raises; nothing is lost, do it again.
            JournalError: The database failed.
        """
        return client.payouts.reconcile_all(journal=self)

    def first_seen(self, callback: Callback) -> bool:
        """Tell once that a callback is new, by its key: transaction id and status.

        The word is kept from then on, whatever becomes of the effect that it was asked for; where that may fail,
        use `handling`.

        Args:
            callback: From `parse_callback`.

        Returns:
            True once, False ever after, in all processes.

        Raises:
            JournalError: The database failed.
        """
        return self._seen.first_seen(callback)

    def handling(self, callback: Callback) -> AbstractContextManager[bool]:
        """Handle a callback once: held for the context, remembered if it ends well, free again if it does not.

        A process that dies on the way leaves the callback free, to be handled when it comes again. So the effect takes
        place at least once, if the service keeps sending; and twice if the process died, or the database failed,
        between the effect and this context's end, or if the body took longer than ten minutes.

        Args:
            callback: From `parse_callback`.

        Returns:
            A context that gives True to the one who is to handle it, False if it was handled before.

        Raises:
            CallbackError: On entering: somebody is handling it now; answer non-2xx, and it comes again.
            JournalError: The database failed.
        """
        return self._seen.handling(callback)

    def close(self) -> None:
        """Close the journal. It cannot be used afterwards."""
        self._holding.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Journal({self._name!r})"


def payments_of(journal: Journal) -> Payments:
    """Give the rows that ``payouts.pay_once`` writes.

    Raises:
        ConfigurationError: It is something else than a journal.
    """
    if not isinstance(journal, Journal):
        raise ConfigurationError("journal must be a momopay.Journal")
    return journal._rows  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  its own module's
