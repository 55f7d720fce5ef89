"""The package as a whole: its public names, its extra, and which modules are free of clocks and sockets."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import momopay.sandbox

PACKAGE = Path(momopay.sandbox.__file__).parent
# Modules that may know a clock, a socket or a framework. All others are rules, and know none of these.
DRIVERS = {
    "__init__",
    "__main__",
    "_app",
    "_connections",
    "_control_api",
    "_engine",
    "_fault_middleware",
    "_sandbox",
    "_server",
    "_store",
}
DRIVEN = {"asyncio", "fastapi", "starlette", "uvicorn", "httpx", "threading", "socket", "time", "sqlite3"}


def imports_of(path: Path) -> set[str]:
    names = set[str]()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module == "momopay.sandbox":
            names |= {f"momopay.sandbox.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add(node.module or "")
    return names


def test_rules_know_no_clock_no_socket_and_no_framework() -> None:
    for path in PACKAGE.glob("*.py"):
        if path.stem not in DRIVERS:
            names = imports_of(path)
            assert not {module.split(".")[0] for module in names} & DRIVEN, path
            assert not {module.rsplit(".", 1)[-1] for module in names if module.startswith("momopay")} & DRIVERS, path


def test_the_public_names_are_complete_and_sorted() -> None:
    assert momopay.sandbox.__all__ == sorted(momopay.sandbox.__all__)
    assert all(hasattr(momopay.sandbox, name) for name in momopay.sandbox.__all__)


def test_without_the_extra_it_says_what_to_install() -> None:
    code = "import sys; sys.modules['uvicorn'] = None; import momopay.sandbox"
    program = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(PACKAGE.parents[1])},
        check=False,
    )
    assert program.stderr.rstrip().endswith("pip install 'momopay[sandbox]'")
