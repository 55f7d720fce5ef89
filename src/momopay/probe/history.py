"""Transactions as the list and the single read show them, in either naming style. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from momopay.probe.answers import Answer, amount_of, field_of


@dataclass(frozen=True)
class Seen:
    """One transaction in one answer."""

    record: Mapping[str, Any]

    @property
    def id(self) -> str:
        """The transaction's id, "" if it has none."""
        return self._text("transactionId", "transaction_id", "id")

    @property
    def type(self) -> str:
        """The type as it is shown."""
        return self._text("type")

    @property
    def status(self) -> str:
        """The status as it is shown."""
        return self._text("status")

    @property
    def phone(self) -> str:
        """The phone as it is shown."""
        return self._text("phone", "phoneNumber", "phone_number")

    @property
    def reference(self) -> str:
        """The reference."""
        return self._text(
            "accountReference", "account_reference", "externalReference", "external_reference", "reference"
        )

    @property
    def result_code(self) -> str:
        """The provider's result code, "" if there is none."""
        return self._text("resultCode", "result_code")

    @property
    def created(self) -> str:
        """The time of creation as it is shown."""
        return self._text("createdAt", "created_at")

    @property
    def amount(self) -> Decimal | None:
        """The amount, KES."""
        return amount_of(field_of(self.record, "amount"))

    @property
    def fee(self) -> Decimal | None:
        """The fee, KES; None if it is not shown."""
        return amount_of(field_of(self.record, "transactionFee", "transaction_fee"))

    @property
    def is_prompt(self) -> bool:
        """Whether it is an STK prompt."""
        return self.type.upper() == "STK"

    @property
    def is_top_up(self) -> bool:
        """Whether it is a top-up of the service wallet."""
        return "TOP" in self.type.upper()

    @property
    def has_expired(self) -> bool:
        """Whether its status is EXPIRED."""
        return self.status.upper() == "EXPIRED"

    def _text(self, *names: str) -> str:
        value = field_of(self.record, *names)
        return value if isinstance(value, str) else str(value) if isinstance(value, int) else ""


class History:
    """The transactions of one page, newest first."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.items: list[Seen] = [seen for seen in map(Seen, answer.items) if seen.id]

    @property
    def has_more(self) -> bool:
        """Whether another page follows."""
        return bool(field_of(self.answer.data, "nextCursor", "next_cursor"))

    def find(self, transaction_id: str) -> Seen | None:
        """Return the item with that id, None if the page has none."""
        return next((item for item in self.items if item.id == transaction_id), None)


def instant(text: str) -> datetime | None:
    """Return a time; without a zone, if it has none; None if it is not ISO 8601."""
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None


def hours_ahead(local: datetime, of: datetime) -> float:
    """Return by how many hours a time without a zone is ahead of an instant, to half an hour."""
    difference = local.replace(tzinfo=UTC) - of
    return round(difference / timedelta(minutes=30)) / 2
