"""What pages state is what the code has: citations, calls, probe rows, the shop's code, error codes, quoted texts."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import citations
import httpx
import pytest

import momopay
from docs.blocks import ROOT, blocks_in
from in_turn import in_turn
from momopay import CallbackSigner, Client, Journal, MomoPayError, PollSchedule, RateBudget, parse_callback
from momopay.durable.remedies import Remedy
from momopay.errors import ERRORS_BY_CODE
from momopay.probe import ROWS, Cost
from momopay.sandbox import Fault, Outcome, Sandbox, phone_for
from momopay.sandbox._refusals import STATUS_BY_CODE

PHONE = "0712 345 678"


def client_of(**options: Any) -> Client:
    given: dict[str, Any] = {"base_url": "https://api.example/v1", "budget": None, **options}
    return Client("pk_test_raised", max_attempts=1, **given)


def answering(answer: httpx.Response) -> Client:
    return client_of(transport=httpx.MockTransport(lambda _: answer))


class Raised:
    """What raises each error, against a sandbox."""

    def __init__(self, sandbox: Sandbox, folder: Path) -> None:
        self.sandbox, self.folder = sandbox, folder
        self.journal = Journal(f"sqlite:///{folder / 'errors.db'}")
        self.client = client_of(base_url=sandbox.base_url)

    def read(self, status: int, text: str) -> None:
        with answering(httpx.Response(status, text=text)) as client:
            client.wallet.balance()

    def connect(self) -> None:
        with client_of(base_url="http://127.0.0.1:1/v1") as client:
            client.wallet.balance()

    def handle_twice(self) -> None:
        callback = parse_callback(ended("5f1c2a9e"))
        with self.journal.handling(callback), self.journal.handling(callback):
            pass

    def spend_the_budget(self) -> None:
        budget = RateBudget(requests=1, window=61.0)
        with client_of(base_url=self.sandbox.base_url, budget=budget, deadline=5) as client:
            for _ in range(2):
                client.wallet.balance()

    def pay_out(self) -> None:
        self.sandbox.fail_next("POST", "/b2c/payouts", Fault.reset_after_commit)
        self.client.payouts.initiate(amount=2500, phone=PHONE, reference="SAL-7")

    def wait(self) -> None:
        prompt = self.client.stk.initiate(amount=5, phone=phone_for(Outcome.by_hand))
        self.client.transactions.wait(prompt, schedule=PollSchedule(first=0.01, every=0.01, limit=0.05))

    def confirm(self) -> None:
        prompt = self.client.stk.initiate(amount=5, phone=PHONE)
        self.client.transactions.confirm(parse_callback(ended(prompt.transaction_id, amount=500)))

    def record_twice(self, method: Callable[..., object], reference: str) -> None:
        for amount in (100, 200):
            method(journal=self.journal, reference=reference, amount=amount, phone=PHONE)

    def remove_the_journal(self) -> None:
        path = self.folder / "removed.db"
        with Journal(f"sqlite:///{path}") as journal:
            journal.get("SAL-9")
            path.unlink()
            journal.get("SAL-9")


def ended(identity: str, **fields: object) -> dict[str, Any]:
    return {"event_type": "transaction.success", "transaction": {"id": identity, "status": "SUCCESS", **fields}}


RAISED: dict[str, Callable[[Raised], object]] = {
    "ConfigurationError": lambda given: Client(base_url=given.sandbox.base_url),
    "RequestValidationError": lambda given: given.client.stk.initiate(amount=0, phone="0712"),
    "CallbackError": Raised.handle_twice,
    "InvalidCallbackError": lambda _: parse_callback(b"<html>"),
    "ForgedCallbackError": lambda _: CallbackSigner("a secret of more than 16 bytes").verify(
        "https://shop.example/momo"
    ),
    "CallbackMismatchError": Raised.confirm,
    "APIConnectionError": Raised.connect,
    "BudgetExhaustedError": Raised.spend_the_budget,
    "OutcomeUnknownError": Raised.pay_out,
    "ProtocolError": lambda given: given.read(200, "<html>A proxy's page</html>"),
    "WaitTimeoutError": Raised.wait,
    "DuplicatePayoutError": lambda given: given.record_twice(given.client.payouts.pay_once, "SAL-8"),
    "DuplicateCollectionError": lambda given: given.record_twice(given.client.stk.collect_once, "INV-8"),
    "JournalError": Raised.remove_the_journal,
    "ServerError": lambda given: given.read(502, "<html>Bad gateway</html>"),
}


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
        ("shop.py", {"callback_url", "move", "on_end", "paid", "pay", "press", "refund", "shop", "sweep"}),
    ],
)
def test_the_page_of_the_shop_shows_the_programs_apart_from_docstrings(program: str, shown: set[str]) -> None:
    of_django = program.startswith("django")
    blocks = [each for each in blocks_in(DOCS / "start/shop.md") if each.language == "python"]
    blocks = [each for each in blocks if (each.module is not None) == of_django]
    page = {name: dumped for block in blocks for name, dumped in functions(block.text).items()}
    whole = functions((ROOT / "examples" / program).read_text())
    assert page.keys() == shown | (set() if of_django else {"pressed"})  # a view of Flask, which no program has
    assert [name for name in shown if page[name] != whole[name]] == []


def test_the_table_of_errors_has_each_class_in_one_row() -> None:
    table = (DOCS / "operate/errors.md").read_text().partition("| you caught |")[2].partition("\n\n")[0]
    caught = [re.findall(r"`(\w+Error)`", row.split(" | ")[0]) for row in table.splitlines()[2:]]
    named = [name for names in caught for name in names]
    assert sorted(named) == sorted(set(named))
    groups = {"ThrottledError": "its three classes", "CallbackError": "its three classes"}
    of_channels = {"ChannelInUseError", "ChannelNotFoundError", "NoDefaultChannelError", "NoPaymentChannelsError"}
    missing = {name for name in momopay.__all__ if name.endswith("Error")} - set(named) - of_channels - {"MomoPayError"}
    for name in missing - {"APIError", "TransactionNotFoundError"}:  # "any other `APIError`"
        assert any(base.__name__ in groups for base in getattr(momopay, name).__mro__), name


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
    with answering(answer) as client, pytest.raises(kind) as raised:
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
    with raised.client, raised.journal:
        yield raised


@pytest.mark.parametrize("name", RAISED)
def test_an_example_text_is_what_the_error_says(raised: Raised, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MOMOPAY_API_KEY", raising=False)
    with pytest.raises(MomoPayError) as caught:
        RAISED[name](raised)
    assert type(caught.value).__name__ == name
    text = shown(SECTIONS.get(name, SECTIONS["Server errors"]), "text")
    assert VARYING.sub("", str(caught.value)) == VARYING.sub("", text)


def test_the_codes_and_statuses_are_those_of_the_service_page() -> None:
    table = re.findall(r"^\| `([A-Z_]+)` \| (.+?) \|", SERVICE.partition("\n## Errors\n")[2], re.MULTILINE)
    assert [code for code, _ in table] == list(ERRORS_BY_CODE)
    for code, http in table:
        stated = re.findall(r"\b[45]\d\d\b", http)
        assert re.findall(r"\b[45]\d\d\b", SECTIONS[code].partition("\n")[0]) == stated
        assert not stated or str(STATUS_BY_CODE[code]) in stated
