"""What pages state is what the code has: citations, calls, probe rows, the shop's code, error codes, quoted texts."""

from __future__ import annotations

import ast
import json
import os
import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import citations
import httpx
import pytest

import momopay
import momopay.types
from docs.blocks import ROOT, blocks_in
from in_turn import in_turn
from momopay import CallbackSigner, Client, Journal, MomoPayError, PollSchedule, RateBudget, parse_callback
from momopay.durable.remedies import Remedy
from momopay.errors import ERRORS_BY_CODE
from momopay.probe import ROWS, Cost
from momopay.sandbox import Fault, Outcome, Sandbox, phone_for
from momopay.sandbox._refusals import STATUS_BY_CODE

PHONE = "0712 345 678"


class Raised:
    """Raises each error against a sandbox. The methods are named as the classes are."""

    def __init__(self, sandbox: Sandbox, folder: Path) -> None:
        self.sandbox = sandbox
        self.folder = folder
        self.client = Client("pk_test_raised", base_url=sandbox.base_url, budget=None, max_attempts=1)

    def catch(self, name: str) -> MomoPayError:
        made: Callable[[], object] = getattr(self, name)
        with pytest.raises(MomoPayError) as caught:
            made()
        assert type(caught.value).__name__ == name
        return caught.value

    def journal(self) -> Journal:
        return Journal(f"sqlite:///{self.folder / 'errors.db'}")

    def answering(self, status: int, text: str) -> Client:
        transport = httpx.MockTransport(lambda _: httpx.Response(status, text=text))
        base_url = "https://api.example/v1"
        return Client("pk_test_raised", base_url=base_url, transport=transport, budget=None, max_attempts=1)

    def ConfigurationError(self) -> None:  # noqa: N802
        saved = os.environ.pop("MOMOPAY_API_KEY", None)
        try:
            Client(base_url=self.sandbox.base_url)
        finally:
            if saved is not None:
                os.environ["MOMOPAY_API_KEY"] = saved

    def RequestValidationError(self) -> None:  # noqa: N802
        self.client.stk.initiate(amount=0, phone="0712")

    def CallbackError(self) -> None:  # noqa: N802
        callback = parse_callback(
            {"event_type": "transaction.success", "transaction": {"id": "5f1c2a9e", "status": "SUCCESS"}}
        )
        with self.journal() as journal, journal.handling(callback), journal.handling(callback):
            pass

    def InvalidCallbackError(self) -> None:  # noqa: N802
        parse_callback(b"<html>")

    def ForgedCallbackError(self) -> None:  # noqa: N802
        CallbackSigner("a secret of more than 16 bytes").verify("https://shop.example/momo")

    def CallbackMismatchError(self) -> None:  # noqa: N802
        prompt = self.client.stk.initiate(amount=5, phone=PHONE)
        body = {
            "event_type": "transaction.success",
            "transaction": {"id": prompt.transaction_id, "status": "SUCCESS", "amount": 500},
        }
        self.client.transactions.confirm(parse_callback(body))

    def APIConnectionError(self) -> None:  # noqa: N802
        with Client("pk_test_raised", base_url="http://127.0.0.1:1/v1", budget=None, max_attempts=1) as client:
            client.wallet.balance()

    def BudgetExhaustedError(self) -> None:  # noqa: N802
        budget = RateBudget(requests=1, window=61.0)
        with Client("pk_test_raised", base_url=self.sandbox.base_url, budget=budget, deadline=5) as client:
            client.wallet.balance()
            client.wallet.balance()

    def OutcomeUnknownError(self) -> None:  # noqa: N802
        self.sandbox.fail_next("POST", "/b2c/payouts", Fault.reset_after_commit)
        self.client.payouts.initiate(amount=2500, phone=PHONE, reference="SAL-7")

    def ProtocolError(self) -> None:  # noqa: N802
        with self.answering(200, "<html>A proxy's page</html>") as client:
            client.wallet.balance()

    def WaitTimeoutError(self) -> None:  # noqa: N802
        prompt = self.client.stk.initiate(amount=5, phone=phone_for(Outcome.by_hand))
        self.client.transactions.wait(prompt, schedule=PollSchedule(first=0.01, every=0.01, limit=0.05))

    def DuplicatePayoutError(self) -> None:  # noqa: N802
        with self.journal() as journal:
            for amount in (100, 200):
                self.client.payouts.pay_once(journal=journal, reference="SAL-8", amount=amount, phone=PHONE)

    def DuplicateCollectionError(self) -> None:  # noqa: N802
        with self.journal() as journal:
            for amount in (100, 200):
                self.client.stk.collect_once(journal=journal, reference="INV-8", amount=amount, phone=PHONE)

    def JournalError(self) -> None:  # noqa: N802
        path = self.folder / "removed.db"
        with Journal(f"sqlite:///{path}") as journal:
            journal.get("SAL-9")
            path.unlink()
            journal.get("SAL-9")

    def ServerError(self) -> None:  # noqa: N802
        with self.answering(502, "<html>Bad gateway</html>") as client:
            client.wallet.balance()


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


def test_the_page_of_the_reconciliation_has_every_difference_with_its_remedy() -> None:
    page = (ROOT / "docs/follow/reconcile.md").read_text()
    for remedy in Remedy:
        meaning, action = (text.format(amount="...", pay="pay, or refund,", problem="...") for text in remedy.value)
        assert f"| `{remedy.name.lower()}` | {meaning} | {action} |\n" in page


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
        ("django_shop.py", {"front", "move", "on_end", "paid", "pay", "show"}),
        ("shop.py", {"callback_url", "move", "on_end", "orders", "paid", "pay", "refund", "sweep"}),
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
    # Further up, the texts of that page are compared with errors as they are raised.
    return "\n".join([*found, (DOCS / "reference/error-codes.md").read_text()])


@in_turn("text", QUOTED)
def test_a_text_that_the_troubleshooting_page_quotes_is_in_the_source(text: str) -> None:
    statuses = {each.value for each in momopay.TransactionStatus} | {each.value for each in momopay.JournalState}
    if text in NAMES | statuses | set(ERRORS_BY_CODE):
        return
    # `...` stands for what differs.
    assert re.search(".{0,60}".join(map(re.escape, re.split(r"(?<!=)\.\.\.", text))), messages()) is not None


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
