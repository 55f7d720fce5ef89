"""One pass over everything in the journal that has not ended.

What is read is recorded before any handler runs, and what a handler is to get is asked of the journal again. So a pass
that dies at any moment loses nothing: the next one goes on.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

from momopay._core.backend import BackendT
from momopay._core.session import Session
from momopay.errors import MomoPayError
from momopay.journal.ends import sweeps_of
from momopay.journal.identity import KeyIdentity
from momopay.journal.journal import Journal, accounts_of, rows_of
from momopay.models.enums import end_of
from momopay.resources.delivery import AsyncTransactionHandler, Delivered, Delivery, TransactionHandler
from momopay.resources.reconcile import check_tenant, search_for
from momopay.resources.sweep_reader import Due, SweepReader

if TYPE_CHECKING:  # at run time it needs SQLAlchemy
    from momopay.journal.sweeps import Target

__all__ = ["SweepReport"]


@dataclass(frozen=True)
class SweepReport:
    """What one sweep did, and what it left.

    Attributes:
        settled: How many payments it found ended and recorded so; each prompt of an order counts.
        open: How many entries of the journal are open after it, without those in doubt.
        unknown: How many entries are in doubt after it.
        handled: How many ends the handler handled.
        failed: For how many ends the handler raised. They are delivered again.
    """

    settled: int = 0
    open: int = 0
    unknown: int = 0
    handled: int = 0
    failed: int = 0


async def sweep(
    session: Session[BackendT], journal: Journal, handler: TransactionHandler | AsyncTransactionHandler | None
) -> SweepReport:
    """Do what `Transactions.sweep` promises."""
    in_thread = session.backend.in_thread
    accounts = accounts_of(journal)
    delivery = None if handler is None else Delivery(session, journal, handler)
    identity = KeyIdentity.of(session.account.api_key, session.account.base_url)
    await in_thread(accounts.check, identity)
    sweeps = sweeps_of(journal)
    # The earlier one of two clocks that may be wrong.
    now = min(datetime.now(UTC), session.clock.service_now())
    since = None if delivery is None else await in_thread(sweeps.handled_since, now)
    due = await in_thread(partial(_due, session, journal, since))
    reader = SweepReader(session, journal, due)
    failure: MomoPayError | None = None
    if due.is_anything:
        await check_tenant(session, accounts, identity)
        try:
            await reader.read()
        except MomoPayError as error:  # what was read before is recorded, and is delivered first
            failure = error
    counts = dict.fromkeys(Delivered, 0)
    if delivery is not None and since is not None:
        for target in await in_thread(sweeps.unhandled, since):
            transaction = reader.ended.get(target.transaction_id)
            # What this pass did not reach is left to the next one.
            if transaction is not None and end_of(transaction.status) == end_of(target.status or transaction.status):
                counts[await delivery.deliver(transaction)] += 1
        await in_thread(sweeps.forget_handled, since)
    if failure is not None:
        raise failure
    opened, unknown = await in_thread(lambda: (sweeps.count_open()[0], len(journal.unresolved())))
    report = SweepReport(reader.settled, opened, unknown, counts[Delivered.HANDLED], counts[Delivered.FAILED])
    if session.operation is not None:
        session.operation.sweep_ended(**vars(report))
    return report


def _due(session: Session[BackendT], journal: Journal, since: str | None) -> Due:
    sweeps = sweeps_of(journal)
    unhandled: list[Target] = []
    if since is not None:
        sweeps.forget_handled(since)  # what callbacks brought need not be read
        unhandled = sweeps.unhandled(since)

    def by_id(targets: list[Target]) -> dict[str, Target]:
        return {target.transaction_id: target for target in targets}

    return Due(
        by_id(sweeps.open()),
        by_id(unhandled),
        by_id(sweeps.to_check()),
        [(each, search_for(each, rows_of(journal, each.kind).others(each))) for each in journal.unresolved()],
        session.clock.service_now,
    )
