"""A process that holds what its arguments name, says so, and keeps it until it is killed: URL KIND."""

from __future__ import annotations

import sys

from journal.kit import begin, callback, lease_of
from momopay import Journal


def main(url: str, kind: str) -> None:
    with Journal(url) as journal, lease_of(journal) as lease, journal.handling(callback(kind, kind)):
        if kind == "payout":
            assert begin(journal, lease) is None
        sys.stdout.write("held\n")
        sys.stdout.flush()
        sys.stdin.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
