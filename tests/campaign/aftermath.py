"""What follows a simulated storm: people release what is in doubt, carelessly and then by the ledger."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from campaign.bank import STYLES
from campaign.clocks import end_lease
from campaign.port import awaited
from campaign.scheduler import Task
from momopay import JournalEntry, JournalState, MomoPayError, OutcomeUnknownError

if TYPE_CHECKING:
    from campaign.world import Process, World

BY = "the simulation's human"


async def release_carelessly(world: World, process: Process) -> None:
    """Release without the ledger, while the list shows all that was paid, in one way or another; and pay."""
    for number, entry in enumerate(process.journal.unresolved()):
        way = number % (len(STYLES) + 3)
        if way == 0:
            continue  # for the reconciliation
        world.bank.style = STYLES[way - 3] if way >= 3 else ""
        end_lease(process.journal, entry.reference)
        try:
            await _release(process, entry.reference, searched_elsewhere=way == 1)
        except MomoPayError as error:
            world.events[f"careless release: {type(error).__name__}"] += 1
        else:
            world.events["released carelessly"] += 1
            await world.pay(process, entry.reference)
    world.bank.style = ""


async def close(world: World, process: Process) -> None:
    """Settle what the list shows, and pay what surely was not paid."""
    await awaited(process.journal.reconcile_all(process.client))
    for unclear in process.journal.unresolved():
        await _settle_by_eye(world, process, unclear)
    for order in world.orders:
        entry = process.journal.get(order.reference)
        if entry is None or entry.state not in {JournalState.ACCEPTED, JournalState.UNKNOWN}:
            await world.pay(process, order.reference)


async def _settle_by_eye(world: World, process: Process, entry: JournalEntry) -> None:
    """Compare near matches as a person does: a clock that jumped just before a payout dates it wrongly for ever."""
    try:
        await awaited(process.client.payouts.pay_once(journal=process.journal, **order_of(entry)))
    except OutcomeUnknownError as error:
        for near in error.near_matches:
            if process.journal.settle(near) is not None:
                world.events["settled by eye"] += 1


def order_of(entry: JournalEntry) -> dict[str, Any]:
    """Return what was ordered."""
    return {"reference": entry.reference, "amount": entry.amount, "phone": entry.phone}


async def ask_a_human(world: World, process: Process) -> None:
    """Release what is in doubt and, by the ledger, was not paid; and pay."""
    paid = {payment.reference for payment in world.bank.ledger}
    for entry in process.journal.unresolved():
        if entry.reference not in paid:
            world.events["released by a human"] += 1
            end_lease(process.journal, entry.reference)
            await _release(process, entry.reference, searched_elsewhere=True)
            await world.pay(process, entry.reference)


async def release_frozen(world: World, process: Process, reference: str, _task: Task) -> None:
    """Release what a frozen process is about to pay, by a database's clock that jumped; and pay."""
    if not process.alive or reference in {payment.reference for payment in world.bank.ledger}:
        return
    end_lease(process.journal, reference)
    try:
        await _release(process, reference, searched_elsewhere=True)
    except MomoPayError:
        return
    world.events["released while its payer was frozen"] += 1
    await world.pay(process, reference)


async def _release(process: Process, reference: str, *, searched_elsewhere: bool) -> None:
    call = process.client.payouts.release(
        journal=process.journal, reference=reference, by=BY, searched_elsewhere=searched_elsewhere
    )
    await awaited(call)
