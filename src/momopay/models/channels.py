"""The records of payment channels: registered shortcodes that STK requests are routed through."""

from __future__ import annotations

from momopay.models.enums import ChannelType
from momopay.models.records import Items, Record, ResponseInfo, Timestamp, note_response

__all__ = ["PaymentChannel"]


class PaymentChannel(Record):
    """A registered shortcode (service page, "Payment channel")."""

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
    """The list of channels as it is on the wire: the default first, then newest to oldest."""

    items: Items[PaymentChannel]

    def _received(self, info: ResponseInfo) -> None:
        """Note which response these channels came in."""
        for channel in self.items:
            note_response(channel, info)
