"""The picture of the phone: the committed one without Chromium, and no build where all is required."""

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
"""Not looked into where there is no Chromium."""


@pytest.fixture
def no_chromium(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CI_REQUIRE_ALL", raising=False)


@pytest.mark.usefixtures("no_chromium")
def test_without_chromium_the_committed_picture_is_used_and_the_build_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    files = Files([])
    with caplog.at_level(logging.INFO):
        assert phone_page.on_files(files, CONFIG) is files
    assert "the committed pictures" in caplog.text
    for scheme in phone_page.SCHEMES:
        assert (ROOT / "docs" / phone_page.NAME.format(scheme=scheme)).read_bytes().startswith(b"\x89PNG")


@pytest.mark.usefixtures("no_chromium")
def test_where_all_is_required_the_build_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI_REQUIRE_ALL", "1")
    with pytest.raises(PluginError, match="needs Chromium"):
        phone_page.on_files(Files([]), CONFIG)
