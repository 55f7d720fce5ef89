"""What the troubleshooting page quotes is what the SDK says."""

from __future__ import annotations

import ast
import re
from functools import cache

import momopay
from docs.blocks import ROOT
from in_turn import in_turn
from momopay.errors import ERRORS_BY_CODE

PAGE = ROOT / "docs/operate/troubleshooting.md"
SYMPTOMS = re.findall(r"^\| (.+?) \|", PAGE.read_text(), re.MULTILINE)
QUOTED = [text for symptom in SYMPTOMS for text in re.findall(r"`([^`]+)`", symptom)]
# Words of Python, of the network or of the service that are no messages of the SDK.
NAMES = {"momo_receipt", "base_url", "result_code", "CERTIFICATE_VERIFY_FAILED", "not sent: ConnectError"}
PLACE = "\0"


@cache
def messages() -> str:
    """Return every text in the source, with a mark where a value is filled in."""
    found: list[str] = []
    for path in (ROOT / "src/momopay").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.JoinedStr):
                found.append(
                    "".join(str(part.value) if isinstance(part, ast.Constant) else PLACE for part in node.values)
                )
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append(node.value)
    # `test_error_codes_page.py` compares the texts of that page with errors as they are raised.
    return "\n".join([*found, (ROOT / "docs/reference/error-codes.md").read_text()])


@in_turn("text", QUOTED)
def test_a_quoted_text_is_in_the_source(text: str) -> None:
    statuses = {each.value for each in momopay.TransactionStatus} | {each.value for each in momopay.JournalState}
    if text in NAMES | statuses | set(ERRORS_BY_CODE):
        return
    # `...` stands for what differs.
    pattern = ".{0,60}".join(map(re.escape, re.split(r"(?<!=)\.\.\.", text)))
    assert re.search(pattern, messages()) is not None
