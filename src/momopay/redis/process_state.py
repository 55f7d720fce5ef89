"""What each process holds of a shared budget: connections and logs of its own, the child of a fork as well."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

from momopay.redis.connection import RedisConnections
from momopay.redis.remote_log import RemoteLog


class ProcessState:
    """The connections and logs of whichever process asks.

    Args:
        given: A URL, or a client of redis-py.
        timeout: Seconds to connect, and for an answer.
        new_log: Makes what a process knows of an account's log, at first nothing.
    """

    def __init__(self, given: Any, timeout: float, new_log: Callable[[], RemoteLog]) -> None:
        self._given = given
        self._timeout = timeout
        self._new_log = new_log
        self._own = _Own(RedisConnections(given, timeout))

    @property
    def links(self) -> RedisConnections:
        """This process's connections."""
        return self._here().links

    def log(self, key: str) -> RemoteLog:
        """Give what this process knows of an account's log."""
        here = self._here()
        with here.lock:
            found = here.logs.get(key)
            if found is None:
                found = here.logs[key] = self._new_log()
            return found

    def _here(self) -> _Own:
        if self._own.process != os.getpid():
            self._own = _Own(RedisConnections(self._given, self._timeout), parents=self._own)
        return self._own


class _Own:
    """One process's. Its parent's is kept, so that nothing closes connections that are the parent's."""

    def __init__(self, links: RedisConnections, parents: _Own | None = None) -> None:
        self.process = os.getpid()
        self.links = links
        self.logs: dict[str, RemoteLog] = {}
        self.lock = threading.Lock()
        self.parents = parents
