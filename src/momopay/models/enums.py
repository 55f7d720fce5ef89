"""The closed words of SPEC.md, held open: an unknown word parses, keeps its text and is never terminal."""

from __future__ import annotations

from enum import StrEnum
from typing import Self

__all__ = ["ChannelType", "EventType", "ResultCode", "TransactionStatus", "TransactionType"]


class OpenEnum(StrEnum):
    """A string enum that takes words that it does not know."""

    @classmethod
    def _missing_(cls, value: object) -> Self | None:
        if not isinstance(value, str):
            return None
        word = str.__new__(cls, value)
        word._name_ = word._value_ = value
        return word


class TransactionStatus(OpenEnum):
    """The states of SPEC.md, "States and transitions"."""

    PENDING = "PENDING"
    PROCESSING = "PROCESSING"
    SUCCESS = "SUCCESS"
    FAILED = "FAILED"
    REVERSED = "REVERSED"
    CANCELLED = "CANCELLED"
    EXPIRED = "EXPIRED"

    @property
    def is_terminal(self) -> bool:
        """Whether no further update is expected. False for a word that SPEC.md does not name."""
        return self in _TERMINAL

    @property
    def ended_without_success(self) -> bool:
        """Whether it has ended, and not in SUCCESS."""
        return self.is_terminal and self is not TransactionStatus.SUCCESS


_TERMINAL = frozenset({"SUCCESS", "FAILED", "REVERSED", "CANCELLED", "EXPIRED"})


class TransactionType(OpenEnum):
    """What moved the money."""

    STK = "STK"
    B2C = "B2C"
    WALLET_TOPUP = "WALLET_TOPUP"


class ChannelType(OpenEnum):
    """What a payment channel's shortcode is."""

    PAYBILL = "PAYBILL"
    TILL_NUMBER = "TILL_NUMBER"
    SEND_MONEY = "SEND_MONEY"


class EventType(OpenEnum):
    """What a callback tells (SPEC.md, "Events")."""

    SUCCESS = "transaction.success"
    FAILED = "transaction.failed"
    CANCELLED = "transaction.cancelled"
    EXPIRED = "transaction.expired"


class ResultCode(OpenEnum):
    """The provider's result codes (SPEC.md, "Events"); anything but SUCCESS is a failure."""

    SUCCESS = "0"
    INSUFFICIENT_FUNDS = "1"
    RISK_LIMIT_EXCEEDED = "17"
    TOO_MANY_REQUESTS = "20"
    CANCELLED_BY_USER = "1032"
    TIMEOUT = "1037"
