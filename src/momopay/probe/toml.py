"""Write TOML: tables of flags, whole numbers, texts, lists of texts and times."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import cast


def table(name: str, values: Mapping[str, object]) -> str:
    """Return a table. Names are bare keys: letters, digits, dashes and underscores."""
    lines = [f"{key} = {_value(value)}" for key, value in values.items()]
    return "\n".join([f"[{name}]", *lines, ""])


def _value(value: object) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case datetime():
            return value.isoformat()
        case str():
            # JSON's escapes are TOML's, apart from DEL, which TOML wants escaped.
            return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
        case list():
            return f"[{', '.join(map(_value, cast('list[object]', value)))}]"
        case _:
            raise TypeError(f"TOML here has no {type(value).__name__}")
