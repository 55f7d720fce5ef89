"""A real PostgreSQL on a loopback port of its own, for as long as a test run lasts."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from memory import in_memory


def _programs() -> Path | None:
    found = shutil.which("initdb")
    folders = [Path(found).resolve().parent] if found else sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    return next((folder for folder in folders if (folder / "postgres").exists()), None)


_PARTICULAR = """\
host all with_password 127.0.0.1/32 scram-sha-256
hostssl all with_tls 127.0.0.1/32 trust
host all with_tls 127.0.0.1/32 reject
host all nobody_here 127.0.0.1/32 reject"""
"""Roles that are let in on a condition, or not at all."""


class PostgresqlServer:
    """One server; each test takes a new database of it."""

    def __init__(self, port: int, launch: Callable[[], subprocess.Popen[Any]], log: Path) -> None:
        """`launch` starts the program; this starts it, and again after `kill`."""
        self._port = port
        self._launch = launch
        self._log = log
        self._process = launch()
        self._await_answers()

    def kill(self) -> None:
        """Kill it with SIGKILL, as a machine that loses its memory does; its backends end by themselves."""
        self._process.kill()
        self._process.wait()

    def restart(self) -> None:
        self._process = self._launch()
        self._await_answers()

    def backends(self) -> list[int]:
        """Return the process ids of the backends that serve clients."""
        with psycopg.connect(self._conninfo, autocommit=True) as connection:
            found = connection.execute(
                "SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
            )
            return [pid for (pid,) in found]

    def end(self) -> None:
        """End it at once: the cluster is thrown away."""
        self._process.send_signal(signal.SIGQUIT)
        self._process.wait(30)

    def _await_answers(self) -> None:
        give_up = time.monotonic() + 30
        while not self.answers():
            if self._process.poll() is not None:  # backends of a killed server still hold its memory
                assert time.monotonic() < give_up, self._log.read_text()
                time.sleep(0.1)
                self._process = self._launch()

    def new_database(self) -> str:
        name = f"t{uuid4().hex}"
        with psycopg.connect(self._conninfo, autocommit=True) as connection:
            connection.execute(f'CREATE DATABASE "{name}"'.encode())
        return f"postgresql+psycopg://postgres@127.0.0.1:{self._port}/{name}"

    def new_schema(self) -> str:
        """Create a schema and give the URL for it: as good as a database of its own, and made in no time."""
        name = f"s{uuid4().hex}"
        with psycopg.connect(self._conninfo, autocommit=True) as connection:
            connection.execute(f'CREATE SCHEMA "{name}"'.encode())
        return f"postgresql+psycopg://postgres@127.0.0.1:{self._port}/postgres?options=-csearch_path%3D{name}"

    def disconnect_all(self) -> None:
        """Cut every connection, as a failing network does."""
        with psycopg.connect(self._conninfo, autocommit=True) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
            )

    def answers(self) -> bool:
        try:
            psycopg.connect(self._conninfo, connect_timeout=5).close()
        except psycopg.OperationalError:
            return False
        return True

    @property
    def _conninfo(self) -> str:
        return f"host=127.0.0.1 port={self._port} user=postgres dbname=postgres"


def required_programs() -> Path:
    """Return where PostgreSQL's programs are. Passes the test over, or fails it in CI, where there are none."""
    if sys.platform == "win32":
        pytest.skip("needs PostgreSQL, which is not installed on this Windows")
    programs = _programs()
    if programs is None:
        message = "PostgreSQL is not installed (Debian: apt-get install postgresql)"
        if os.environ.get("CI_REQUIRE_ALL"):
            pytest.fail(message)
        pytest.skip(message)
    return programs


@contextmanager
def running_postgresql(connections: int = 200) -> Generator[PostgresqlServer]:
    """Start a server with a new cluster, and end it. Passes over, or fails in CI, where PostgreSQL is missing."""
    programs = required_programs()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    # PostgreSQL will not run as root.
    as_whom: dict[str, Any] = {"user": "nobody", "group": "nogroup", "extra_groups": []} if os.geteuid() == 0 else {}
    with tempfile.TemporaryDirectory(prefix="momopay-postgresql-", dir=in_memory()) as folder:
        if as_whom:
            shutil.chown(folder, "nobody", "nogroup")
        data = Path(folder) / "data"
        fixed = ("--username=postgres", "--auth=trust", "--encoding=UTF8", "--no-sync")
        command = [str(programs / "initdb"), "--pgdata", str(data), *fixed]
        subprocess.run(command, check=True, capture_output=True, cwd=folder, **as_whom)
        access = data / "pg_hba.conf"  # for the tests of what a server may refuse
        access.write_text(f"{_PARTICULAR}\n{access.read_text()}")
        options = (
            "listen_addresses=127.0.0.1",
            f"port={port}",
            "unix_socket_directories=",
            f"max_connections={connections}",
            "fsync=off",  # clients are killed here, never the machine
            "autovacuum=off",  # nothing here lives long enough
            "max_wal_size=64MB",  # it may lie in memory
        )
        log = Path(folder) / "log"

        def launch() -> subprocess.Popen[Any]:
            with log.open("ab") as output:
                return subprocess.Popen(
                    [programs / "postgres", "-D", data, *(part for option in options for part in ("-c", option))],
                    stdout=output,
                    stderr=output,
                    cwd=folder,
                    **as_whom,
                )

        server = PostgresqlServer(port, launch, log)
        try:
            yield server
        finally:
            server.end()
