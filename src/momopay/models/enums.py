"""The enumerations of the service, kept open: an unknown value parses, keeps its text and is never terminal.

The service may add a value at any time, and payments must stay readable.
"""

from __future__ import annotations

from enum import IntEnum, StrEnum
from typing import Final, Self

# Other spellings, which can mean nothing else.
_SPELLINGS: Final = {"CANCELED": "CANCELLED", "STKPUSH": "STK", "STK_PUSH": "STK", "WALLET_TOP_UP": "WALLET_TOPUP"}
# Names of one type that say more than it: a member made of one equals the type, and its `value` keeps the name.
_KINDS: Final = {"WALLET_TOPUP_SERVICE_TOKENS": "WALLET_TOPUP", "WALLET_TOPUP_B2C": "WALLET_TOPUP"}


class OpenEnum(StrEnum):
    """A string enum that accepts unknown values, and known ones in other cases.

    The service's spelling is not specified, and a wait for a payment that is "Success" must end.
    """

    @classmethod
    def _missing_(cls, value: object) -> Self | None:
        if not isinstance(value, str):
            return None
        word = value.upper().replace("-", "_") if value.isascii() else value
        known = next((member for member in cls if member.value.upper() == _SPELLINGS.get(word, word)), None)
        if known is not None:
            return known
        # Not stored among the members: values from the network would pile up, and iteration would show them.
        name = _KINDS.get(word, value)
        member = str.__new__(cls, name)
        member._name_, member._value_ = name, value
        return member

    def __reduce_ex__(self, _protocol: object) -> tuple[type[Self], tuple[str]]:
        # By value: Python 3.11.2 copies by name, which fails for an unknown member.
        return type(self), (self._value_,)


class TransactionStatus(OpenEnum):
    """The states of a transaction (service page, "States")."""

    PENDING = "PENDING"
    PROCESSING = "PROCESSING"
    SUCCESS = "SUCCESS"
    FAILED = "FAILED"
    REVERSED = "REVERSED"
    CANCELLED = "CANCELLED"
    EXPIRED = "EXPIRED"

    @property
    def is_terminal(self) -> bool:
        """Whether no further update is expected. False for an unknown status."""
        return self in _TERMINAL

    @property
    def ended_without_success(self) -> bool:
        """Whether it has ended with a status other than SUCCESS."""
        return self in _TERMINAL and self is not TransactionStatus.SUCCESS


# Every known status but two. The service does not list EXPIRED as terminal, but states nothing that follows it.
_TERMINAL = frozenset(TransactionStatus) - {TransactionStatus.PENDING, TransactionStatus.PROCESSING}

# Which of the three a read or a callback states is not specified. REVERSED is another end.
FAILURES: Final[frozenset[TransactionStatus]] = frozenset(
    {TransactionStatus.FAILED, TransactionStatus.CANCELLED, TransactionStatus.EXPIRED}
)


def end_of(status: TransactionStatus) -> TransactionStatus:
    """Return the status, or FAILED for every failure: a callback may say CANCELLED where a read says FAILED."""
    return TransactionStatus.FAILED if status in FAILURES else status


def outranks(status: TransactionStatus, other: TransactionStatus) -> bool:
    """Return whether `other` must not be handled after `status`, as FAILED after SUCCESS, or PENDING after an end."""
    if not other.is_terminal:
        return status.is_terminal
    return other in FAILURES and status.is_terminal and status not in FAILURES


class TransactionType(OpenEnum):
    """What kind of payment a transaction is. A payout that FAILED is REVERSED later, so it must be recognised."""

    STK = "STK"
    B2C = "B2C"
    WALLET_TOPUP = "WALLET_TOPUP"


_TYPES: Final = frozenset(TransactionType)


def is_known_type(kind: TransactionType | None) -> bool:
    """Return whether this says what a transaction is. Another name than those of the service says nothing."""
    return kind in _TYPES


def has_settled(kind: TransactionType | None, status: TransactionStatus) -> bool:
    """Return whether the money is where it will stay: a payout that FAILED has settled once it is REVERSED."""
    is_reversed_later = kind is TransactionType.B2C and status is TransactionStatus.FAILED
    return status in _TERMINAL and not is_reversed_later


class ChannelType(OpenEnum):
    """What kind of shortcode a payment channel has."""

    PAYBILL = "PAYBILL"
    TILL_NUMBER = "TILL_NUMBER"
    SEND_MONEY = "SEND_MONEY"


class EventType(OpenEnum):
    """What a callback reports (service page, "Callbacks")."""

    SUCCESS = "transaction.success"
    FAILED = "transaction.failed"
    CANCELLED = "transaction.cancelled"
    EXPIRED = "transaction.expired"


class ResultCode(OpenEnum):
    """The provider's result codes (service page, "Callbacks"). Every other than SUCCESS is a failure."""

    SUCCESS = "0"
    INSUFFICIENT_FUNDS = "1"
    RISK_LIMIT_EXCEEDED = "17"
    TOO_MANY_REQUESTS = "20"
    CANCELLED_BY_USER = "1032"
    TIMEOUT = "1037"


class Stage(IntEnum):
    """How far a transaction has come. In the journal, a transaction's stage only moves upwards."""

    OPEN = 0
    """It may still be paid."""
    ENDED = 1
    """It ended without success. A late PIN may still pay a prompt."""
    PAID = 2
    """The money moved."""


def stage_of(status: TransactionStatus | None) -> Stage:
    """Return the stage of a transaction by its last reported status, None if there is none."""
    if status is TransactionStatus.SUCCESS:
        return Stage.PAID
    return Stage.ENDED if status in _TERMINAL else Stage.OPEN


class EntryKind(StrEnum):
    """The kind of a payment. A reference may be used once for each kind."""

    PAYOUT = "PAYOUT"
    """A B2C payout."""
    COLLECTION = "COLLECTION"
    """An STK collection: an order, with any number of prompts."""

    @property
    def transaction_type(self) -> TransactionType:
        """The type of the service's transactions of this kind."""
        return TransactionType.B2C if self is EntryKind.PAYOUT else TransactionType.STK
