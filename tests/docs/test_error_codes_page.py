"""The page of error codes is complete, and its examples are what the service answers and what the SDK says."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

import momopay
from docs.blocks import ROOT, blocks_in
from docs.raised import Raised
from momopay import errors
from momopay.errors import ERRORS_BY_CODE
from momopay.sandbox import Sandbox

PAGE = ROOT / "docs/reference/error-codes.md"
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
    own = {name for name in SECTIONS if name in errors.__all__}
    first = "".join(section.partition("\n")[0] for section in SECTIONS.values())
    assert own | set(re.findall(r"`(\w+Error)`", first)) == set(errors.__all__)


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
    body = json.loads(shown(SECTIONS[code], "json"))
    assert list(body) == ["success", "error", "requestId"]
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
    error = raised.value
    assert (error.code, error.details) == (code, body["error"]["details"])
    assert not error.may_have_executed
    # What the class reads from the details is there.
    for name, value in vars(kind).items():
        if isinstance(value, property):
            assert getattr(error, name) is not None, name


@pytest.fixture(scope="module")
def raised(still_sandbox: Sandbox, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Raised]:
    raised = Raised(still_sandbox, tmp_path_factory.mktemp("errors"))
    yield raised
    raised.client.close()


@pytest.mark.parametrize("name", [*OF_SDK, "ServerError"])
def test_an_example_text_is_what_the_error_says(raised: Raised, name: str) -> None:
    text = shown(SECTIONS.get(name, SECTIONS["Server errors"]), "text")
    assert VARYING.sub("", str(raised.catch(name))) == VARYING.sub("", text)


def test_every_link_into_the_page_has_its_section() -> None:
    anchors = {re.sub(r"[^\w-]", "", name.lower().replace(" ", "-")) for name in SECTIONS}
    for page in (ROOT / "docs").rglob("*.md"):
        for anchor in re.findall(r"error-codes\.md#([\w-]+)", page.read_text()):
            assert anchor in anchors | {"codes-of-the-service", "errors-of-the-sdk"}, page


def test_the_json_is_valid() -> None:
    assert len([block for block in blocks_in(Path(PAGE)) if block.language == "json"]) == len(ERRORS_BY_CODE) + 1
