"""examples/docker without Docker: the same commands, health check and environment, with its names led to loopback."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from docs.blocks import ROOT
from examples.runs import free_port
from patience import run_program, until

FOLDER = ROOT / "examples" / "docker"
COMPOSE: Any = yaml.safe_load((FOLDER / "compose.yaml").read_text())
SANDBOX, APP = COMPOSE["services"]["sandbox"], COMPOSE["services"]["app"]
# What a network of containers does: a name leads to a container. Both run here.
PYTHON_NAMES = """
import socket
resolve = socket.getaddrinfo
here = lambda host: "127.0.0.1" if host in ("app", b"app") else host
socket.getaddrinfo = lambda host, *rest, **more: resolve(here(host), *rest, **more)
"""
NODE_NAMES = """
const dns = require("node:dns"), lookup = dns.lookup;
dns.lookup = (host, ...rest) => lookup(host === "sandbox" ? "127.0.0.1" : host, ...rest);
"""


def instruction(name: str) -> str:
    """The arguments of the Dockerfile's instruction of that name."""
    (found,) = re.findall(rf"^{name} (.*)$", (FOLDER / "Dockerfile").read_text().replace("\\\n", " "), re.MULTILINE)
    return str(found).strip()


def program(words: list[str], port: int) -> list[str]:
    """A command of the containers as it runs here: this Python, and a port that is free."""
    return [sys.executable if word == "python" else word.replace("8000", str(port)) for word in words]


def health_check(port: int) -> int:
    words = json.loads(instruction("HEALTHCHECK").partition("CMD ")[2])
    return subprocess.run(program(words, port), capture_output=True, check=False, timeout=30).returncode


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    """The port of the sandbox, started as its container starts it."""
    (tmp_path / "sitecustomize.py").write_text(PYTHON_NAMES)
    number = free_port()
    assert health_check(number) != 0, "something answers on a port that was free"
    path = os.pathsep.join([str(tmp_path), str(ROOT / "src")])
    running = subprocess.Popen(
        program([*json.loads(instruction("ENTRYPOINT")), *SANDBOX["command"]], number),
        env=os.environ | {"PYTHONPATH": path},
        stdout=subprocess.PIPE,
    )
    try:
        until(lambda: health_check(number) == 0)
        yield number
    finally:
        running.terminate()
        running.communicate()
    assert running.returncode == 0


@pytest.mark.skipif(shutil.which("node") is None, reason="needs Node")
def test_the_app_collects_a_payment_from_the_sandbox_next_to_it(port: int, tmp_path: Path) -> None:
    names = tmp_path / "names.cjs"
    names.write_text(NODE_NAMES)
    own = str(free_port())
    settings = {
        name: value.replace("8000", str(port)).replace("3000", own) for name, value in APP["environment"].items()
    }
    assert APP["volumes"] == ["./shop.mjs:/app/shop.mjs:ro"]
    command = [word.replace("/app/", f"{FOLDER}/") for word in APP["command"]]
    ran = run_program(command, env=os.environ | settings | {"NODE_OPTIONS": f"--require {names}"})
    assert (ran.stderr, ran.stdout.splitlines()) == ("", ["INV-42: prompt sent", "INV-42: SUCCESS, KES 100"])
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False) as control:
        (callback,) = control.get("/sandbox/callbacks").json()["data"]
    assert callback["url"] == f"http://app:{own}/momo"
