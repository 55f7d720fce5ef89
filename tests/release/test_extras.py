"""The wheel with each extra alone: it imports, does its main thing, and names the extra that something else needs."""

import os
import sys
import zipfile
from collections.abc import Iterator
from email.parser import Parser
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from patience import run_program
from release.conftest import PROJECT

pytestmark = pytest.mark.whole


def install(wheel: Path, folder: Path, *extras: str) -> set[str]:
    """Put the wheel into a folder, with the requirements of it and of these extras; return the requirements' names."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
        (path,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        stated = Parser().parsestr(archive.read(path).decode()).get_all("Requires-Dist") or []
    seen = set[tuple[str, str]]()
    for found in _required(stated, extras, seen):
        for file in found.files or []:
            target = folder / file
            if ".." not in file.parts and not target.exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                target.symlink_to(Path(str(found.locate_file(file))))
    return {name for name, _ in seen}


def _required(stated: list[str], extras: tuple[str, ...], seen: set[tuple[str, str]]) -> Iterator[Distribution]:
    for requirement in map(Requirement, stated):
        for extra in extras or ("",):
            wanted = requirement.marker is None or requirement.marker.evaluate({"extra": extra})
            key = (canonicalize_name(requirement.name), ",".join(sorted(requirement.extras)))
            if wanted and key not in seen:
                seen.add(key)
                found = distribution(requirement.name)
                yield found
                yield from _required(found.requires or [], tuple(requirement.extras), seen)


def run(folder: Path, program: str, code: int = 0) -> str:
    """Run a program with what is in the folder and nothing else until it ends so; return what it says went wrong."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("COV", "MOMOPAY_"))}
    command = [sys.executable, "-S", "-W", "error", "-c", program]
    return run_program(command, code=code, env=environment | {"PYTHONPATH": str(folder)}, cwd=folder).stderr


EXTRAS = sorted(PROJECT["optional-dependencies"].keys() - {"dev", "docs"})
NAMES = """
import momopay
for name in momopay.__all__:
    getattr(momopay, name)
with momopay.Client("pk_test_bare", base_url="http://127.0.0.1:1/v1", max_attempts=1) as client:
    try:
        client.wallet.balance()
    except momopay.APIConnectionError as error:
        assert not error.may_have_executed
    else:
        raise AssertionError
"""
WORKS = {
    "": "momopay.FileRateBudget()",  # no extra at all
    "aiohttp": """
import asyncio
from httpx_aiohttp import AiohttpTransport
async def main():
    options = {"base_url": "http://127.0.0.1:1/v1", "transport": AiohttpTransport(), "max_attempts": 1}
    async with momopay.AsyncClient("pk_test_x", **options) as client:
        try:
            await client.wallet.balance()
        except momopay.APIConnectionError:
            return
    raise AssertionError
asyncio.run(main())
""",
    "cli": """
import sys
from momopay.cli import main
sys.argv = ["momopay", "payouts", "--help"]
try:
    main()
except SystemExit as ended:
    assert ended.code == 0
""",
    "django": """
import django
from django.conf import settings
settings.configure(
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "shop.sqlite3"}},
    INSTALLED_APPS=["django.contrib.contenttypes", "django.contrib.auth", "momopay.integrations.django"],
    MOMOPAY={"API_KEY": "pk_test_x", "BASE_URL": "http://127.0.0.1:1/v1"},
    SECRET_KEY="a secret of this test, and of no other",
)
django.setup()
from django.core.management import call_command
from momopay.integrations.django import client
call_command("migrate", verbosity=0)
assert client.journal.unresolved() == []
""",
    "excel": """
from openpyxl import Workbook
book = Workbook()
for row in [("reference", "phone", "amount"), ("A", 254712345678, 10)]:
    book.active.append(row)
book.save("salaries.xlsx")
(item,) = momopay.PayoutItem.read("salaries.xlsx")
assert (item.phone, item.amount) == ("254712345678", 10)
""",
    "journal": """
with momopay.Journal("sqlite:///payouts.db") as journal:
    assert journal.unresolved() == []
""",
    "mcp": """
from momopay.cli.mcp import server_of
with momopay.Journal("sqlite:///payouts.db") as journal:
    assert server_of(journal, None).name == "momopay"
""",
    "postgresql": """
with momopay.Journal("postgresql://me@127.0.0.1:1/d") as journal:
    try:
        journal.unresolved()
    except momopay.ConfigurationError:
        pass
    else:
        raise AssertionError
""",
    "redis": """
budget = momopay.RedisRateBudget("redis://127.0.0.1:1/0")
budget.close()
""",
    "otel": """
from momopay.integrations.opentelemetry import observer
assert callable(observer())
""",
    "sandbox": """
from momopay.sandbox import Sandbox
from momopay.integrations.fastapi import callback_endpoint
with Sandbox() as sandbox, momopay.Client("pk_test_x", base_url=sandbox.base_url) as client:
    client.stk.initiate(amount=1, phone="0712345678")
    sandbox.advance(60)
    assert len(sandbox.ledger) == 2
""",
}
NEEDS = {
    "cli": "from momopay.cli import main; import sys; sys.exit(main())",
    "excel": "import momopay; open('a.xlsx', 'wb').write(b'PK\\3\\4'); momopay.PayoutItem.read('a.xlsx')",
    "journal": "import momopay; momopay.Journal('sqlite:///payouts.db')",
    "otel": "import momopay.integrations.opentelemetry",
    "postgresql": "import momopay; momopay.Journal('postgresql://me@127.0.0.1:1/d')",
    "redis": "import momopay; momopay.RedisRateBudget('redis://127.0.0.1:1/0')",
    "sandbox": "import momopay.sandbox",
}
"""What needs an extra, and says so without it."""


@pytest.fixture(scope="module")
def wheel(packed: Path) -> Path:
    (wheel,) = packed.glob("*.whl")
    return wheel


@pytest.mark.parametrize("extra", ["", *EXTRAS])
def test_an_extra_alone_does_its_main_thing(extra: str, wheel: Path, tmp_path: Path) -> None:
    names = install(wheel, tmp_path, *filter(None, [extra]))
    # A library chooses no driver for a project that has psycopg2: Django uses psycopg 3 wherever it is installed.
    assert ("psycopg" in names) == (extra == "postgresql")
    run(tmp_path, NAMES + WORKS[extra])
    for other in NEEDS.keys() - {extra}:
        needed = {Requirement(each).name for each in PROJECT["optional-dependencies"][other]}
        if needed <= names:
            continue  # another library brings it, as FastAPI brings OpenTelemetry's API
        if extra and not needed & names:
            continue  # as without any extra
        said = run(tmp_path, NEEDS[other], code=3 if other == "cli" else 1)
        assert f'pip install "momopay[{other}]"' in said
