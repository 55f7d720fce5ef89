"""A process that pays KES 100 under each reference, then dies as by `kill -9`: URL BASE_URL KEY REFERENCE..."""

from __future__ import annotations

import os
import signal
import sys

from momopay import Client, Journal
from safety.kit import PHONE


def main(url: str, base_url: str, key: str, *references: str) -> None:
    client, journal = Client(key, base_url=base_url, budget=None), Journal(url)
    for reference in references:
        client.payouts.pay_once(journal=journal, reference=reference, amount=100, phone=PHONE)
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main(*sys.argv[1:])
