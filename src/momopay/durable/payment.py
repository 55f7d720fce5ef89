"""What the durable calls take, return and raise: `PayoutItem`, `Payment`, `PayoutOutcome`, OutcomeUnknownError."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from decimal import Decimal
from os import PathLike
from typing import Any, Final, Literal, Self, TypeGuard
from uuid import UUID

from momopay._core.reads import Matches
from momopay._core.session import Session
from momopay._redaction import mask_phone, redact, redacted_repr
from momopay.errors import ConfigurationError, MomoPayError, OutcomeUnknownError, RequestValidationError
from momopay.journal import Journal
from momopay.journal.entries import JournalEntry, JournalState
from momopay.journal.evidence import Draft
from momopay.models.arguments import ChannelRef
from momopay.models.enums import EntryKind, TransactionStatus, stage_of
from momopay.models.payments import Payment
from momopay.models.transactions import Payout, StkTransaction, Transaction


def payment_of(
    entry: JournalEntry | Draft,
    record: Payout | StkTransaction | Transaction,
    *,
    is_new: bool = False,
    refunded: Decimal = Decimal(0),
) -> Payment:
    """Return the payment for a record of the service, with what only the journal's entry has."""
    status, result_code, fee, receipt = record.status, record.result_code, record.transaction_fee, record.receipt
    for known in entry.transactions if isinstance(entry, JournalEntry) else ():
        if known.transaction_id == record.transaction_id:
            # A page of the list has no result code, and a read no fee. Most reads have no receipt.
            if stage_of(known.status) is stage_of(status):  # the code of an acceptance is not that of an end
                result_code = result_code or known.result_code
            receipt, fee = receipt or known.receipt, known.fee if fee is None else fee
            if status is not TransactionStatus.SUCCESS and known.is_paid:
                # A callback came first: an older record of the service does not undo the payment.
                status, result_code, fee = TransactionStatus.SUCCESS, known.result_code, known.fee
    return Payment.model_construct(
        kind=entry.kind,
        reference=entry.reference,
        transaction_id=record.transaction_id,
        status=status,
        amount=record.amount,
        phone=record.phone or entry.phone,
        result_code=result_code,
        fee=fee,
        receipt=receipt,
        is_new=is_new,
        metadata=None if entry.metadata is None else dict(entry.metadata),
        refund_of=entry.refund_of,
        refunded=refunded,
        transaction=record,
    )


def payment_in(entry: JournalEntry) -> Payment | None:
    """Return the payment of an entry that was accepted, without a request; None for any other entry."""
    known = entry.transaction
    if known is None or entry.state is not JournalState.ACCEPTED:
        return None
    of_entry = {name: getattr(entry, name) for name in ("kind", "reference", "metadata", "refund_of")}
    status = known.status or TransactionStatus.PENDING
    return Payment.model_validate({**vars(known), **of_entry, "status": status})


@dataclass(frozen=True, kw_only=True, repr=False)
class PayoutItem:
    """One payout for `Payouts.pay_all`: the arguments of `Payouts.pay_once`, which are checked when it is paid."""

    reference: str
    amount: int | Decimal
    phone: str
    description: str | None = None
    currency: Literal["KES"] = "KES"
    channel_id: ChannelRef | None = None
    callback_url: str | None = None
    credential_id: str | UUID | None = None
    metadata: Mapping[str, object] | None = field(default=None, hash=False)

    @classmethod
    def read(cls, path: str | PathLike[str], *, sheet: str | None = None) -> list[Self]:
        """Read a payroll from a file: CSV, or .xlsx with the extra ``excel``.

        The first row names the columns ``reference``, ``phone``, ``amount`` and perhaps ``description``, in any order
        and case; other columns are ignored. Nothing is guessed: a row that can be read in two ways is refused. Rows of
        an .xlsx file that are hidden are read as well, and logged at WARNING.

        Args:
            path: The file.
            sheet: The name of the sheet of an .xlsx file. By default the one that has the columns.

        Raises:
            FaultyFileError: Anything is wrong with the file. The one error has every fault, with its line, column,
                value and remedy.
            ModuleNotFoundError: An .xlsx file without the extra ``excel``.
            OSError: The file cannot be read.
        """
        from momopay.spreadsheets.rows import log_notes, read_payouts  # noqa: PLC0415  few programs need it

        file = read_payouts(path, sheet)
        log_notes(file.name, file.notes)
        return [
            cls(reference=row.reference, amount=row.amount, phone=row.phone, description=row.description)
            for row in file.rows
        ]

    def __repr__(self) -> str:
        shown = f"reference={self.reference!r}, amount={self.amount!r}, phone={mask_phone(str(self.phone))!r}"
        return redact(f"PayoutItem({shown}, description={self.description!r})")


@dataclass(frozen=True, repr=False)
class PayoutOutcome:
    """What happened to one payout of `Payouts.pay_all`.

    Attributes:
        reference: Your own reference.
        state: The state in the journal. ACCEPTED is not paid yet: the service may still reverse it. It is NOT_SENT if
            the arguments are invalid, and REFUSED if another payout has the reference.
        payment: The payment, or None if it was not accepted. If the journal already had it as accepted, it comes from
            the journal without a request, with the last status that the service reported.
        error: Why it was not accepted, or may not have been; None if it was.
        stops: Whether the run ends here, because every other payout would fail too. Fix the cause, then run again.
    """

    reference: str
    state: JournalState
    payment: Payment | None = None
    error: MomoPayError | None = None
    stops: bool = False

    def __repr__(self) -> str:
        # The payment masks its own phone, and its id must stay whole.
        shown = f"reference={redacted_repr(self.reference)}, state={self.state.value!r}, payment={self.payment!r}"
        return f"PayoutOutcome({shown}, error={self.error!r}, stops={self.stops})"


_NAMES: Final = [each.name for each in fields(PayoutItem)]
_REQUIRED: Final = [each.name for each in fields(PayoutItem) if each.default is MISSING]


def is_mapping(given: object) -> TypeGuard[Mapping[object, Any]]:
    """Return whether it is a mapping."""
    return isinstance(given, Mapping)


def item_of(given: object) -> PayoutItem:
    """Return the given item, or one made from a mapping. Raise RequestValidationError if it is neither."""
    if isinstance(given, PayoutItem):
        return given
    if not is_mapping(given):
        raise RequestValidationError({"payouts": "must be PayoutItems, or mappings of the arguments of pay_once"})
    problems = {name: "is missing" for name in _REQUIRED if name not in given}
    problems |= {redact(str(name)): "is not an argument of a payout" for name in given if name not in _NAMES}
    if problems:
        raise RequestValidationError(problems)
    return PayoutItem(**{name: given[name] for name in _NAMES if name in given})


def reference_in(given: object) -> str:
    """Return the reference of what may not be a valid item, "" if it has none."""
    found = given.get("reference") if is_mapping(given) else getattr(given, "reference", None)
    return found if isinstance(found, str) else ""


def outcome_unknown(entry: JournalEntry, why: str, matches: Matches | None = None) -> OutcomeUnknownError:
    """Return the error for a payment that is still unresolved."""
    found = matches or Matches()
    what = "the payout" if entry.kind is EntryKind.PAYOUT else "a prompt"
    return OutcomeUnknownError(
        f"{what} of reference {entry.reference!r} may have been made: {why.rstrip('.')}. It is not sent again"
        " unless a person releases it, with client.payouts.release",
        sent_at=entry.sent_at,
        reference=entry.reference,
        amount=entry.amount,
        phone=entry.phone,
        transaction_id=entry.transaction_id,
        matches=found.exact,
        near_matches=found.blocking,
    )


def journal_for(session: Session[Any], given: Journal | None) -> Journal:
    """Return the journal that was given to a durable call, or the client's. Raise ConfigurationError if neither."""
    if given is not None:
        if not isinstance(given, Journal):
            raise ConfigurationError("journal must be a momopay.Journal; only a client takes its URL")
        return given
    if session.open_journal is None:
        raise ConfigurationError(
            'this call needs a journal; nothing was sent. Make the client with Client(journal="sqlite:///payments.db"),'
            " or pass journal= to the call"
        )
    journal: Journal = session.open_journal()
    return journal
