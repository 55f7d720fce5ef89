"""Payment channels: registered shortcodes that STK requests are routed through."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field, ValidationInfo, field_validator

from momopay.models.arguments import ChannelId, Flag, Name, Text
from momopay.models.enums import ChannelType
from momopay.models.records import Items, Record, ResponseInfo, Timestamp
from momopay.models.request_base import UNSET, Request

__all__ = ["PaymentChannel"]


class ChannelRequest(Request):
    """The body of POST /payment-wallet/channels."""

    name: Name
    type: Name
    shortcode: Name
    account_number: Text | None = Field(None, validate_default=True)
    is_default: Flag | None = None

    @field_validator("account_number")
    @classmethod
    def _paybill_has_an_account(cls, value: str | None, info: ValidationInfo) -> str | None:
        if info.data.get("type") == ChannelType.PAYBILL and not (value or "").strip():
            raise ValueError("is required for a PAYBILL channel")
        return value


class ChannelChanges(Request):
    """The body of PATCH /payment-wallet/channels/{id}; None is null here."""

    absent: ClassVar[object] = UNSET

    channel_id: ChannelId = Field(exclude=True)
    name: Name | None = None
    account_number: Text | None = None
    is_default: Flag | None = None


class PaymentChannel(Record):
    """A registered shortcode (SPEC.md, "Payment channel")."""

    id: str
    tenant_id: str | None = None
    category: str | None = None
    type: ChannelType
    shortcode: str
    name: str
    account_number: str | None = None
    is_default: bool = False
    created_at: Timestamp


class ChannelItems(Record):
    """The list of channels as the wire carries it: the default first, then newest to oldest."""

    items: Items[PaymentChannel]

    def received(self, info: ResponseInfo) -> None:
        """Note which answer these channels came in."""
        for channel in self.items:
            channel.received(info)
