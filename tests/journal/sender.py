"""A process that holds what its arguments name, says so, and keeps it until it is ended: URL KIND REFERENCE."""

from __future__ import annotations

import sys

from journal.kit import begin, callback, lease_of
from momopay import Journal


def say(word: str) -> None:
    sys.stdout.write(word + "\n")
    sys.stdout.flush()


def main(url: str, kind: str, reference: str) -> None:
    with Journal(url) as journal:
        if kind == "callback":
            with journal.handling(callback(reference)) as first:
                say("held" if first else "handled")
                sys.stdin.read()
            return
        if kind == "race":
            sys.stdin.read(1)  # all begin at once
        with lease_of(journal) as lease:
            entry = begin(journal, lease, reference)
            say("held" if entry is None else entry.state)
            sys.stdin.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
