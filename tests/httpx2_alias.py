"""A plugin of pytest, `-p httpx2_alias`: each `import httpx` in this process is httpx2. `nox -s httpx2` uses it."""

from importlib import import_module
from typing import Any

httpx2: Any = import_module("httpx2")
httpx2.alias_httpx()
