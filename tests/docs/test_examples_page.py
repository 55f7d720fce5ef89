"""Each operation has an example on one page. Other tests run them and check their types."""

from __future__ import annotations

import re

import momopay.types
from docs.blocks import ROOT, blocks_in

PAGE = ROOT / "docs/reference/examples.md"
RESOURCES = {
    "stk": momopay.types.Stk,
    "payouts": momopay.types.Payouts,
    "transactions": momopay.types.Transactions,
    "wallet": momopay.types.Wallet,
    "channels": momopay.types.Channels,
}
CALLS = {f"{name}.{call}" for name, kind in RESOURCES.items() for call in dir(kind) if not call.startswith("_")}


def test_every_call_has_an_example() -> None:
    assert len(CALLS) > 20
    shown = [block for block in blocks_in(PAGE) if block.language == "python"]
    assert [block.name for block in shown if block.reason is not None] == []
    assert {call for block in shown for call in re.findall(r"\bclient\.(\w+\.\w+)\(", block.text)} == CALLS
