"""The part of `Journal` about the ends of payments: what is open, what the service reports, and what was handled."""

from __future__ import annotations

import logging
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from momopay._redaction import redacted_repr
from momopay.journal.entries import JournalEntry
from momopay.models.callbacks import Callback
from momopay.models.payouts import Payout
from momopay.models.transactions import TransactionSummary

if TYPE_CHECKING:  # at run time they need SQLAlchemy
    from momopay.journal.callbacks import Callbacks
    from momopay.journal.lookups import Lookups
    from momopay.journal.recorder import Recorder
    from momopay.journal.sweeps import Sweeps
else:  # for `typing.get_type_hints`
    Callbacks = Lookups = Recorder = Sweeps = Any

logger: logging.Logger = logging.getLogger("momopay")


class Ends:
    """What a `Journal` records about the ends of its payments."""

    _callbacks: Callbacks
    _lookups: Lookups
    _recorder: Recorder
    _sweeps: Sweeps

    def open(self) -> list[JournalEntry]:
        """Return what the service accepted and what has not settled, of both kinds, oldest first.

        A payout that FAILED is open until it is REVERSED, and a paid order is while another prompt of it is open.
        ``transactions.sweep`` follows all of them. What is UNKNOWN is not among them: see `Journal.unresolved`.

        Returns:
            The entries.

        Raises:
            JournalError: The database failed.
        """
        return self._lookups.open()

    def by_receipt(self, receipt: str) -> JournalEntry | None:
        """Return the entry of the provider's receipt, which a customer quotes. Only a callback brings a receipt.

        Args:
            receipt: The receipt's number, as the callback had it.

        Returns:
            The payout or the collection; None if no callback with that receipt was recorded. If several have it, the
            newest, and a WARNING is logged.

        Raises:
            JournalError: The database failed.
        """
        entries = self._lookups.by_receipt(receipt)
        if len(entries) > 1:
            logger.warning("%d entries have the receipt %s", len(entries), redacted_repr(receipt))
        return entries[0] if entries else None

    def by_transaction(self, evidence: TransactionSummary | Payout | Callback) -> JournalEntry | None:
        """Return the entry of a transaction: whether it is an order or a payout, and with which reference of yours.

        The service may know an order under another reference, at most 12 characters long. Nothing is recorded.

        Args:
            evidence: As for `settle`.

        Returns:
            The entry that has the transaction, or that has its reference, amount and phone; None if the journal has
            none, as of a payment that was sent without it.

        Raises:
            JournalError: The database failed.
        """
        return self._recorder.entry_of(evidence.transaction if isinstance(evidence, Callback) else evidence)

    def record(self, callback: Callback) -> JournalEntry | None:
        """Record what a callback says: receipt, status, result code, fee and end. You vouch for the callback.

        The views of `momopay.integrations` call it where the URL was signed or the handler confirmed the callback.

        Args:
            callback: One that ``transactions.confirm`` confirmed, or whose URL a `CallbackSigner` verified. Never a
                callback by itself: anybody can send one.

        Returns:
            The entry as it is now, of a payout or a collection; None if the journal has none with that reference, or
            if the callback states no amount or phone and its transaction is not known.

        Raises:
            CallbackMismatchError: The callback states another amount, phone or reference than the entry; nothing was
                recorded. Respond with a status other than 2xx, and find out who sent it.
            JournalError: The database failed.
        """
        return self._recorder.record(callback)

    def settle(self, evidence: TransactionSummary | Payout | Callback) -> JournalEntry | None:
        """Record what the service's own record says: that it accepted a payment, and how that ended.

        The reference of a payout is never sent again after this.

        Args:
            evidence: The service's record: a transaction from ``transactions.confirm``, ``get``, ``find`` or ``wait``;
                or a callback, once it was confirmed or came by a URL that a `CallbackSigner` verified. Never a callback
                by itself: anybody can send one.

        Returns:
            The entry as it is now; None if the transaction is none of this journal's. One with another amount or phone,
            or with none at all, does not identify it.

        Raises:
            JournalError: The database failed.
        """
        return self._recorder.settle(evidence.transaction if isinstance(evidence, Callback) else evidence)

    def first_seen(self, callback: Callback | TransactionSummary) -> bool:
        """Record that an end was seen, and return whether it is new; ends are compared as by `handling`.

        It stays recorded even if the work that follows fails; for work that may fail, use `handling`.

        Args:
            callback: From `parse_callback`; or a transaction that has ended.

        Returns:
            True once, False ever after, in all processes.

        Raises:
            JournalError: The database failed.
        """
        return self._callbacks.first_seen(callback)

    def handling(self, callback: Callback | TransactionSummary) -> AbstractContextManager[bool]:
        """Handle an end once: held for the context, recorded if it ends well, free again if it raises.

        Callbacks and ``transactions.sweep`` share it, so an end that both bring is handled once. It is one end by the
        transaction's id and its status, where FAILED, CANCELLED and EXPIRED are the same.

        A process that dies within the context leaves the end free, to be handled when it comes again. So it is
        handled at least once, if it comes again or somebody sweeps; and twice if the process died, or the database
        failed, between the effect and the end of this context, or if the body took longer than ten minutes.

        Args:
            callback: From `parse_callback`; or a transaction that has ended.

        Returns:
            A context that gives True to the one that is to handle it, False if it was handled before.

        Raises:
            CallbackError: On entering: another call is handling it; answer non-2xx, and it comes again.
            JournalError: The database failed.
        """
        return self._callbacks.handling(callback)


def recorder_of(journal: Ends) -> Recorder:
    """Return what records callbacks in a journal."""
    return journal._recorder  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  this module's own class


def entry_of(journal: Ends, transaction_id: str) -> JournalEntry | None:
    """Return the entry that has a transaction, as the service accepted it."""
    return journal._lookups.by_transaction(transaction_id)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  this module's own class


def sweeps_of(journal: Ends) -> Sweeps:
    """Return what sweeps read from a journal."""
    return journal._sweeps  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  this module's own class
