"""Profiles: files that are read back, and what changed between two of them."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from momopay import ConfigurationError
from momopay.probe import Change, Finding, Profile
from momopay.probe.findings import Value

WHEN = datetime(2026, 11, 22, 10, 0, tzinfo=UTC)


def profile(**values: Value) -> Profile:
    findings = {name: Finding(value, f'It is "{value}".', ("r-1",)) for name, value in values.items()}
    return Profile(findings, "api.example", "test", ("reads",), WHEN, "0.3.0")


def test_a_file_is_read_back(tmp_path: Path) -> None:
    written = profile(naming="camelCase", delete_answer="unknown", rate_limit=60, list_fields=["a", "b"], other=True)
    path = tmp_path / "service.toml"
    written.save(path)
    assert Profile.load(path) == written
    assert [each.name for each in tmp_path.iterdir()] == ["service.toml"]
    document = tomllib.loads(path.read_text())
    assert document["switches"] == {"naming": "camelCase", "delete_answer": "unknown"}
    assert document["facts"] == {"rate_limit": 60, "list_fields": ["a", "b"], "other": True}
    assert document["evidence"]["naming"] == {"sentence": 'It is "camelCase".', "request_ids": ["r-1"]}


def test_a_failed_save_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "service.toml"
    profile(naming="camelCase").save(path)

    def fail(*_: object) -> None:
        raise OSError

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(OSError):  # noqa: PT011  any
        profile(naming="snake_case").save(path)
    assert Profile.load(path).switches == {"naming": "camelCase"}
    assert [each.name for each in tmp_path.iterdir()] == ["service.toml"]


def test_changes() -> None:
    before = profile(naming="camelCase", rate_limit=60, retry_after="unknown", delete_status=200, gone=1)
    now = profile(naming="snake_case", rate_limit=60, retry_after="seconds", delete_status="unknown", new=1)
    assert now.changes_since(before) == [Change("naming", "camelCase", "snake_case")]
    assert now.not_compared(before) == ["delete_status", "gone"]
    assert before.changes_since(before) == []


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nonsense",
        "[probe]\nformat = 1\n",
        "[probe]\nformat = 2\n[switches]\n[facts]\n",
        "[switches]\na = 1\n[facts]\n",
    ],
)
def test_another_file_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "other.toml"
    path.write_text(text)
    with pytest.raises(ConfigurationError, match="is no profile of momopay probe"):
        Profile.load(path)
    with pytest.raises(ConfigurationError):
        Profile.load(tmp_path / "missing.toml")


def test_the_date_is_no_change() -> None:
    assert (
        replace(profile(naming="camelCase"), date=WHEN.replace(year=2027)).changes_since(profile(naming="camelCase"))
        == []
    )
