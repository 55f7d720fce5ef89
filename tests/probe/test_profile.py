"""Profiles: files that are read back, and what changed between two of them."""

import tomllib
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from in_turn import in_turn
from momopay import ConfigurationError
from momopay.probe import Change, Finding, Profile
from momopay.sandbox import Outcome
from probe.kit import Scene

Value = bool | int | str | list[str]
TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
VALUES = st.one_of(st.booleans(), st.integers(-(2**63), 2**63 - 1), TEXTS, st.lists(TEXTS, max_size=3))
ABOUT = {
    "format": 1,
    "momopay": "0.3.0",
    "date": datetime(2026, 11, 22, tzinfo=UTC),
    "host": "api.example",
    "asked": ["reads"],
}


def profile(**values: Value) -> Profile:
    return Profile({name: Finding(value, f'It is "{value}".', ("r-1",)) for name, value in values.items()}, ABOUT)


def test_a_file_is_read_back(tmp_path: Path) -> None:
    written = profile(naming="camelCase", delete_answer="unknown", rate_limit=60, list_fields=["a", "b"], other=True)
    path = tmp_path / "service.toml"
    written.save(path)
    assert (Profile.load(path), [each.name for each in tmp_path.iterdir()]) == (written, ["service.toml"])
    document = tomllib.loads(path.read_text())
    assert document["switches"] == {"naming": "camelCase", "delete_answer": "unknown"}
    assert document["facts"] == {"rate_limit": 60, "list_fields": ["a", "b"], "other": True}
    assert document["evidence"]["naming"] == {"sentence": 'It is "camelCase".', "request_ids": ["r-1"]}


@settings(max_examples=50)
@given(VALUES, TEXTS, VALUES)
def test_findings_round_trip(tmp_path_factory: pytest.TempPathFactory, value: Value, text: str, unnamed: Value) -> None:
    found = Finding(value, text, (text,), unnamed)
    written = Profile({"naming": found, "list_fields": replace(found, value=text)}, ABOUT)
    path = tmp_path_factory.getbasetemp() / "service.toml"
    path.write_text(written.to_toml(), encoding="utf-8", newline="")
    assert Profile.load(path) == written


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
    later = replace(before, about={**ABOUT, "date": datetime(2027, 11, 22, tzinfo=UTC)})
    assert later.changes_since(before) == before.changes_since(later) == []


def test_an_answer_without_a_name_is_a_change(tmp_path: Path) -> None:
    before, now = profile(transaction_not_found_status=404), profile(transaction_not_found_status="unknown")
    assert now.changes_since(before) == []
    now = replace(now, findings={"transaction_not_found_status": Finding("unknown", "It got 410.", (), 410)})
    path = tmp_path / "service.toml"
    now.save(path)
    assert Profile.load(path).changes_since(before) == [Change("transaction_not_found_status", 404, 410)]
    assert before.changes_since(Profile.load(path)) == [Change("transaction_not_found_status", 410, 404)]
    assert now.changes_since(Profile.load(path)) == []


@in_turn(
    ("then", "now", "is_changed"),
    [
        (["upper", "STK_PUSH"], "upper", False),  # no such payment that day
        ("upper", ["upper", "STK_PUSH"], True),
        ("upper", "lower", True),
    ],
)
def test_of_words_that_vary_only_a_new_one_is_a_change(then: Value, now: Value, is_changed: bool) -> None:
    assert bool(profile(list_type=now).changes_since(profile(list_type=then))) is is_changed


def test_no_secret_gets_past(scene: Scene) -> None:
    scene.prompt(Outcome.success)
    secrets = (scene.key, "254712345678", "0712 345 678", "pk_live_secret", "fine\x1b[2J")

    def edited(request: httpx.Request, response: httpx.Response) -> httpx.Response:
        document: Any = response.json()
        document["requestId"] = secrets[len(scene.sandbox.requests) % 3]
        for each in document.get("data", {}).get("items", []):
            each.update(dict.fromkeys(secrets), status=secrets[0], type=secrets[1], createdAt=secrets[2])
        if "error" in document:
            document["error"]["code"] = " ".join(secrets)
        return httpx.Response(response.status_code, json=document)

    scene.service.edit = edited
    text = scene.probe().to_toml()
    for secret in ("712345678", "712 345 678", "secret", "\x1b", scene.key):
        assert secret not in text
    assert "pk_live_*****" in text


@in_turn("text", ["", "nonsense", "[probe]\nformat = 2\n[switches]\n[facts]\n", "[switches]\na = 1\n[facts]\n"])
def test_another_file_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "other.toml"
    path.write_text(text)
    with pytest.raises(ConfigurationError, match="is no profile of momopay probe"):
        Profile.load(path)
    with pytest.raises(ConfigurationError):
        Profile.load(tmp_path / "missing.toml")
