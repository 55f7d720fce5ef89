"""A real Redis or Valkey on a free loopback port."""

import os
import shutil
import socket
import subprocess
import sys
import time
from typing import Any, Self

import pytest
import redis

PROGRAM = shutil.which("redis-server") or shutil.which("valkey-server")
_START_TIMEOUT = 10.0


def need_redis() -> None:
    """Skip the test if there is no server, unless the run forbids to skip."""
    if sys.platform == "win32":
        pytest.skip("Windows has no Redis server")
    if PROGRAM is None:
        reason = "needs redis-server or valkey-server"
        pytest.fail(reason) if os.environ.get("CI_REQUIRE_ALL") else pytest.skip(reason)


def connect(url: str, **options: Any) -> Any:
    """Return a blocking client; redis-py's own types are known in part only."""
    library: Any = redis
    return library.Redis.from_url(url, **options)


class RedisServer:
    """The server. It keeps nothing on disk, so after a restart on the same port its data is lost."""

    def __init__(self, *options: str) -> None:
        self._options = options
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> Self:
        assert PROGRAM is not None
        fixed = ("--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--daemonize", "no")
        command = [PROGRAM, "--port", str(self.port), *fixed, *self._options]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        give_up = time.monotonic() + _START_TIMEOUT
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
            except OSError:
                assert self._process.poll() is None, "the server ended at once"
                assert time.monotonic() < give_up, "the server does not listen"
                time.sleep(0.02)
            else:
                return self

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.kill()
