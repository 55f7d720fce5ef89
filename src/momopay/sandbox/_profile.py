"""Profiles: TOML files of what `momopay probe` learned of a real service, as the switches of every account."""

import tomllib
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from momopay.sandbox._switches import Switches

_UNKNOWN = "unknown"


def load_profile(path: str | Path) -> Switches:
    """Return the switches of a file; those that it calls unknown, or does not name, have their defaults.

    Raises:
        OSError: The file cannot be read.
        ValueError: It is no profile, or it has a switch or a value that this sandbox does not have.
    """
    try:
        table: dict[str, Any] = dict(tomllib.loads(Path(path).read_text("utf-8"))["switches"])
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path} is not a profile, which is TOML with a table [switches]: {error}") from None
    known = {name: value for name, value in table.items() if value != _UNKNOWN}
    try:
        # A name that is not known is refused too: the sandbox would silently differ from what the file says.
        return Switches.model_validate(known)
    except ValidationError as error:
        faults = "; ".join(f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in error.errors())
        raise ValueError(f"{path} does not fit this version of the sandbox: {faults}") from None
