"""Screenshots of the sandbox: what the build does without Chromium."""

from __future__ import annotations

import logging
from typing import Any

import phone_page
import pytest
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import Files

from docs.blocks import ROOT

CONFIG: Any = MkDocsConfig()
"""Not used without Chromium."""


@pytest.fixture
def no_chromium(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CI_REQUIRE_ALL", raising=False)


@pytest.mark.usefixtures("no_chromium")
def test_without_chromium_the_build_uses_the_committed_screenshots_and_logs_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    files = Files([])
    with caplog.at_level(logging.INFO):
        assert phone_page.on_files(files, CONFIG) is files
    assert "the committed screenshots" in caplog.text
    for view in phone_page.VIEWS:
        for scheme in phone_page.SCHEMES:
            name = phone_page.NAME.format(view=view, scheme=scheme)
            assert (ROOT / "docs" / name).read_bytes().startswith(b"\x89PNG")


@pytest.mark.usefixtures("no_chromium")
def test_where_everything_is_required_the_build_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI_REQUIRE_ALL", "1")
    with pytest.raises(PluginError, match="need Chromium"):
        phone_page.on_files(Files([]), CONFIG)
