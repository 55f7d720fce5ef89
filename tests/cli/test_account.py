"""The service wallet and the channels."""

from __future__ import annotations

from decimal import Decimal

from cli.kit import Shell
from momopay.sandbox import Account


def test_the_balance(momopay: Shell, account: Account) -> None:
    account.service_balance = Decimal("1234567.50")
    shown = momopay("balance")
    assert (shown.code, shown.err) == (0, "")
    assert "KES 1,234,567.50" in shown.out
    assert momopay("balance", "--json").json["available_balance"] == "1234567.50"


def test_the_channels(momopay: Shell, account: Account) -> None:
    shown = momopay("channels")
    assert (shown.code, shown.err) == (0, "")
    assert "yes" in shown.out
    assert account.channels[0].id in shown.out
    (channel,) = momopay("channels", "--json").json["items"]
    assert (channel["type"], channel["shortcode"], channel["is_default"]) == ("PAYBILL", "600100", True)
    account.channels = []
    assert "no payment channel" in momopay("channels").out
    assert momopay("channels", "--json").json == {"items": []}
