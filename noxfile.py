"""Tasks for developers. `nox --list` shows them, and `nox -s NAME` runs one in an environment of its own.

The three with a star, (*), are all that a newcomer needs.
"""

import os
from pathlib import Path

import nox

PYTHONS = ["3.11", "3.12", "3.13", "3.14", "3.15"]

# Interpreters that pyenv has, but does not put on the path; and those of `.ci/debian-python 3.15 /opt/python3.15`.
_pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
_beside = [*sorted(_pyenv.glob("versions/3.*/bin")), *sorted(Path("/opt").glob("python3.*/usr/bin"))]
os.environ["PATH"] = os.pathsep.join([os.environ["PATH"], *map(str, _beside)])

nox.options.sessions = ["check"]
nox.options.reuse_existing_virtualenvs = True


def run(session: nox.Session, *command: str, **variables: str) -> None:
    """Run a command, with the session's own arguments at its end, where the project is installed."""
    session.install("-e", ".[dev]")
    session.run(*command, *session.posargs, env={"NO_MKDOCS_2_WARNING": "1", **variables})


@nox.session(python=PYTHONS[0])
def check(session: nox.Session) -> None:
    """(*) Check format, lint, types and tests of what changed since main, or since `-- --base COMMIT`."""
    run(session, "python", "tests/check.py")


@nox.session(python=PYTHONS)
def tests(session: nox.Session) -> None:
    """(*) Run the default tests on each interpreter, or a file: `nox -s tests-3.13 -- tests/core/test_retry.py`."""
    run(session, "pytest", *([] if session.posargs else ["-n", "auto"]))


@nox.session(python=PYTHONS[0])
def httpx2(session: nox.Session) -> None:
    """Run the default tests where each `import httpx` is httpx2, as in programs that call `httpx2.alias_httpx()`."""
    command = ["pytest", "-p", "httpx2_alias", "-W", "ignore::pytest.PytestAssertRewriteWarning"]
    run(session, *command, *([] if session.posargs else ["-n", "auto"]), PYTHONPATH="tests")


@nox.session(python=PYTHONS[0])
def windows(session: nox.Session) -> None:
    """Run what only Windows had, then the default tests or those of a folder, on its CPython under Wine."""
    folder = str(Path(session.create_tmp()) / "windows")
    session.run("bash", "tests/windows/setup.sh", folder, "tests", external=True)
    session.run("bash", ".ci/windows", folder, external=True)
    session.run("python", "tests/windows/suite.py", folder, *session.posargs)


@nox.session(python=PYTHONS)
def whole(session: nox.Session) -> None:
    """Run what the default run leaves out: programs, pages, hostile servers, PostgreSQL."""
    run(session, "pytest", "-n", "2", "-m", "whole")


@nox.session(python=PYTHONS[0])
def profiles(session: nox.Session) -> None:
    """Run the durable calls and the examples under the sandbox's profiles `contract` and `met`."""
    for profile in ("contract", "met"):
        command = ["pytest", "-n", "auto", "-m", "not campaign", "tests/durable", "tests/examples"]
        run(session, *command, MOMOPAY_SANDBOX_PROFILE=profile)


@nox.session(python=PYTHONS[0])
def campaigns(session: nox.Session) -> None:
    """Run the fault campaigns in full. `MOMOPAY_CAMPAIGN=0.4 nox -s campaigns` bounds them, as `.ci/run` does."""
    run(session, "pytest", "-n", "2", "-m", "campaign")


@nox.session(python=PYTHONS[0])
def docs(session: nox.Session) -> None:
    """(*) Build the site as the checks do; `nox -s docs -- --site-dir FOLDER`."""
    run(session, "mkdocs", "build", "--strict")


@nox.session(python=PYTHONS[0])
def earlier(session: nox.Session) -> None:
    """Type-check the programs of the latest release against this code, or those of a commit: `-- COMMIT`."""
    run(session, "python", "tests/release/earlier.py")


@nox.session(python=PYTHONS[0])
def catalogue(session: nox.Session) -> None:
    """Try the mutants that people wrote; `nox -s catalogue -- store` those of files with that word in their path."""
    run(session, "python", "tests/mutants/run.py")


@nox.session(python=PYTHONS[0])
def mutants(session: nox.Session) -> None:
    """Try every mutant that a tool makes of the money paths, or of a module: `nox -s mutants -- "momopay.money*"`."""
    run(session, "mutmut", "run")
    session.run("python", "tests/mutants/survivors.py")
