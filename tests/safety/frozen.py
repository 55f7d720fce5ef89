"""A payer that freezes between its row and its request, until it gets SIGCONT: KIND URL BASE_URL KEY DEADLINE.

Prints the error's class, and whether it says that money may have moved.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
from typing import Any

from drivers import Driver
from momopay import EntryKind, Journal, JournalState, MomoPayError
from safety.kit import pay

_resolve = socket.getaddrinfo


def main(kind: str, url: str, base_url: str, key: str, deadline: str) -> None:
    def freeze(host: Any, *arguments: Any, **options: Any) -> Any:
        if host not in {"localhost", b"localhost"}:
            return _resolve(host, *arguments, **options)
        with Journal(url) as other:
            entry = other.get("PAY-1", kind=EntryKind.PAYOUT)
        if entry is not None and entry.state is JournalState.SENDING:
            os.kill(os.getpid(), signal.SIGSTOP)
        return _resolve("127.0.0.1", *arguments, **options)

    # Imports all that the payment needs, and lets the journal know the key, so that its first request is the payment.
    others = Driver(kind, api_key=key, base_url=base_url)
    with Journal(url) as journal:
        others(pay(journal, "FIRST"))
    others.close()
    socket.getaddrinfo = freeze
    sdk = Driver(kind, api_key=key, base_url=base_url.replace("127.0.0.1", "localhost"), deadline=float(deadline))
    with Journal(url) as journal:
        try:
            sdk(pay(journal))
        except MomoPayError as error:
            sys.stdout.write(f"{type(error).__name__} {error.may_have_executed}\n")
    sdk.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
