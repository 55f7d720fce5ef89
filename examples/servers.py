"""Redis and PostgreSQL for a demonstration: started in a folder, reached by socket files, thrown away at the end."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from redis import Redis
from redis.backoff import ConstantBackoff
from redis.retry import Retry


@contextmanager
def redis_server(folder: Path) -> Generator[str]:
    """Run a redis-server and yield its URL."""
    program = shutil.which("redis-server") or shutil.which("valkey-server")
    if program is None:
        sys.exit("Install redis-server to see the demonstration.")
    folder.mkdir()
    url = f"unix://{folder}/redis.sock"
    options = ("--port", "0", "--unixsocket", f"{folder}/redis.sock", "--save", "", "--dir", str(folder))
    with subprocess.Popen([program, *options], stdout=subprocess.DEVNULL) as server:  # noqa: S603  found above
        try:
            # The retries wait until it listens.
            with Redis.from_url(url, retry=Retry(ConstantBackoff(0.05), 200)) as client:  # pyright: ignore[reportUnknownMemberType]  not typed in redis-py
                client.ping()  # pyright: ignore[reportUnknownMemberType]
            yield url
        finally:
            server.terminate()


@contextmanager
def postgresql_server(folder: Path) -> Generator[str | None]:
    """Run a PostgreSQL and yield its URL, or None where it is not installed."""
    found = shutil.which("initdb")
    folders = [Path(found).parent] if found else sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    if not folders:
        yield None
        return
    folder.mkdir()
    owner: dict[str, Any] = {}
    if os.geteuid() == 0:  # as in many containers; PostgreSQL does not run as root
        owner = {"user": "nobody", "extra_groups": []}
        shutil.chown(folder, "nobody")
        folder.parent.chmod(0o711)

    def run(program: str, *arguments: str) -> None:
        command = [str(folders[-1] / program), "--pgdata", str(folder / "data"), *arguments]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=folder, **owner)  # noqa: S603  found above

    run("initdb", "--username=demo", "--auth=trust")
    options = f"-c listen_addresses= -c unix_socket_directories={folder}"
    run("pg_ctl", "start", "--wait", "--options", options, "--log", str(folder / "log"))
    try:
        yield f"postgresql+psycopg://demo@/postgres?host={folder}"
    finally:
        run("pg_ctl", "stop", "--mode", "immediate")
