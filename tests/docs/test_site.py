"""The built site: every public name is in its reference."""

from __future__ import annotations

import builtins
import re
from html import unescape
from pathlib import Path

import momopay
import momopay.events

TAG = re.compile(r"<[^>]+>")
BASES = re.compile(r"Bases: (.*?)</p>", re.DOTALL)


def test_diagrams_are_in_the_pages(site: Path) -> None:
    for page in ("collect", "pay-out", "understand/guarantee"):
        text = (site / page / "index.html").read_text()
        assert '<div class="diagram"><svg' in text
        assert "```" not in text
        assert "mermaid" not in text


def test_every_public_name_is_in_the_reference(site: Path) -> None:
    shown = "".join(page.read_text() for page in (site / "reference").rglob("*.html"))
    names = [f"{module.__name__}.{name}" for module in (momopay, momopay.types) for name in module.__all__]
    assert [name for name in names if f'id="{name}"' not in shown] == []


def test_every_operation_is_in_the_reference_and_in_its_table(site: Path) -> None:
    index = (site / "reference/index.html").read_text()
    shown = (site / "reference/operations/index.html").read_text()
    for kind in ("stk.Stk", "payouts.Payouts", "transactions.Transactions", "wallet.Wallet", "channels.Channels"):
        module, _, name = kind.partition(".")
        resource = getattr(momopay.types, name)
        for operation in (each for each in dir(resource) if not each.startswith("_")):
            assert re.search(rf'id="momopay\.types\.{name}\.{operation}"', shown), operation
            assert f">{module}.{operation}<" in index, operation


def test_the_reference_shows_public_base_classes_only(site: Path) -> None:
    shown = "".join(page.read_text() for page in (site / "reference").rglob("*.html"))
    bases = {unescape(TAG.sub("", name)) for line in BASES.findall(shown) for name in TAG.sub("", line).split(",")}
    known = {
        *momopay.__all__,
        *momopay.types.__all__,
        *momopay.events.__all__,
        *vars(builtins),
        "Enum",
        "StrEnum",
        "Protocol",
        "BaseModel",
        "NamedTuple",
    }
    assert {name.strip() for name in bases} - known == set()
