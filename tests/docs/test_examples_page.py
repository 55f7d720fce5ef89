"""Each operation has an example for each client on one page. Other tests run them and check their types."""

from __future__ import annotations

import re

import pytest

import momopay
from docs.blocks import ROOT, blocks_in
from momopay._core.operation import Operation

PAGE = ROOT / "docs/reference/examples.md"
RESOURCES = {
    "stk": momopay.Stk,
    "payouts": momopay.Payouts,
    "transactions": momopay.Transactions,
    "wallet": momopay.Wallet,
    "channels": momopay.Channels,
}
CALLS = [f"{name}.{call}" for name, kind in RESOURCES.items() for call in dir(kind) if not call.startswith("_")]
SECTIONS: dict[str, str] = dict(re.findall(r"^### (.+)\n\n((?:.*\n)+?)(?=^##|\Z)", PAGE.read_text(), re.MULTILINE))


def test_every_call_has_a_section() -> None:
    assert sorted(SECTIONS) == sorted(CALLS)
    named = {f"{name}.{call}" for name, kind in RESOURCES.items() for call in dir(kind) if is_operation(kind, call)}
    assert len(named) > 15
    assert named <= set(SECTIONS)


def is_operation(kind: type, call: str) -> bool:
    return any(isinstance(vars(base).get(call), Operation) for base in kind.__mro__)


@pytest.mark.parametrize("call", CALLS)
def test_it_has_a_whole_program_for_each_client(call: str) -> None:
    parts = re.split(r'^=== "(\w+)"$', SECTIONS[call], flags=re.MULTILINE)
    programs = dict(zip(parts[1::2], parts[2::2], strict=True))
    assert list(programs) == ["Client", "AsyncClient"]
    for client, text in programs.items():
        assert re.search(rf"from momopay import .*\b{client}\b", text), "it imports what it uses"
        written = re.search(rf"^.*\bclient\.{re.escape(call)}\(", text, re.MULTILINE)
        assert written is not None
        name, _, method = call.partition(".")
        if is_operation(RESOURCES[name], method):
            assert ("await" in written[0]) == (client == "AsyncClient")
        elif method != "notify":  # an iterator
            assert ("async for" in written[0]) == (client == "AsyncClient")


def test_no_block_is_left_out() -> None:
    shown = [block for block in blocks_in(PAGE) if block.language == "python"]
    assert len(shown) == 2 * len(CALLS)
    assert [block.name for block in shown if block.reason is not None] == []
