"""Pictures of the examples: what the build does without Chromium, and what the pictures may not do."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
import screens
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import Files

from docs.blocks import ROOT

FOLDER = ROOT / "docs" / screens.FOLDER
NAMES = [f"{name}-{scheme}.png" for name in ("checkout", "checkout-paid") for scheme in screens.COLOURS]
CONFIG: Any = MkDocsConfig()
"""Not used without Chromium."""


def test_without_chromium_the_build_uses_the_committed_pictures(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("PATH", "")
    files = Files([])
    with caplog.at_level(logging.INFO):
        assert screens.on_files(files, CONFIG) is files
    assert "the committed pictures" in caplog.text
    for name in NAMES:
        assert (FOLDER / name).read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("scheme", screens.COLOURS)
def test_the_terminal_fetches_no_font_and_shows_how_each_salary_ended(scheme: str) -> None:
    svg = Path(FOLDER / f"payroll-{scheme}.svg").read_text()
    assert "url(http" not in svg
    assert "font-face" not in svg
    assert "REVERSED" in svg
