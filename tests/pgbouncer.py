"""A real PgBouncer on loopback in front of a server of the tests."""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import pytest

_CONFIGURATION: Final = """\
[databases]
* = host=127.0.0.1 port={server} user=postgres
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = {mode}
default_pool_size = {size}
query_wait_timeout = 5
{more}
"""


def _program() -> str:
    found = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
    if found is None:
        message = "PgBouncer is not installed (Debian: apt-get install pgbouncer)"
        if os.environ.get("CI_REQUIRE_ALL"):
            pytest.fail(message)
        pytest.skip(message)
    return found


@contextmanager
def running_pgbouncer(server: int, mode: str, *, size: int = 20, more: str = "") -> Generator[int]:
    """Start a PgBouncer before the server with this port; yield its own port. `mode` is that of its pools."""
    program = _program()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
    # It will not run as root.
    as_whom: dict[str, Any] = {"user": "nobody", "group": "nogroup", "extra_groups": []} if os.geteuid() == 0 else {}
    with tempfile.TemporaryDirectory(prefix="momopay-pgbouncer-") as folder:
        Path(folder).chmod(0o755)
        configuration = Path(folder) / "pgbouncer.ini"
        configuration.write_text(_CONFIGURATION.format(server=server, port=port, mode=mode, size=size, more=more))
        command = [program, str(configuration)]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **as_whom)
        try:
            give_up = time.monotonic() + 30
            while True:
                assert process.poll() is None, "PgBouncer ended"
                assert time.monotonic() < give_up, "PgBouncer takes no connection"
                with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                    break
                time.sleep(0.05)
            yield port
        finally:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
