"""The one page for assistants: complete, up to date, in the package, and with answers to what they ask."""

import re
from importlib.resources import files
from pathlib import Path

import interface
import pytest

import momopay
from in_turn import in_turn

TEXT = interface.text()
GROUPS = {name.lower(): getattr(momopay.types, name) for name in interface.GROUPS}
CALLS = {f"{group}.{call}" for group, kind in GROUPS.items() for call in dir(kind) if not call.startswith("_")}
QUESTIONS = {
    "how do I collect": r"client\.stk\.collect_once",
    "what if the outcome is unknown": r"OutcomeUnknownError.*the sweep finds out.*do not pay in another way",
    "how do I test": r"momopay_sandbox: Sandbox, momopay_client: Client, momopay_journal",
    "how do I make the client, and where is the key": r"Client\(journal=.*MOMOPAY_API_KEY",
    "may I retry": r"the same call with the same `reference` never pays twice",
    "how do I know that it was paid": r"`payment\.is_paid` is None, later True or False",
    "may I trust a callback": r"Never act on a callback's body",
    "when do I store the order": r"Commit the order before `collect_once`",
    "what is an amount": r"`int` or `Decimal`, never `float`",
    "how do I pay many people, once": r"client\.payouts\.pay_all\(salaries",
    "how do I pay back a part": r"client\.payouts\.refund\(of=\"INV-1\", amount=40\)",
    "what does a handler do with an order that it does not know": r"Raise if you have no such order",
    "when is a payout final": r"settled when it is SUCCESS or REVERSED",
    "how do I use it with asyncio": r"`AsyncClient` has the same calls with `await`",
}


@in_turn(("question", "answer"), QUESTIONS.items())
def test_the_page_answers(question: str, answer: str) -> None:
    assert re.search(answer, " ".join(TEXT.split()).replace("**", "")), question


def test_the_page_has_every_public_name_and_every_call() -> None:
    assert [name for name in momopay.__all__ if not re.search(rf"\b{name}\b", TEXT)] == []
    for group, part in re.findall(r"### client\.(\w+)\n(.*?)```\n", TEXT, re.DOTALL):
        shown = set(re.findall(r"^(\w+)\(", part, re.MULTILINE))
        assert shown == {call.partition(".")[2] for call in CALLS if call.startswith(f"{group}.")}
    assert len(CALLS) > 20


def test_the_copy_in_the_package_is_up_to_date() -> None:
    packaged = files("momopay").joinpath("llms.txt").read_text(encoding="utf-8")
    assert packaged == TEXT, "write it with: python docs/hooks/interface.py"
    assert "<!--" not in packaged
    assert not re.search(r"\]\((?!http)", packaged)  # a link that leads nowhere in the package


def test_the_docstring_of_the_package_shows_the_first_call_and_names_the_page() -> None:
    documented = momopay.__doc__ or ""
    assert "momopay.Client(journal=" in documented
    assert "client.stk.collect_once(reference=" in documented
    assert "llms.txt" in documented
    (path,) = re.findall(r'importlib\.resources\.files\("(\w+)"\)\.joinpath\("llms\.txt"\)', documented)
    assert files(path).joinpath("llms.txt").is_file()


@pytest.mark.whole
def test_the_site_has_it_with_links_to_pages_for_assistants(site: Path) -> None:
    whole = (site / "llms.txt").read_text()
    assert TEXT.partition("\n\n")[2].strip() in whole
    links = re.findall(r"\]\(https://momopay\.example/docs/([^)]+)\)", whole)
    assert len(links) > 10
    for link in links:
        assert (site / link).read_text().startswith("# ")
