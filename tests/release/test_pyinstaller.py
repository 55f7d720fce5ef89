"""The hook for PyInstaller names every module that is imported by name."""

import ast
import re
import runpy
from importlib import import_module
from pathlib import Path

import momopay
from momopay._pyinstaller import get_hook_dirs
from release.conftest import PROJECT

SOURCE = Path(momopay.__file__).parent


def loaded_by_name() -> set[str]:
    """Return every module of which the source has a name as text, as `wiring.load` takes it."""
    found = {f"momopay.{module}" for module in vars(momopay)["_PUBLIC"]}
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and re.fullmatch(r"\w+(\.\w+)+(?<!\.py)", str(node.value)):
                module = str(node.value).rpartition(".")[0]
                if (SOURCE / module.replace(".", "/")).with_suffix(".py").exists():
                    found.add(f"momopay.{module}")
    return found


def test_the_hook_names_what_is_imported_by_name() -> None:
    (folder,) = get_hook_dirs()
    hidden = runpy.run_path(str(Path(folder) / "hook-momopay.py"))["hiddenimports"]
    wanted = loaded_by_name()
    assert {"momopay._core.session", "momopay.journal.sqlite", "momopay.journal.postgresql", "momopay.client"} <= wanted
    assert wanted - {*hidden} == set()
    assert "tenacity" in hidden
    for name in hidden:
        import_module(name)


def test_pyinstaller_finds_the_hook() -> None:
    (path,) = PROJECT["entry-points"]["pyinstaller40"].values()
    module, _, name = path.partition(":")
    assert getattr(import_module(module), name)() == get_hook_dirs()
