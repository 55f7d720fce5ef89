"""A wheel and what it requires, in a folder of their own, as after `pip install 'momopay[EXTRA]'`.

The requirements are linked from the environment of the tests, found as pip finds them: by the metadata of the wheel,
and from there on by that of each distribution. So there is nothing that the extra does not ask for, and no download.
"""

import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from email.parser import Parser
from importlib.metadata import Distribution, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name


def install(wheel: Path, folder: Path, *extras: str) -> set[str]:
    """Put the wheel into a folder, with the requirements of it and of these extras; return the requirements' names."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
        (path,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        stated = Parser().parsestr(archive.read(path).decode()).get_all("Requires-Dist") or []
    seen = set[tuple[str, str]]()
    for found in _required(stated, extras, seen):
        for file in found.files or []:
            target = folder / file
            if ".." not in file.parts and not target.exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                target.symlink_to(Path(str(found.locate_file(file))))
    return {name for name, _ in seen}


def _required(stated: list[str], extras: tuple[str, ...], seen: set[tuple[str, str]]) -> Iterator[Distribution]:
    for requirement in map(Requirement, stated):
        for extra in extras or ("",):
            wanted = requirement.marker is None or requirement.marker.evaluate({"extra": extra})
            key = (canonicalize_name(requirement.name), ",".join(sorted(requirement.extras)))
            if wanted and key not in seen:
                seen.add(key)
                found = distribution(requirement.name)
                yield found
                yield from _required(found.requires or [], tuple(requirement.extras), seen)


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run this interpreter with what is in the folder, and nothing else."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("COV", "MOMOPAY_"))}
    return subprocess.run(
        [sys.executable, "-S", "-W", "error", *arguments],
        env=environment | {"PYTHONPATH": str(folder)},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
