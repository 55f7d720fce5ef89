"""What the service reports about a payment, in the form in which the journal keeps it. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from momopay.models.callbacks import CallbackTransaction
from momopay.models.enums import has_settled
from momopay.models.payouts import Payout
from momopay.models.stk import StkTransaction
from momopay.models.transactions import TransactionSummary
from momopay.money import format_amount


@dataclass(frozen=True)
class Report:
    """The columns that the service's record fills. What is None leaves the journal's column as it is.

    Attributes:
        transaction_id: The service's id.
        status: Its status.
        result_code: The provider's code for how it ended.
        receipt: The provider's receipt.
        fee: The service's fee, KES, as text.
        ended_at: When it reached a status that nothing follows, as text, in UTC.
        unhandled_since: The present time, as text, if it has settled: somebody may have to handle that.
        created_at: When the service accepted it, by its clock. No column has it.
    """

    transaction_id: str
    status: str | None = None
    result_code: str | None = None
    receipt: str | None = None
    fee: str | None = None
    ended_at: str | None = None
    unhandled_since: str | None = None
    created_at: datetime | None = None

    def parameters(self) -> dict[str, object]:
        """Return the parameters of the statements that record it."""
        return {f"new_{name}": value for name, value in vars(self).items() if name != "created_at"}


def report_of(record: Payout | StkTransaction | TransactionSummary | CallbackTransaction) -> Report:
    """Return what a record of the service says, as far as it says it."""
    # Only some records have a result code, and only a callback has a receipt.
    result_code, receipt = getattr(record, "result_code", None), getattr(record, "momo_receipt", None)
    now = datetime.now(UTC)
    # A callback need not say when.
    updated_at: datetime = record.updated_at or now
    ended, settled = record.status.is_terminal, has_settled(record.type, record.status)
    return Report(
        transaction_id=record.transaction_id,
        status=str(record.status),
        result_code=None if result_code is None else str(result_code),
        receipt=receipt,
        fee=None if record.transaction_fee is None else format_amount(record.transaction_fee),
        ended_at=updated_at.astimezone(UTC).isoformat() if ended else None,
        unhandled_since=now.isoformat() if settled else None,
        created_at=record.created_at,
    )
