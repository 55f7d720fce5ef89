"""The page of error codes is complete, and its examples are what the service answers and what the SDK says."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

import momopay
from docs.blocks import ROOT
from docs.raised import Raised
from momopay.errors import ERRORS_BY_CODE
from momopay.sandbox import Sandbox
from momopay.sandbox._refusals import STATUS_BY_CODE

PAGE = ROOT / "docs/reference/error-codes.md"
SERVICE = (ROOT / "docs/understand/service.md").read_text()
SECTIONS: dict[str, str] = dict(re.findall(r"^### (.+)\n\n((?:.*\n)+?)(?=^##|\Z)", PAGE.read_text(), re.MULTILINE))
MONEY = {
    "No money moved.": {False},
    "Money may have moved.": {True},
    "No money moved, unless `may_have_executed` is True.": {False, True},
}
OF_SDK = [name for name in vars(Raised) if name.endswith("Error") and name != "ServerError"]
VARYING = re.compile(
    r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|\d{4}-\d\d-\d\d|\d+\.\d+ s|/\S+/"
    r"|(?<=Errno )\d+|(?<=127\.0\.0\.1:)\d+"
)


def shown(section: str, language: str) -> str:
    found = re.search(rf"```{language}\n(.*?)```", section, re.DOTALL)
    assert found is not None
    return found[1].strip()


def test_every_code_and_every_class_has_a_section() -> None:
    assert [name for name in SECTIONS if name.isupper()] == list(ERRORS_BY_CODE)
    for code, kind in ERRORS_BY_CODE.items():
        assert SECTIONS[code].startswith(f"`{kind.__name__}`, "), code
    classes = {name for name in momopay.__all__ if name.endswith("Error")}
    own = {name for name in SECTIONS if name in classes}
    first = "".join(section.partition("\n")[0] for section in SECTIONS.values())
    assert own | set(re.findall(r"`(\w+Error)`", first)) == classes


@pytest.mark.parametrize("name", SECTIONS)
def test_a_section_says_whether_money_moved_and_what_to_do(name: str) -> None:
    section = SECTIONS[name]
    (stated,) = {phrase for phrase in MONEY if phrase in section}
    kind = ERRORS_BY_CODE.get(name) or getattr(momopay, name, None)
    if kind is not None:
        assert kind.may_have_executed in MONEY[stated]
    assert "**What to do.** " in section or name == "Pauses"


@pytest.mark.parametrize("code", ERRORS_BY_CODE)
def test_an_example_answer_raises_the_class(code: str) -> None:
    details: Any = json.loads(shown(SECTIONS[code], "json")) if "```json" in SECTIONS[code] else {}
    error = {"message": "", "code": code, "details": details}
    body = {"success": False, "error": error, "requestId": "8024c1fe-3cf5-482b-8958-730ad40e6a32"}
    status = re.search(r"HTTP (\d+)", SECTIONS[code].partition("\n")[0])
    answer = httpx.Response(int(status[1]) if status else 404, json=body)
    kind = ERRORS_BY_CODE[code]
    with (
        momopay.Client(
            "pk_test_page",
            base_url="https://api.example/v1",
            transport=httpx.MockTransport(lambda _: answer),
            budget=None,
            max_attempts=1,
        ) as client,
        pytest.raises(kind) as raised,
    ):
        client.wallet.balance()
    assert (raised.value.code, raised.value.details) == (code, details)
    assert not raised.value.may_have_executed
    # What the class reads from the details is there.
    for name, value in vars(kind).items():
        if isinstance(value, property):
            assert getattr(raised.value, name) is not None, name


@pytest.fixture(scope="module")
def raised(still_sandbox: Sandbox, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Raised]:
    raised = Raised(still_sandbox, tmp_path_factory.mktemp("errors"))
    yield raised
    raised.client.close()


@pytest.mark.parametrize("name", [*OF_SDK, "ServerError"])
def test_an_example_text_is_what_the_error_says(raised: Raised, name: str) -> None:
    text = shown(SECTIONS.get(name, SECTIONS["Server errors"]), "text")
    assert VARYING.sub("", str(raised.catch(name))) == VARYING.sub("", text)


def test_the_codes_and_statuses_are_those_of_the_service_page() -> None:
    table = re.findall(r"^\| `([A-Z_]+)` \| (.+?) \|", SERVICE.partition("\n## Errors\n")[2], re.MULTILINE)
    assert [code for code, _ in table] == list(ERRORS_BY_CODE)
    for code, http in table:
        stated = re.findall(r"\b[45]\d\d\b", http)
        assert re.findall(r"\b[45]\d\d\b", SECTIONS[code].partition("\n")[0]) == stated
        assert not stated or str(STATUS_BY_CODE[code]) in stated
