"""Every Python block of the pages and of the README satisfies mypy and pyright in their strict modes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from docs.blocks import PAGES, ROOT, blocks_in
from docs.programs import PROVIDED_SOURCE, module_name, programs

PYRIGHT = {
    "typeCheckingMode": "strict",
    "pythonVersion": "3.11",
    "enableTypeIgnoreComments": False,
    "extraPaths": [str(ROOT / "src"), str(ROOT / "tests")],
    # A page shows a name that it need not use, and a value that an interactive reader would see.
    "reportUnusedClass": False,
    "reportUnusedExpression": False,
    "reportUnusedFunction": False,
    "reportUnusedImport": False,
    "reportUnusedVariable": False,
}
MYPY = ("--strict", "--allow-redefinition", "--local-partial-types", "--no-error-summary", "--hide-error-context")
HIDDEN = {
    (module_name(page), line)
    for page in PAGES
    for block in blocks_in(page)
    if block.language == "check"
    for line in range(block.line, block.line + block.text.count("\n") + 1)
}
"""The lines of comments that run but are not shown. They are assertions, and need no types."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("programs")
    for page in PAGES:
        for name, source in programs(page).items():
            file = folder / f"{name}.py"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(source)
            for package in set(file.parents) & set(folder.glob("**/")) - {folder}:
                (package / "__init__.py").touch()
    (folder / "provided.py").write_text(PROVIDED_SOURCE)
    (folder / "vcr.pyi").write_text("from typing import Any\n\nVCR: Any\n")  # vcrpy has no types
    (folder / "pyrightconfig.json").write_text(json.dumps(PYRIGHT))
    assert len(list(folder.glob("*.py"))) > 30
    return folder


def shown(errors: Iterable[str]) -> list[str]:
    """Return the errors in what a reader sees."""
    found = [(re.match(r"\W*(\w+)\.py:(\d+)", error), error) for error in errors]
    return [error for place, error in found if place is None or (place[1], int(place[2])) not in HIDDEN]


def test_mypy_accepts_every_block(folder: Path) -> None:
    command = [sys.executable, "-m", "mypy", *MYPY, "--config-file=", f"--cache-dir={folder / 'cache'}"]
    environment = os.environ | {"MYPYPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT / "tests")))}
    names = sorted(each.relative_to(folder).as_posix() for each in folder.rglob("*.py"))
    ran = subprocess.run([*command, *names], cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert ran.stderr == ""
    assert shown(line for line in ran.stdout.splitlines() if ": error: " in line) == []


def test_pyright_accepts_every_block(folder: Path) -> None:
    command = [sys.executable, "-m", "pyright", "--outputjson", "--project", str(folder)]
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    report = json.loads(ran.stdout)
    assert report["summary"]["filesAnalyzed"] > 30
    errors = (
        f"{Path(each['file']).name}:{each['range']['start']['line'] + 1}: {each['message']}"
        for each in report["generalDiagnostics"]
    )
    assert shown(errors) == []
