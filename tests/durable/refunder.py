"""A process that refunds KES 30 of a collection as often as it may: URL BASE_URL KEY PREFIX."""

from __future__ import annotations

import sys

from momopay import Client, Journal, RequestValidationError


def main(url: str, base_url: str, key: str, prefix: str) -> None:
    with Journal(url) as journal, Client(key, base_url=base_url, budget=None) as client:
        sys.stdin.read(1)  # all begin at once
        for number in range(4):
            try:
                client.payouts.refund(journal=journal, of="o", amount=30, reference=f"{prefix}-{number}")
            except RequestValidationError:
                sys.stdout.write("refused\n")
            else:
                sys.stdout.write("paid\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
