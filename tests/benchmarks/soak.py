"""An hour at 60 requests a minute, in virtual time: how much the memory of Python's objects grows after ten minutes.

It is traced by tracemalloc, which sees what Python allocates. Payouts with a journal, prompts, reads, pages, waits and
callbacks take turns.
"""

import gc
import tempfile
import tracemalloc
from itertools import count
from typing import Any, Final

from benchmarks.callback_bodies import BODY
from benchmarks.measure import Row, Scale
from benchmarks.mocked import PHONE, WALLET
from momopay import Journal, PollSchedule, RateBudget, parse_callback
from virtual import envelope, transaction, virtual_client

HOUR: Final = 3600.0
BEGIN: Final = 600.0
GOAL: Final = 1.0
"""MB."""
ROUNDS: Final = 3
_ITEMS: Final = 100
# Of the budget, in a minute. It lets 60 of these calls through, as it keeps slots for polls of other threads.
_REQUESTS: Final = 76


def measure(scale: Scale) -> list[Row]:
    taken = [Hour().megabytes(scale.share) for _ in range(min(scale.rounds, ROUNDS))]
    before, after = [each[0] for each in taken], [each[1] for each in taken]
    return [Row("an hour at 60 requests a minute", "MB", after, "ten minutes", before, GOAL, is_difference=True)]


class Hour:
    def __init__(self) -> None:
        self.numbers = count()
        self.client, self.port = virtual_client(self.answer, budget=RateBudget(requests=_REQUESTS, window=60.0))
        self.requests = 0

    def answer(self, method: str, path: str) -> tuple[int, Any]:
        self.requests += 1
        if path.startswith("/transactions?"):
            overview = {"total": _ITEMS, "completed": _ITEMS, "failed": 0, "pending": 0}
            items = [transaction(f"t-{number}", "SUCCESS") for number in range(_ITEMS)]
            return 200, envelope({"items": items, "overview": overview, "nextCursor": None})
        if path.endswith("/balance"):
            return 200, WALLET
        if method == "GET":
            return 200, envelope(transaction(path.rpartition("/")[2], "SUCCESS"))
        number = next(self.numbers)
        return 201, envelope(transaction(f"t-{number}", accountReference=f"r-{number}", type="B2C", tenantId="tenant"))

    def megabytes(self, share: float) -> tuple[float, float]:
        """Return what is allocated after a share of ten minutes, and of the hour."""
        found: list[float] = []
        gc.collect()
        tracemalloc.start()
        with tempfile.TemporaryDirectory() as folder, Journal(f"sqlite:///{folder}/payouts.db") as journal:
            begun = self.port.now()
            for until in (BEGIN * share, HOUR * share):
                while self.port.now() - begun < until:
                    self.use(journal)
                gc.collect()
                found.append(tracemalloc.get_traced_memory()[0] / 1e6)
        tracemalloc.stop()
        self.client.close()
        assert share < 1 or self.requests >= 60 * 59
        return found[0], found[1]

    def use(self, journal: Journal) -> None:
        client, number = self.client, next(self.numbers) + 1
        paid = client.payouts.pay_once(journal=journal, reference=f"r-{number}", amount=100, phone=PHONE)
        prompt = client.stk.initiate(amount=100, phone=PHONE)
        client.transactions.get(paid.transaction_id)
        assert len(client.transactions.list(limit=100).items) == _ITEMS
        client.transactions.notify(parse_callback(BODY))
        assert client.transactions.wait(prompt, schedule=PollSchedule(first=1.0)).status == "SUCCESS"
        # What the port of the tests remembers is not the SDK's.
        del self.port.requests[:], self.port.slept[:]
