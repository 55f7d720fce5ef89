"""Pay back what was paid of a collection: a payout of ``pay_once`` that never exceeds what is left."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING

from momopay._core.backend import BackendT
from momopay._core.call import Endpoint
from momopay._core.session import Session
from momopay.errors import RequestValidationError
from momopay.journal.journal import Journal
from momopay.journal.reports import refunds_of
from momopay.models.metadata import checked_metadata
from momopay.models.payouts import Payout
from momopay.models.requests import PayoutRequest
from momopay.models.transactions import Transaction
from momopay.resources.pay_once import PayOnce

if TYPE_CHECKING:  # at run time it needs SQLAlchemy
    from momopay.journal.refunds import Refunds


async def refund(
    session: Session[BackendT],
    journal: Journal,
    endpoint: Endpoint[Payout],
    *,
    of: str,
    amount: int | Decimal | None,
    reference: str | None,
    metadata: Mapping[str, object] | None,
    **optional: object,
) -> Payout | Transaction:
    """Do what `Payouts.refund` promises."""
    refunds = refunds_of(journal, checked_of(of))
    # Two calls without a reference are one refund.
    name = default_reference(of) if reference is None else reference
    amount, phone = await session.backend.in_thread(partial(_plan, refunds, session.limits.deadline, name, amount))
    request = PayoutRequest.checked(
        on_loopback=session.account.on_loopback, amount=amount, phone=phone, reference=name, **optional
    )
    return await PayOnce(session, journal, endpoint, request, checked_metadata(metadata), refunds).pay()


def checked_of(of: object) -> str:
    """Return the reference of a collection; raise RequestValidationError if it is not text."""
    if not isinstance(of, str) or not of:
        raise RequestValidationError({"of": "must be the reference of a collection, as text"})
    return of


def default_reference(of: str) -> str:
    """Return the reference of a refund for which the caller gives none."""
    return f"{of}-R1"


def _plan(refunds: Refunds, seconds: float, reference: str, amount: int | Decimal | None) -> tuple[int | Decimal, str]:
    with refunds.bounded(seconds):
        return refunds.plan(reference, amount)
