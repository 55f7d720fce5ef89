"""Plan the refund of a collection: a payout that never exceeds what is left to pay back."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING

from momopay._core.operation import run_sync
from momopay._core.session import Session
from momopay._core.wiring import BackendT
from momopay.durable.access import JournalAccess, check_account
from momopay.durable.lookup import PaymentLookup
from momopay.errors import DuplicatePayoutError, MomoPayError, RequestValidationError
from momopay.journal.entries import MAY_BE_SENT, JournalEntry
from momopay.journal.evidence import is_keepable
from momopay.journal.journal import Journal
from momopay.journal.rules import Refundable, refund_reference
from momopay.models.enums import EntryKind
from momopay.money import format_amount

if TYPE_CHECKING:
    from momopay.client import Client


@dataclass(frozen=True)
class RefundPlan:
    """A refund's reference, its amount in KES, and the payer's phone."""

    reference: str
    amount: int | Decimal
    phone: str


def preview_refund(
    client: Client, journal: Journal, *, of: str, amount: int | Decimal | None, reference: str | None
) -> RefundPlan:
    """Return what ``payouts.refund`` would pay back, for a program that asks first. Sends only reads."""
    session = client._session  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    return run_sync(plan_refund(session, journal, of=of, amount=amount, reference=reference))


async def plan_refund(
    session: Session[BackendT], journal: Journal, *, of: str, amount: int | Decimal | None, reference: str | None
) -> RefundPlan:
    """Return what to pay back. Raise RequestValidationError or DuplicatePayoutError if nothing may be paid back."""
    if not is_keepable(of) or not of:
        raise RequestValidationError({"of": "must be the reference of a collection, as text"})
    # Two calls without a reference are the same refund.
    name = refund_reference(of) if reference is None else reference
    try:
        return await _plan(session, journal, of, amount, name, is_default=reference is None)
    except MomoPayError as error:
        await JournalAccess(session, journal, name).note_earlier_attempts(error, EntryKind.PAYOUT, name)
        raise


async def _plan(
    session: Session[BackendT], journal: Journal, of: str, amount: int | Decimal | None, name: str, *, is_default: bool
) -> RefundPlan:
    access = await check_account(session, journal, of)

    async def read() -> Refundable:
        return await access.run(access.store.refundable, of, name)

    refundable = await read()
    if not refundable.paid:
        # Its callback may have been lost.
        await PaymentLookup(access).refresh(refundable.order)
        refundable = await read()
    order = refundable.order
    if not refundable.paid:
        status = f"its last known status is {order.status}" if order.status else "its outcome is not known"
        raise RequestValidationError({"of": f"was not paid: {status}. If it was paid since, sweep, then try again"})
    known = next((each for each in refundable.refunds if each.reference == name), None)
    if known is not None:
        if is_default:
            _check_is_wanted(refundable, known, amount)
        amount = known.amount if amount is None else amount
    elif amount is None or order.is_anonymised:
        amount = refundable.default_amount
        refundable.check(amount)
    phone = None if known is None or known.is_anonymised else known.phone
    if known is not None and phone is None and known.state not in MAY_BE_SENT:
        raise RequestValidationError({"of": f"was paid back as {name!r} ({known.status}), and anonymised since"})
    if phone is None and order.is_anonymised:
        raise RequestValidationError({"of": "was anonymised: pay back with pay_once, to a phone that you know"})
    return RefundPlan(name, amount, phone or refundable.phone)


def _check_is_wanted(refundable: Refundable, known: JournalEntry, amount: int | Decimal | None) -> None:
    """Raise DuplicatePayoutError if the refund with the default reference is another one than is asked for.

    It is if the collection was paid again since, or if its amount is neither the given one nor, by default, the one
    that would be paid back without it.
    """
    left = Refundable(refundable.order, refundable.refunds).left
    if known.state in MAY_BE_SENT or left <= 0:
        return
    was_paid_again = known.paid_before is None or refundable.paid > known.paid_before
    if was_paid_again or known.amount != (refundable.default_amount if amount is None else amount):
        raise DuplicatePayoutError(
            f"reference {known.reference!r} is an earlier refund, of KES {format_amount(known.amount)}:"
            f" KES {format_amount(left)} is left to pay back, with reference={refundable.free_reference()!r}",
            reference=known.reference,
        )
