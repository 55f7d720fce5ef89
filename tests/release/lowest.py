"""Constraints for pip: the lowest version of each dependency that pyproject.toml allows. As a program, it prints them.

With them, `.ci/run` runs the default tests on the versions that users may still have. A bound that no release meets
exactly makes pip fail, so each bound is a version that exists.
"""

import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

OF_DEVELOPERS = {"dev", "docs"}
"""Extras that no user installs; only their newest versions are tried."""


def lowest() -> Iterator[str]:
    """Yield a constraint for each requirement of the package and of its extras."""
    text = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    project: dict[str, Any] = tomllib.loads(text)["project"]
    extras: dict[str, list[str]] = project["optional-dependencies"]
    for name, stated in {"": project["dependencies"], **extras}.items():
        for requirement in map(Requirement, stated if name not in OF_DEVELOPERS else ()):
            if requirement.name == "momopay":  # an extra that needs another one
                continue
            (bound,) = (each.version for each in requirement.specifier if each.operator == ">=")
            yield f"{requirement.name}=={bound}"


if __name__ == "__main__":
    sys.stdout.writelines(f"{line}\n" for line in lowest())
