"""Pay again and again, each account in a thread of its own; print how long a payment took, in milliseconds.

A script of its own process: `payer.py URL SECONDS ACCOUNT...`. It begins when it is told to, by a line.
"""

import sys
import threading
import time
from itertools import count
from pathlib import Path
from statistics import median
from uuid import uuid4

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.mocked import Accepts, mocked_client
from momopay import Client, Journal

WARM = 7  # payments after which each statement is prepared


def pay(client: Client, journal: Journal, seconds: float, taken: list[float]) -> None:
    began, own = time.monotonic(), uuid4().hex
    for number in count():
        before = time.monotonic()
        if before - began > seconds:
            return
        client.payouts.pay_once(journal=journal, amount=100, phone="254712345678", reference=f"{own}-{number}")
        taken.append((time.monotonic() - before) * 1e3)


def main() -> None:
    url, seconds, *accounts = sys.argv[1:]
    with mocked_client(Accepts(uuid4().hex)) as client:
        journals = [Journal(url, account=account) for account in accounts]
        for journal in journals:
            pay(client, journal, 0.0, [])
            for number in range(WARM):
                reference = f"warm-{number}-{uuid4().hex}"
                client.payouts.pay_once(journal=journal, amount=100, phone="254712345678", reference=reference)
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        sys.stdin.readline()
        taken = list[float]()
        threads = [threading.Thread(target=pay, args=(client, each, float(seconds), taken)) for each in journals]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for journal in journals:
            journal.close()
    sys.stdout.write(f"{len(taken)} {median(taken)}\n")


if __name__ == "__main__":
    main()
