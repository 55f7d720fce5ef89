"""A process that holds what its arguments name, says so, and keeps it until it is ended: URL KIND REFERENCE."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Generator
from contextlib import contextmanager

from journal.kit import ACCEPTED, before_each, begin, callback, lease_of, put, record
from momopay import Journal


def say(word: str) -> None:
    sys.stdout.write(word + "\n")
    sys.stdout.flush()


@contextmanager
def kill_before(number: int) -> Generator[None]:
    """Kill this process just before its n-th statement."""
    left = [number]

    def count(_statement: str) -> None:
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    with before_each(count):
        yield


def main(url: str, kind: str, reference: str) -> None:
    with Journal(url) as journal:
        if kind == "callback":
            with journal.handling(callback(reference)) as first:
                say("held" if first else "handled")
                sys.stdin.read()
            return
        if kind == "killed before":
            with kill_before(int(reference)):
                put(journal)
            say("done")
            return
        if kind == "race":
            sys.stdin.read(1)  # all begin at once
        with lease_of(journal) as lease:
            entry = begin(journal, lease, reference)
            say("held" if entry is None else entry.state)
            sys.stdin.read()
            if kind == "accepted" and entry is None:
                record(journal, lease, ACCEPTED, reference)


if __name__ == "__main__":
    main(*sys.argv[1:])
