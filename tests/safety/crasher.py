"""Makes calls in children that die just before their k-th statement, for every k: KIND SCENARIO BASE_URL PREFIX FOLDER.

Each k has an account and a journal of its own. Prints how many statements the call has.
"""

from __future__ import annotations

import os
import shutil
import sys
from contextlib import suppress
from pathlib import Path

import httpx

from drivers import Driver
from momopay import EntryKind, Journal, MomoPayError
from safety.kit import BY_HAND, collect, pay
from safety.statements import Statements

MOST = 60


def key_of(prefix: str, number: int) -> str:
    return f"{prefix}{number:03}"


def url_of(folder: Path, number: int) -> str:
    return f"sqlite:///{folder / f'{number:03}.db'}"


def copy_tables(path: Path) -> None:
    """Let a journal begin as a copy of an empty one: what happens while the tables are made is another matter."""
    empty = path.with_name("empty.db")
    if not empty.exists():
        with Journal(f"sqlite:///{empty}") as journal:
            journal.get("-", kind=EntryKind.PAYOUT)
    shutil.copyfile(empty, path)


def _prepare(scenario: str, sdk: Driver, journal: Journal, base_url: str) -> None:
    control = base_url.removesuffix("/v1") + "/sandbox"
    if scenario in {"another's id", "nobody's id"}:
        httpx.post(f"{control}/clear_planned").raise_for_status()  # one that died before it sent has left its fault
        if scenario == "another's id":
            sdk(collect(journal, "O-0"))
        else:
            sdk(lambda client: client.stk.initiate(amount=100, phone=BY_HAND, account_reference="O-0"))
        fault = {"method": "POST", "path": "/payments/stk", "fault": "other_transaction"}
        httpx.post(f"{control}/fail_next", json=fault).raise_for_status()
    if scenario == "nobody's id":
        sdk(collect(journal))  # it is believed until it is read
    if scenario == "another":
        first = sdk(collect(journal))
        httpx.post(f"{control}/cancel", json={"id": first.transaction_id}).raise_for_status()


def _call(kind: str, scenario: str, base_url: str, key: str, url: str, number: int) -> None:
    """Make the call, and die before the statement of that number; it is counted from 1."""
    journal = Journal(url)
    sdk = Driver(kind, api_key=key, base_url=base_url, deadline=3.0)
    _prepare(scenario, sdk, journal, base_url)
    strike = Statements(number, lambda: os._exit(9))
    with strike.watched(), suppress(MomoPayError):
        sdk(pay(journal) if scenario == "pay" else collect(journal))
    sdk.close()
    journal.close()


def main(kind: str, scenario: str, base_url: str, prefix: str, folder: str) -> None:
    def call(number: int) -> None:
        copy_tables(Path(folder) / f"{number:03}.db")
        _call(kind, scenario, base_url, key_of(prefix, number), url_of(Path(folder), number), number)

    call(0)  # imports, once, all that each child would import
    for number in range(1, MOST + 1):
        child = os.fork()
        if child == 0:
            try:
                call(number)
                os._exit(0)
            except BaseException as error:  # noqa: BLE001  the parent must never return twice
                sys.stderr.write(f"{error!r}\n")
                os._exit(1)
        _, status = os.waitpid(child, 0)
        code = os.waitstatus_to_exitcode(status)
        if code == 0:
            sys.stdout.write(f"{number - 1}\n")
            return
        assert code == 9, f"the child of statement {number} ended with {code}"
    raise AssertionError(f"a call of more than {MOST} statements")


if __name__ == "__main__":
    main(*sys.argv[1:])
