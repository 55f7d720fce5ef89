"""The writer of TOML, read by the standard library."""

from __future__ import annotations

import tomllib
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from momopay.probe.toml import table

TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
VALUES = st.one_of(st.booleans(), st.integers(-(2**63), 2**63 - 1), TEXTS, st.lists(TEXTS, max_size=3))


@settings(max_examples=50)
@given(st.dictionaries(st.from_regex(r"[a-z_]{1,9}", fullmatch=True), VALUES))
def test_what_is_written_is_read(values: dict[str, object]) -> None:
    assert tomllib.loads(table("a.b", values)) == {"a": {"b": values}}


def test_times() -> None:
    when = datetime(2026, 11, 22, 10, 0, tzinfo=UTC)
    assert tomllib.loads(table("a", {"date": when})) == {"a": {"date": when}}


def test_other_values_are_refused() -> None:
    with pytest.raises(TypeError):
        table("a", {"x": None})
