"""PyInstaller's hook: what PyInstaller cannot see in the code, as it is loaded by name at its first use."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).parents[1]
# A program that uses these imports them itself. They would bring web frameworks and pytest along.
_OTHERS = {"__main__.py", "_pyinstaller", "cli", "integrations", "probe", "pytest_plugin.py", "sandbox"}

hiddenimports: list[str] = ["tenacity"]
datas: list[tuple[str, str]] = [(str(_PACKAGE / "journal" / "versions"), "momopay/journal/versions")]
for _path in sorted(_PACKAGE.rglob("*.py")):
    _parts = _path.relative_to(_PACKAGE).parts
    if _parts[0] not in _OTHERS:
        hiddenimports.append(".".join(("momopay", *_parts)).removesuffix(".py").removesuffix(".__init__"))
