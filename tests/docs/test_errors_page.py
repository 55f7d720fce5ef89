"""The tables of errors, held against errors.py, SPEC.md and the sandbox, a reading of SPEC.md of its own."""

from __future__ import annotations

import re
from collections.abc import Iterator

import momopay
from docs.blocks import ROOT
from momopay.errors import ERRORS_BY_CODE
from momopay.sandbox._refusals import STATUS_BY_CODE

GUIDE = (ROOT / "docs/guides/errors.md").read_text()
SPEC = (ROOT / "docs/specification.md").read_text()
ERRORS = {
    name: kind
    for name in momopay.__all__
    if isinstance(kind := getattr(momopay, name), type) and issubclass(kind, momopay.MomoPayError)
}


def rows(text: str, heading: str) -> Iterator[list[str]]:
    """Give the cells of the first table under a heading."""
    table = re.search(r"^\|.*?(?=\n\n)", text[text.index(f"\n{heading}\n") :], re.MULTILINE | re.DOTALL)
    assert table is not None
    for line in table[0].splitlines()[2:]:
        yield [cell.strip().strip("`") for cell in line.strip("|").split(" | ")]


ANSWERED = [
    [*(part.strip("`") for part in re.split(r", |<br>", row[0].replace(", 404", " 404"))), *row[1:]]
    for row in rows(GUIDE, "## What the service answers")
]
HERE = list(rows(GUIDE, "## What happens here, or on the way"))


def test_every_code_of_the_specification_has_its_row_and_its_class() -> None:
    told = {code: kind for code, _, kind, *_ in ANSWERED if code in ERRORS_BY_CODE}
    specified = [code for code, *_ in rows(SPEC, "## Errors")]
    assert list(told) == specified
    assert told == {code: kind.__name__ for code, kind in ERRORS_BY_CODE.items()}


def test_the_statuses_are_those_of_the_specification() -> None:
    told = {code: http for code, http, *_ in ANSWERED}
    for code, http, _ in rows(SPEC, "## Errors"):
        stated = re.findall(r"\b[45]\d\d\b", http)
        assert re.findall(r"\b[45]\d\d\b", told[code]) == stated
        assert not stated or str(STATUS_BY_CODE[code]) in stated


def test_every_error_has_a_row() -> None:
    assert {kind for _, _, kind, *_ in ANSWERED} | {row[0] for row in HERE} == set(ERRORS)


def test_what_is_said_of_money_is_what_the_class_says() -> None:
    said = {kind: money for _, _, kind, money, *_ in ANSWERED if kind not in {"APIError", "ServerError"}}
    said |= {row[0]: row[1] for row in HERE}
    sometimes = {"APIConnectionError", "ProtocolError", "MomoPayError"}
    for name, money in said.items():
        if name in sometimes:
            assert money == "no, unless `may_have_executed"
        else:
            assert money == ("**maybe**" if ERRORS[name].may_have_executed else "no"), name
