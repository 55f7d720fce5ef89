"""What a journal's history must show: it says of each payment what its rows say, wherever a writer was killed."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from journal.constants import ACCEPTED, COLLECTION, PHONE, REFUSED, UNKNOWN
from journal.database_kit import before_each, execute, store_of
from journal.kit import found, put
from journal.records import callback, report
from momopay import Journal
from momopay.models.enums import TransactionStatus, end_of

STATES = "'begun', 'accepted', 'refused', 'not sent', 'unknown', 'released', 'contradicted'"


def disagreements(journal: Journal) -> list[str]:
    """Return where the history says something else than the payments and their transactions."""
    wrong = list[str]()
    for kind, reference, state in execute(journal, "SELECT kind, reference, state FROM momopay_payments"):
        told = execute(journal, _last(f"what IN ({STATES}) AND kind = '{kind}' AND reference = '{reference}'"))
        # A forged callback may have been handled under its reference before.
        of_it = f"kind = '{kind}' AND reference = '{reference}' AND what NOT IN ('delivered', 'delivery failed')"
        first = execute(journal, f"SELECT what FROM momopay_history WHERE {of_it} ORDER BY number LIMIT 1")
        if told != [(state,)] or first != [("begun",)]:
            wrong.append(f"{kind} {reference} is {state}, and its history says {told}")
    rows = execute(journal, "SELECT transaction_id, status, receipt FROM momopay_transactions")
    for identity, status, receipt in rows:
        for what, value in (("status", status), ("receipt", receipt)):
            told = execute(journal, _last(f"what = '{what}' AND transaction_id = '{identity}'"))
            if told != ([(value,)] if value else []):
                wrong.append(f"the {what} of {identity} is {value}, and its history says {told}")
    delivered = execute(journal, "SELECT transaction_id, \"after\" FROM momopay_history WHERE what = 'delivered'")
    times = Counter((identity, end_of(TransactionStatus(status))) for identity, status in delivered)
    return wrong + [f"{end} was delivered {count} times" for end, count in times.items() if count > 1]


def _last(where: str) -> str:
    return f'SELECT "after" FROM momopay_history WHERE {where} ORDER BY number DESC LIMIT 1'


def _pay(journal: Journal, tag: str) -> None:
    paid = f"paid{tag}"
    put(journal, paid, transaction_id=f"t-1{tag}", status="PENDING")
    journal.record(callback(paid, f"t-1{tag}", momo_receipt="QK12"))
    for _ in range(2):
        with journal.handling(callback(paid, f"t-1{tag}")):
            pass
    put(journal, f"refused{tag}", REFUSED, code="c")


def _release(journal: Journal, tag: str) -> None:
    store, lost = store_of(journal), f"lost{tag}"
    for each in (lost, f"freed{tag}"):
        put(journal, each, UNKNOWN)
        store.release(found(journal, each), "Njeri")
    put(journal, lost, transaction_id=f"t-2{tag}")
    store.mark_contradicted(found(journal, lost), f"t-2{tag}")
    put(journal, f"sighted{tag}", REFUSED)
    store.mark_seen(found(journal, f"sighted{tag}"))


def _collect(journal: Journal, tag: str) -> None:
    store, order = store_of(journal), f"order{tag}"
    for number, status in enumerate(("CANCELLED", "SUCCESS")):
        put(journal, order, ACCEPTED, COLLECTION, transaction_id=f"p-{number}{tag}", status=status)
    store.record(found(journal, order), report(f"p-0{tag}", "SUCCESS"))
    with suppress(KeyError), journal.handling(callback(order, f"p-0{tag}", type="STK")):
        raise KeyError(PHONE)


_STEPS = (_pay, _release, _collect)


def live(journal: Journal, tag: str = "") -> None:
    """Have all happen to payments that can. The tag sets them apart from those of another call."""
    for step in _STEPS:
        step(journal, tag)


KILLED = 9
WRITES = ("INSERT", "UPDATE", "DELETE")  # between two of them, the database stays as it is


def killed(
    open_journal: Callable[[], Journal], in_a_fork: Callable[[Callable[[], object]], int | None], stride: int
) -> int:
    """Kill a writer before each of its writes, or of so many one, a process for each; return how often."""
    kills = 0
    for step in _STEPS:
        number = 1
        while (code := in_a_fork(partial(_write, open_journal, step, number))) == KILLED:
            number += stride
            kills += 1
        assert code == 0
    return kills


def _write(open_journal: Callable[[], Journal], step: Callable[[Journal, str], None], number: int) -> None:
    """Take a step, and die before write `number`."""
    left = number

    def strike(text: str) -> None:
        nonlocal left
        left -= text.startswith(WRITES)
        if left == 0:
            os._exit(KILLED)

    with open_journal() as journal, before_each(strike, journal):
        step(journal, f"-{number}")
