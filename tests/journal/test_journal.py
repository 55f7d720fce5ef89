"""`Journal`, as its users see it. What its methods do is tested with the modules that do it."""

import subprocess
import sys
from pathlib import Path

import pytest

from journal.constants import COLLECTION, PAYOUT
from journal.kit import put, put_collection
from momopay import ConfigurationError, Journal

OF_ANOTHER_DRIVER = ["mysql", "sqlite+aiosqlite", "postgres", "postgresql+asyncpg", "postgresql+pg8000"]
NO_URLS = ["payouts.db", "", "sqlite:///a\0b", "sqlite:///\ud800", "postgresql://h:x"]


@pytest.mark.parametrize("url", [*NO_URLS, *(f"{each}:///d" for each in OF_ANOTHER_DRIVER)])
def test_what_is_no_url_of_a_journal_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationError):
        Journal(url)


@pytest.mark.parametrize("account", ["", " ", None, 1])
def test_an_account_needs_a_name(url: str, account: str) -> None:
    with pytest.raises(ConfigurationError, match="account"):
        Journal(url, account=account)


WITHOUT = """
import sys, typing
sys.modules.update(dict.fromkeys(sys.argv[2:]))
from momopay import Client, Journal
pay_once = Client("pk_test_x", base_url="http://127.0.0.1:1/v1").payouts.pay_once
assert "Journal" in str(typing.get_type_hints(pay_once)["journal"])
try:
    Journal(sys.argv[1])
except ModuleNotFoundError as error:
    print(error, error.__cause__ is not None)
"""


@pytest.mark.whole
@pytest.mark.parametrize(
    ("url", "missing", "extra"),
    [
        ("sqlite:///d", "sqlalchemy", "journal"),
        ("postgresql://u@127.0.0.1/d", "psycopg", "postgresql"),
        ("postgresql+psycopg:///d", "sqlalchemy", "postgresql"),
    ],
)
def test_without_the_extra_it_says_what_to_install(url: str, missing: str, extra: str, tmp_path: Path) -> None:
    command = [sys.executable, "-c", WITHOUT, url, missing]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=True)
    assert f"pip install 'momopay[{extra}]'" in done.stdout
    assert ("psycopg2" in done.stdout, done.stdout.endswith("True\n")) == (extra == "postgresql", True)


def test_no_password_is_shown() -> None:
    with Journal("postgresql+psycopg://me:secret@127.0.0.1:1/d") as journal:
        assert repr(journal) == "Journal('postgresql+psycopg://me:***@127.0.0.1:1/d')"
    with Journal("postgresql+psycopg:///d?password=secret&user=me") as journal:
        assert repr(journal) == "Journal('postgresql+psycopg:///d?user=me')"
    with pytest.raises(ConfigurationError) as caught:
        Journal("postgresql+psycopg://me:pass@word:secret@h/d")
    assert "secret" not in f"{caught.value} {caught.value.__cause__!r} {caught.value.__context__!r}"


def test_a_reference_is_found_by_itself_unless_there_are_two(journal: Journal) -> None:
    order = put_collection(journal, "r")
    assert journal.get("r") == journal.get("r", COLLECTION) == order
    assert journal.get("r", PAYOUT) is journal.get("s") is None
    made = put(journal, "r")
    with pytest.raises(ValueError, match=r"PAYOUT and a COLLECTION.*kind="):
        journal.get("r")
    assert journal.get("r", PAYOUT) == made
    assert journal.get("r", COLLECTION) == order
