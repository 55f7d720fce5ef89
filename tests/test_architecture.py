"""The house: imports go down the list of rooms only, and each kind of knowledge lives in one room."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import momopay

SOURCE = Path(momopay.__file__).parent

# From the top of the house to its cellar: a room may import those below it.
FLOORS = [
    {"client"},
    {"resources"},
    {"_watch", "_pages"},
    {"_looks"},
    {"_waiting"},
    {"_schedule"},
    {"_session"},
    {"_colours", "_endpoint", "_envelope", "_standing"},
    {"_retry", "_slots", "redis"},
    {"_budget", "_io"},
    {"callbacks", "journal", "signing", "_options"},
    {"models"},
    {"urls"},
    {"errors"},
    {"_discretion"},
    {"_masks", "_numbers", "money", "phones"},
]
OUTSIDE = {"__init__", "sandbox", "integrations", "cli", "__main__", "pytest_plugin"}


def room_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported_rooms(path: Path) -> set[str]:
    """The rooms of this package that a file needs at run time."""
    tree = ast.parse(path.read_text())
    hidden = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and id(node) not in hidden and node.module is not None:
            if node.module == "momopay":
                found |= {alias.name for alias in node.names}
            elif node.module.startswith("momopay."):
                found.add(node.module.split(".")[1])
    return found - {"__version__"}


def files() -> list[Path]:
    return sorted(path for path in SOURCE.rglob("*.py") if room_of(path) not in OUTSIDE)


@pytest.mark.parametrize("path", files(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_go_down_only(path: Path) -> None:
    floor = next(number for number, rooms in enumerate(FLOORS) if room_of(path) in rooms)
    below = set[str]().union(*FLOORS[floor + 1 :])
    assert imported_rooms(path) <= below | {room_of(path)}


def test_the_sandbox_knows_nothing_of_the_rest() -> None:
    for path in SOURCE.glob("sandbox/**/*.py"):
        assert imported_rooms(path) <= {"sandbox"}, path


@pytest.mark.parametrize(
    ("library", "rooms"),
    [
        ("httpx", {"_io", "client"}),
        ("httpcore", {"_io"}),
        ("anyio", {"_io"}),
        ("time", {"_io"}),
        ("asyncio", {"_io", "redis"}),
        ("redis", {"redis"}),
        ("tenacity", {"_retry"}),
        ("sqlalchemy", {"journal"}),
        ("filelock", {"journal"}),
    ],
)
def test_each_library_is_known_in_one_coordinator(library: str, rooms: set[str]) -> None:
    importing: set[str] = set()
    for path in files():
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            if any(name.split(".")[0] == library for name in names):
                importing.add(room_of(path))
    assert importing <= rooms


def test_every_file_says_what_it_is_for() -> None:
    for path in files():
        assert ast.get_docstring(ast.parse(path.read_text())), path


def modules_after(statement: str) -> set[str]:
    code = f"import sys; before = set(sys.modules); {statement}; print(*sorted(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_importing_momopay_loads_nothing_else() -> None:
    loaded = {name.split(".")[0] for name in modules_after("import importlib, typing; import momopay")}
    assert not loaded & {"httpx", "pydantic", "tenacity", "anyio"}


def test_parsing_callbacks_needs_no_http() -> None:
    loaded = {name.split(".")[0] for name in modules_after("from momopay import parse_callback")}
    assert not loaded & {"httpx", "httpcore", "tenacity", "anyio"}


def test_a_client_loads_neither_resources_nor_tenacity_before_they_are_used() -> None:
    build = "import momopay; momopay.Client('pk_test_x', base_url='http://127.0.0.1:1/v1').close()"
    loaded = modules_after(build)
    assert "tenacity" not in loaded
    assert not {name for name in loaded if name.startswith("momopay.resources.")}
    assert "ssl.create_default_context" not in loaded


def test_names_are_public_complete_and_sorted() -> None:
    assert momopay.__all__ == sorted(momopay.__all__)
    assert set(dir(momopay)) >= set(momopay.__all__)
    for name in momopay.__all__:
        assert getattr(momopay, name) is not None
    with pytest.raises(AttributeError, match="nonsense"):
        _ = momopay.nonsense  # type: ignore[attr-defined]
