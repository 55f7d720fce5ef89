"""A release: one version, a changelog that names every break of the public API, and complete packages."""

import re
import tarfile
import zipfile
from pathlib import Path

import pytest
from packaging.version import Version

import momopay
from release.breaks import breaks, path_of
from release.conftest import PROJECT, ROOT
from release.public_api import SNAPSHOT, public_api

CHANGELOG = (ROOT / "CHANGELOG.md").read_text()
UNRELEASED = CHANGELOG.partition("## [Unreleased]")[2].partition("\n## [")[0]
RELEASED = re.findall(r"^## \[(\d+\.\d+\.\d+)\] - \d{4}-\d{2}-\d{2}$", CHANGELOG, re.MULTILINE)
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def test_the_version_is_stated_in_one_place() -> None:
    assert "version" in PROJECT["dynamic"]
    stated = [
        path.relative_to(ROOT / "src")
        for path in (ROOT / "src").rglob("*.py")
        if f'"{momopay.__version__}"' in path.read_text()
    ]
    assert stated == [Path("momopay/__init__.py")]


def test_the_changelog_lists_the_releases_before_this_version() -> None:
    assert sorted(RELEASED, key=Version, reverse=True) == RELEASED
    assert "## [Unreleased]" in CHANGELOG
    # Between releases the version is a development one of the release to come.
    assert Version(momopay.__version__) >= Version(RELEASED[0])
    assert RELEASED[0] == momopay.__version__ or Version(momopay.__version__).is_devrelease


def broken(then: list[str], now: list[str]) -> list[str]:
    """Return the lines of the released API that are broken, unless the changelog names them in backticks."""
    return [line for line in breaks(then, now) if f"`{_name(line)}`" not in UNRELEASED]


def _name(line: str) -> str:
    return path_of(line).removeprefix("momopay.")


def test_the_changelog_names_every_break() -> None:
    heading, *then = SNAPSHOT.read_text().splitlines()
    assert heading == f"momopay {RELEASED[0]}", "python -m release.public_api, in tests, writes it at a release"
    assert broken(then, public_api()) == []


@pytest.mark.parametrize("gone", ["ThrottledError", "PollSchedule.first", "types.Wallet.top_up"])
def test_a_break_is_noticed(gone: str) -> None:
    then = SNAPSHOT.read_text().splitlines()[1:]
    assert broken(then, [line for line in then if _name(line) != gone]) != []


F = "momopay.f(self, amount: 'int', *, phone: 'str', key: 'str | None' = None) -> 'Payment'"


@pytest.mark.parametrize(
    "now",
    [
        F,
        F.replace("*,", "wait: 'float' = 1.0, *,"),
        F.replace("*,", "*, wait: 'float' = 1.0,"),
        F.replace("phone: 'str'", "phone: 'str' = ''"),
        F.replace(", *,", ", *more: 'int',").replace(") ->", ", **others: 'str') ->"),
        F.replace("*, phone: 'str', key: 'str | None' = None", "phone: 'str', key: 'str | None' = None"),
    ],
)
def test_an_argument_that_may_be_left_out_is_no_break(now: str) -> None:
    assert breaks([F], [now, "momopay.g(more: 'int')"]) == []


@pytest.mark.parametrize(
    "now",
    [
        F.replace("*,", "wait: 'float', *,"),
        F.replace("*,", "*, wait: 'float',"),
        F.replace("amount: 'int'", "amount: 'float'"),
        F.replace("amount", "kes"),
        F.replace("self, amount: 'int'", "self, wait: 'int' = 0, amount: 'int' = 0"),
        F.replace("amount: 'int', *", "*, amount: 'int'").replace("*, amount: 'int',", "*, amount: 'int',"),
        F.replace("= None", "= 'x'"),
        F.replace(" = None", ""),
        F.replace(", key: 'str | None' = None", ""),
        F.replace("'Payment'", "'Payout'"),
        "momopay.f: property",
        "momopay.f(self, amount: 'int' = <object at 0x7f>)",
    ],
)
def test_what_a_caller_would_feel_is_a_break(now: str) -> None:
    assert breaks([F], [now]) == [F]
    assert breaks(["class momopay.A(B)"], ["class momopay.A()"]) != []
    assert breaks(["momopay.A.x: int"], ["momopay.A.x: int", "momopay.A.y: int"]) == []
    assert breaks(["momopay.A.x: int"], ["momopay.A.x: str"]) != []


@pytest.mark.whole
def test_the_wheel_has_only_the_package(packed: Path) -> None:
    (wheel,) = packed.glob("*.whl")
    assert wheel.name == f"momopay-{momopay.__version__}-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    info = f"momopay-{momopay.__version__}.dist-info"
    assert {name.split("/")[0] for name in names} == {"momopay", info}
    source = ROOT / "src"
    ours = {
        str(path.relative_to(source)) for path in source.rglob("*") if path.is_file() and "__pycache__" not in str(path)
    }
    assert {name for name in names if name.startswith("momopay/")} == ours
    assert {"momopay/py.typed", f"{info}/licenses/LICENSE", f"{info}/entry_points.txt"} <= names


@pytest.mark.whole
def test_the_source_has_what_builds_and_tests_it(packed: Path) -> None:
    (source,) = packed.glob("*.tar.gz")
    with tarfile.open(source) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "tests/conftest.py", "mkdocs.yml"} <= names
    assert not [name for name in names if "__pycache__" in name or name.endswith((".db", ".pyc"))]


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_every_action_is_pinned_to_a_commit(workflow: Path) -> None:
    used = re.findall(r"uses: (\S+)", workflow.read_text())
    assert used
    assert [action for action in used if not re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", action)] == []
