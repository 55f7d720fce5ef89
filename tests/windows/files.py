"""A journal's file on Windows: two processes that pay the same, a backup, anonymised phones, and paths of its own."""

import re
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from momopay import Client, ConfigurationError, Journal, RequestValidationError
from momopay.sandbox import Sandbox

KEY = "pk_test_windows"
PAYOUTS = 12  # of 60 requests a minute


def pay(base_url: str, path: str) -> None:
    with Client(KEY, base_url=base_url, journal=f"sqlite:///{path}", budget=None) as client:
        for number in range(PAYOUTS):
            client.payouts.pay_once(reference=f"SAL-{number}", amount=10, phone=f"07123450{number:02}")


def main(folder: Path) -> None:
    path = folder / "payments.db"
    with Sandbox() as sandbox, Client(KEY, base_url=sandbox.base_url, journal=f"sqlite:///{path}") as client:
        sandbox.account(KEY)
        command = [sys.executable, __file__, sandbox.base_url, str(path)]
        workers = [subprocess.Popen(command, stdin=subprocess.DEVNULL) for _ in range(2)]
        assert [each.wait() for each in workers] == [0, 0]
        assert sum(each.kind == "payout" for each in sandbox.ledger) == PAYOUTS
        print(f"two processes made {PAYOUTS} payouts once")
        sandbox.advance(1200)
        assert client.transactions.sweep().settled == PAYOUTS
        assert client.journal is not None
        client.journal.backup(folder / "copy.db")
        with Journal(f"sqlite:///{folder / 'copy.db'}", create=False) as copy:
            assert len(list(copy.entries())) == PAYOUTS
        print("a backup has them all")
        assert client.journal.anonymise(before=datetime(2100, 1, 1, tzinfo=UTC)) == PAYOUTS
        files = [each for each in folder.rglob("payments.db*") if each.is_file()]
        assert not [each for each in files if re.search(rb"25471234", each.read_bytes())]
        print("no phone is left in the file or its log")
        refused(client.journal)
    if sys.platform == "win32":
        with Journal(f"sqlite:///\\\\?\\{folder}\\long.db") as journal:
            assert journal.get("none") is None
        print("the long form of a path is a path")


def refused(journal: Journal) -> None:
    for path in ("a\0b", "NUL", "CON") if sys.platform == "win32" else ("a\0b",):
        try:
            Journal(f"sqlite:///{path}")
        except ConfigurationError:
            pass
        else:
            raise AssertionError(f"{path!r} is taken for a journal's file")
    try:
        journal.backup("a\0b")
    except RequestValidationError:
        print("names that no file can have are refused")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        pay(*sys.argv[1:])
    else:
        main(Path(tempfile.mkdtemp()))
