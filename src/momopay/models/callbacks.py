"""The records of a callback (webhook), which the service POSTs (service page, "Callbacks")."""

from __future__ import annotations

from decimal import Decimal
from typing import ClassVar, Final

from pydantic import ConfigDict

from momopay.models.enums import EventType, TransactionStatus, TransactionType
from momopay.models.records import Id, ProviderCode, Record, Timestamp, receipt_in, receipt_names
from momopay.models.transactions import Transaction

_OF_THE_END: Final = ("transaction_fee", "result_code", "result_desc")
# A read may mask the phone. The id and the reference agree.
_SHARED: Final = ("type", "status", "amount", "transaction_fee", "result_code", "result_desc", "updated_at")


class CallbackTransaction(Record):
    """The transaction as the callback states it. Callbacks are not signed: confirm it before you deliver goods.

    Only `id` and `status` are always there. Other fields may be None; ``transactions.confirm`` reads them.
    """

    # A callback has only snake_case names, so aliases would waste time.
    model_config: ClassVar[ConfigDict] = ConfigDict(alias_generator=None)

    id: Id
    tenant_id: str | None = None
    type: TransactionType | None = None
    status: TransactionStatus
    amount: Decimal | None = None
    currency: str | None = "KES"
    phone_number: str | None = None
    external_reference: str | None = None
    provider: str | None = None
    provider_request_id: str | None = None
    provider_checkout_id: str | None = None
    transaction_fee: Decimal | None = None
    result_code: ProviderCode | None = None
    result_desc: str | None = None
    created_at: Timestamp | None = None
    updated_at: Timestamp | None = None

    @property
    def transaction_id(self) -> str:
        """`id`, under its name in other records."""
        return self.id

    @property
    def phone(self) -> str | None:
        """`phone_number`, under its name in other records."""
        return self.phone_number

    @property
    def account_reference(self) -> str | None:
        """`external_reference`, under its name in other records."""
        return self.external_reference

    @property
    def receipt(self) -> str | None:
        """The provider's receipt, from the field whose name ends in "receipt"; None if there is none, or two differ."""
        return receipt_in(self)

    @property
    def momo_receipt(self) -> str | None:
        """`receipt`, under its name on the service page, "Callbacks"."""
        return self.receipt


class Callback(Record):
    """One callback: an event, and the transaction that it is about."""

    model_config: ClassVar[ConfigDict] = ConfigDict(alias_generator=None)

    event: str | None = "transaction.updated"
    event_type: EventType
    transaction: CallbackTransaction

    @property
    def key(self) -> tuple[str, TransactionStatus]:
        """Transaction id and status. All deliveries of one event have the same key, so handle each key once."""
        return self.transaction.id, self.transaction.status

    @property
    def transaction_id(self) -> str:
        """The id of the transaction."""
        return self.transaction.id

    @property
    def receipt(self) -> str | None:
        """The receipt of the transaction."""
        return self.transaction.receipt


def mark_confirmed(callback: Callback, record: Transaction) -> None:
    """Note that a callback agrees with the service's own record, and keep that."""
    # Not in a field, so that dumps and comparisons have only the service's fields. What was compared is kept, too,
    # because a copy that was changed must not count as confirmed.
    vars(callback)["_confirmed"] = callback.transaction, record


def record_of(callback: Callback) -> Transaction | None:
    """Return the record with which ``transactions.confirm`` found that this very object agrees; None if it did not."""
    compared, record = vars(callback).get("_confirmed", (None, None))
    return record if compared is callback.transaction else None


def as_read(callback: Callback) -> Callback:
    """Return a confirmed callback with what the service's own record says; any other as it is."""
    record, stated = record_of(callback), callback.transaction
    if record is None:
        return callback
    # What the record lacks, such as the receipt, is true only of an end that the callback states as it is.
    is_same = record.status == stated.status
    fields = dict[str, object]() if is_same else dict[str, object].fromkeys(_OF_THE_END)
    receipt = record.receipt or (stated.receipt if is_same else None)
    fields |= dict.fromkeys([*receipt_names(stated), "momo_receipt"], receipt)
    fields |= {name: value for name in _SHARED if (value := getattr(record, name)) is not None}
    read = callback.model_copy(update={"transaction": stated.model_copy(update=fields)})
    mark_confirmed(read, record)
    return read
