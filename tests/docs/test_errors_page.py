"""The tables of errors agree with errors.py, with the service page and with the sandbox."""

from __future__ import annotations

import re
from collections.abc import Iterator

import momopay
from docs.blocks import ROOT
from momopay.errors import ERRORS_BY_CODE
from momopay.sandbox._refusals import STATUS_BY_CODE

GUIDE = (ROOT / "docs/operate/errors.md").read_text()
SERVICE = (ROOT / "docs/understand/service.md").read_text()
ERRORS = {
    name: kind
    for name in momopay.__all__
    if isinstance(kind := getattr(momopay, name), type) and issubclass(kind, momopay.MomoPayError)
}


def rows(text: str, heading: str) -> Iterator[list[str]]:
    """Yield the cells of each row of the first table under a heading."""
    table = re.search(r"^\|.*?(?=\n\n)", text[text.index(f"\n{heading}\n") :], re.MULTILINE | re.DOTALL)
    assert table is not None
    for line in table[0].splitlines()[2:]:
        yield [cell.strip().strip("`") for cell in line.strip("|").split(" | ")]


ANSWERED = [
    [*(part.strip("`") for part in re.split(r", |<br>", row[0].replace(", 404", " 404"))), *row[1:]]
    for row in rows(GUIDE, "## Errors from the service")
]
HERE = list(rows(GUIDE, "## Errors of the SDK and the network"))


def test_every_code_of_the_service_has_a_row_and_a_class() -> None:
    documented = {code: kind for code, _, kind, *_ in ANSWERED if code in ERRORS_BY_CODE}
    specified = [code for code, *_ in rows(SERVICE, "## Errors")]
    assert list(documented) == specified
    assert documented == {code: kind.__name__ for code, kind in ERRORS_BY_CODE.items()}


def test_the_statuses_are_those_of_the_service() -> None:
    documented = {code: http for code, http, *_ in ANSWERED}
    for code, http, _ in rows(SERVICE, "## Errors"):
        stated = re.findall(r"\b[45]\d\d\b", http)
        assert re.findall(r"\b[45]\d\d\b", documented[code]) == stated
        assert not stated or str(STATUS_BY_CODE[code]) in stated


def test_every_error_has_a_row() -> None:
    assert {kind for _, _, kind, *_ in ANSWERED} | {row[0] for row in HERE} == set(ERRORS)


def test_the_money_column_agrees_with_may_have_executed() -> None:
    documented = {kind: money for _, _, kind, money, *_ in ANSWERED if kind not in {"APIError", "ServerError"}}
    documented |= {row[0]: row[1] for row in HERE}
    sometimes = {"APIConnectionError", "ProtocolError", "MomoPayError"}
    for name, money in documented.items():
        if name in sometimes:
            assert money == "no, unless `may_have_executed"
        else:
            assert money == ("**maybe**" if ERRORS[name].may_have_executed else "no"), name
