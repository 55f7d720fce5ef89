"""For PyInstaller, which finds this by the entry point ``pyinstaller40``."""

from __future__ import annotations

from pathlib import Path


def get_hook_dirs() -> list[str]:
    """Return the folder of the hook."""
    return [str(Path(__file__).parent)]
