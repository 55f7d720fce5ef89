"""Runs an example as a user does: one command in a separate process, checked against the sandbox's ledger."""

import os
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from drivers import PROFILE
from momopay.sandbox import Account, Sandbox
from patience import run_program, until

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
LONGEST = 120.0
"""Seconds after which a process counts as hung. No test depends on how fast it is."""


UNDER_PROFILE = f"""
import functools, runpy, sys
import momopay.sandbox
momopay.sandbox.Sandbox = functools.partial(momopay.sandbox.Sandbox, profile={PROFILE!r})
sys.argv = sys.argv[1:]
sys.path[0] = sys.argv[0].rpartition("/")[0]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
"""Runs an example whose own sandbox has that profile."""


def command(script: str | Path, *arguments: str) -> list[str]:
    started = ["-c", UNDER_PROFILE, str(EXAMPLES / script)] if PROFILE else [str(EXAMPLES / script)]
    return [sys.executable, "-W", "error", *started, *arguments]


def environment(**more: str) -> dict[str, str]:
    """Return the environment of a user's shell, without our own settings."""
    ours = ("MOMOPAY_", "SHOP_", "DJANGO_", "REDIS_", "JOURNAL_", "COV")
    plain = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    return plain | {"PYTHONUNBUFFERED": "1"} | more


def run(
    script: str | Path,
    *arguments: str,
    env: dict[str, str] | None = None,
    cwd: Path | None = None,
    typed: str = "",
    code: int = 0,
) -> subprocess.CompletedProcess[str]:
    """Run an example until it ends with this status; `typed` is what a person types."""
    whole = environment() if env is None else env
    return run_program(command(script, *arguments), code=code, env=whole, cwd=cwd, input=typed)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class Web:
    process: subprocess.Popen[str]
    http: httpx.Client
    log: Path


@contextmanager
def serving(
    script: str | Path, folder: Path, *, port: int | None = None, env: dict[str, str] | None = None
) -> Generator[Web]:
    port = port or free_port()
    log = folder / f"{port}.log"
    with (
        log.open("a") as written,
        subprocess.Popen(
            command(script, "--port", str(port)),
            env=environment() if env is None else env,
            cwd=folder,
            stdout=written,
            stderr=written,
            text=True,
        ) as process,
        httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False) as http,
    ):

        def answers() -> bool:
            assert process.poll() is None, log.read_text()
            try:
                return http.get("/").status_code == 200
            except httpx.TransportError:
                return False

        try:
            until(answers, "the example answers")
            yield Web(process, http, log)
        finally:
            process.kill()


@dataclass
class Merchant:
    sandbox: Sandbox
    key: str
    account: Account

    def env(self, **more: str) -> dict[str, str]:
        """Return the settings for an example to use this account."""
        return environment(MOMOPAY_API_KEY=self.key, MOMOPAY_BASE_URL=self.sandbox.base_url, **more)

    def moved(self, kind: str) -> Counter[str]:
        return Counter(
            movement.reference
            for movement in self.sandbox.ledger
            if movement.kind == kind and movement.tenant_id == self.account.tenant_id
        )
