"""Compare a payment that was requested with what the service says about one. Pure."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from decimal import Decimal
from typing import Protocol

from momopay.phones import same_phone


class PaymentRecord(Protocol):
    """What a response, a list item or a callback says about a payment; None is what it does not say."""

    @property
    def amount(self) -> Decimal | None:
        """KES."""
        ...

    @property
    def phone(self) -> str | None:
        """The phone number, which the service may have masked."""
        ...

    @property
    def type(self) -> str | None:
        """STK, B2C or another type."""
        ...


@dataclass(frozen=True)
class RequestedPayment:
    """What identifies a payment. What is None is not compared."""

    reference: str
    amount: Decimal | None
    phone: str | None
    type: str | None

    def differences(self, reference: str | None, record: PaymentRecord) -> list[str]:
        """Return the names of what the service's record states differently; what it does not state differs in nothing.

        The reference is passed by itself, because records have it under several names.
        """
        pairs = {
            # References are sent in the form NFC. A trimmed one is another one.
            "reference": not reference or unicodedata.normalize("NFC", reference) == self.reference,
            "amount": None in {self.amount, record.amount} or self.amount == record.amount,
            "phone": self.phone is None or record.phone is None or same_phone(self.phone, record.phone),
            "type": self.type is None or record.type is None or self.type.casefold() == record.type.casefold(),
        }
        return [name for name, agrees in pairs.items() if not agrees]


def comparable(reference: str | None) -> str:
    """Return a reference in the form in which two that look the same are equal."""
    return "" if reference is None else unicodedata.normalize("NFC", reference).strip()
