"""What single pages state is what the code has: citations, calls, rows of the probe, the shop's code, quoted texts."""

from __future__ import annotations

import ast
import re
from functools import cache

import citations
import pytest

import momopay.types
from docs.blocks import ROOT, blocks_in
from in_turn import in_turn
from momopay.errors import ERRORS_BY_CODE
from momopay.probe import ROWS, Cost

DOCS = ROOT / "docs"


def test_every_citation_of_the_service_page_names_a_section() -> None:
    sources = [*(ROOT / "src").rglob("*.py"), *(ROOT / "tests").rglob("*.py"), *(ROOT / "examples").rglob("*.py")]
    cited = {
        (str(path.relative_to(ROOT)), section)
        for path in sources
        if path.parent != ROOT / "tests/docs"
        for section in citations.cited_sections(path.read_text())
    }
    assert sorted(each for each in cited if each[1] not in citations.anchors()) == []


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
    shown = [block for block in blocks_in(DOCS / "reference/examples.md") if block.language == "python"]
    assert [block.name for block in shown if block.reason is not None] == []
    assert {call for block in shown for call in re.findall(r"\bclient\.(\w+\.\w+)\(", block.text)} == CALLS


COSTS = {
    "By reads": Cost.READS,
    "With `--write`": Cost.WRITE,
    "With `--rate`": Cost.RATE,
    "With `--spend`": Cost.SPEND,
    "Not from outside": Cost.OUTSIDE,
}


def test_the_page_of_the_probe_names_every_row_under_what_it_costs() -> None:
    questions = (DOCS / "go-live/probe.md").read_text().partition("## Every question")[2]
    named: set[tuple[str, Cost, bool]] = set()
    for section in questions.split("\n### ")[1:]:
        title, _, text = section.partition("\n")
        named |= {(name, COSTS[title], bool(stars)) for stars, name in re.findall(r"(\**)`([a-z_0-9]+)`", text)}
    assert named == {(row.name, row.cost, row.is_switch) for row in ROWS}


def functions(source: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef):
            node.body = node.body[ast.get_docstring(node) is not None :]
            found[node.name] = ast.dump(node)
    return found


@pytest.mark.parametrize(
    ("program", "shown"),
    [
        ("django_shop.py", {"move", "on_end", "pay"}),
        ("shop.py", {"callback_url", "move", "on_callback", "on_end", "orders", "pay", "refund", "sweep"}),
    ],
)
def test_the_page_of_the_shop_shows_the_programs_apart_from_docstrings(program: str, shown: set[str]) -> None:
    of_django = program.startswith("django")
    blocks = [each for each in blocks_in(DOCS / "start/shop.md") if each.language == "python"]
    blocks = [each for each in blocks if (each.module is not None) == of_django]
    page = {name: dumped for block in blocks for name, dumped in functions(block.text).items()}
    whole = functions((ROOT / "examples" / program).read_text())
    assert page.keys() == shown
    assert [name for name in page if page[name] != whole[name]] == []


SYMPTOMS = re.findall(r"^\| (.+?) \|", (DOCS / "operate/troubleshooting.md").read_text(), re.MULTILINE)
QUOTED = [text for symptom in SYMPTOMS for text in re.findall(r"`([^`]+)`", symptom)]
# Words of Python, of the network or of the service that are no messages of the SDK.
NAMES = {"momo_receipt", "base_url", "result_code", "CERTIFICATE_VERIFY_FAILED", "not sent: ConnectError"}


@cache
def messages() -> str:
    """Return every text in the source, with a mark where a value is filled in."""
    found: list[str] = []
    for path in (ROOT / "src/momopay").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.JoinedStr):
                found.append(
                    "".join(str(part.value) if isinstance(part, ast.Constant) else "\0" for part in node.values)
                )
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append(node.value)
    # `test_error_codes_page.py` compares the texts of that page with errors as they are raised.
    return "\n".join([*found, (DOCS / "reference/error-codes.md").read_text()])


@in_turn("text", QUOTED)
def test_a_text_that_the_troubleshooting_page_quotes_is_in_the_source(text: str) -> None:
    statuses = {each.value for each in momopay.TransactionStatus} | {each.value for each in momopay.JournalState}
    if text in NAMES | statuses | set(ERRORS_BY_CODE):
        return
    # `...` stands for what differs.
    assert re.search(".{0,60}".join(map(re.escape, re.split(r"(?<!=)\.\.\.", text))), messages()) is not None
