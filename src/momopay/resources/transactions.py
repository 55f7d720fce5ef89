"""Transactions: waited for, and held against a callback; read and listed by what they inherit."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from functools import partial

from momopay._core.backend import BackendT
from momopay._core.call import call
from momopay._core.operation import Resource, operation
from momopay._core.session import Session
from momopay._polling.coordinator import WaitCoordinator
from momopay._polling.schedule import PollSchedule, terminal
from momopay._polling.wait import TransactionWait, WaitIterator
from momopay._ratelimit.budget import Lane
from momopay.callbacks import check_agreement
from momopay.models.arguments import TransactionRef
from momopay.models.callbacks import Callback
from momopay.models.requests import TransactionQuery, transaction_id_of, transaction_path
from momopay.models.transactions import Transaction, TransactionPage
from momopay.resources.listing import Listing
from momopay.resources.search import GET, LIST

__all__ = ["Transactions"]

GUIDANCE = PollSchedule()


class Transactions(Listing[BackendT]):
    """Transactions (service page, "Transaction" and "States"). Nothing here moves money."""

    def __init__(self, session: Session[BackendT], coordinator: WaitCoordinator) -> None:
        self._session = session
        self._coordinator = coordinator

    @operation
    async def confirm(self, callback: Callback) -> Transaction:
        """Compare a callback, which is not signed, with the service's own record.

        Compares status, amount, phone and reference. Whether a read ever says EXPIRED, and which of FAILED and
        CANCELLED a cancelled prompt reads as, is not specified, so any two ends without success agree. Rests on the
        service page, "Callbacks" and "GET /transactions/{id}".

        Args:
            callback: From `parse_callback`.

        Returns:
            The transaction as the service has it. Act on this, not on the callback.

        Raises:
            CallbackMismatchError: They disagree; answer non-2xx and act on nothing.
            TransactionNotFoundError: The account has no such transaction; act on nothing.
            MomoPayError: Whatever `get` raises; answer non-2xx, so that the callback comes again.
        """
        transaction = await self._read(callback.transaction.id)
        check_agreement(callback, transaction)
        return transaction

    @operation
    async def wait(
        self,
        transaction_id: TransactionRef,
        *,
        until: Callable[[Transaction], bool] = terminal,
        schedule: PollSchedule = GUIDANCE,
    ) -> Transaction:
        """Wait until a transaction has ended.

        Looks by the schedule, SPEC.md's guidance by default, and at once when `notify` says that news
        came. Waits on one client share what they read: a success may come from the list, with the fields
        that only a single read shows None. An end without success is read in full, for its result code and
        description; where the rate budget has no slot for that in the time of three looks, it comes as the
        list has it, too. A passing failure or a 429 does not end the wait.

        Args:
            transaction_id: The id that an initiation returned, or a record that carries it. A `Transaction` that
                has ended already is given back at once.
            until: What counts as an end: `terminal`, `settled`, or a function of your own.
            schedule: When to look, seconds.

        Returns:
            The transaction, ended.

        Raises:
            RequestValidationError: Not an id.
            WaitTimeoutError: The schedule's limit passed; ``.last`` is the last state read. It may still
                succeed, so money may yet move: read it again later.
            TransactionNotFoundError: The account has no such transaction.
            APIError: A refusal that waiting does not mend, such as a revoked key.
        """
        watch = self._watch([transaction_id], until, schedule)
        with watch.seated():
            ended = await watch.next()
        assert ended is not None  # noqa: S101  one was waited for
        return ended

    def wait_all(
        self,
        ids: Iterable[TransactionRef],
        *,
        until: Callable[[Transaction], bool] = terminal,
        schedule: PollSchedule = GUIDANCE,
    ) -> WaitIterator[BackendT]:
        """Wait for many transactions, giving each as it ends; otherwise as `wait`.

        Args:
            ids: Ids, or records that carry them.
            until: What counts as an end.
            schedule: When to look, seconds, for all of them.

        Returns:
            Something to go over with ``for`` or, from an `AsyncClient`, ``async for``.

        Raises:
            RequestValidationError: Not ids.
            WaitTimeoutError: On the way, when the limit passed; ``.pending`` names those without an end.
            TransactionNotFoundError: On the way, for the first one that the account does not have.
            APIError: On the way: a refusal that waiting does not mend.
        """
        wanted = list(ids)
        for each in wanted:
            transaction_id_of(each)
        return WaitIterator(partial(self._watch, wanted, until, schedule))

    def notify(self, callback: Callback | TransactionRef) -> None:
        """Tell the waits on this client that there is news; those for that transaction look now.

        A wait that is told alone reads its transaction once; several that are told at about the same time, or
        while the rate budget is short, share a page of the list. Sends nothing itself, in neither colour. On an
        `AsyncClient`, call it from its own event loop.

        Args:
            callback: The callback that came, or the transaction's id.

        Raises:
            RequestValidationError: Not an id.
        """
        failed = isinstance(callback, Callback) and callback.transaction.status.ended_without_success
        self._coordinator.notify(transaction_id_of(callback), failed=failed)

    def _watch(
        self, ids: Iterable[TransactionRef], until: Callable[[Transaction], bool], schedule: PollSchedule
    ) -> TransactionWait:
        given = list(ids)
        wanted = {transaction_id_of(each): _created_at(each) for each in given}
        watch = TransactionWait(self._coordinator, _Poll(self._session), self._session.backend, wanted, until, schedule)
        watch.know([each for each in given if isinstance(each, Transaction) and until(each)])
        return watch


def _created_at(record: object) -> datetime | None:
    when = getattr(record, "created_at", None)
    return when if isinstance(when, datetime) and when.tzinfo is not None else None


class _Poll(Resource[BackendT]):
    """How a wait looks: in the lane that leaves coordinator for payments, and done before the wait ends."""

    async def read(self, transaction_id: str, until: float) -> Transaction:
        path = transaction_path(transaction_id)
        return await call(self._session, GET, path, lane=Lane.POLL, until=until)

    async def page(self, cursor: str | None, until: float) -> TransactionPage:
        query = TransactionQuery.checked(limit=100, cursor=cursor).to_query()
        return await call(self._session, LIST, "/transactions" + query, lane=Lane.POLL, until=until)
