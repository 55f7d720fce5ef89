"""What to write instead of a name that does not exist. The names are in ``wrong_names.toml``.

All of this runs only after a name was not found.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any


def hint(section: str, name: str) -> str | None:
    """Return what to write instead of a name, None if nobody is known to guess that name."""
    import tomllib  # noqa: PLC0415  for wrong names only
    from importlib.resources import files  # noqa: PLC0415  as above

    names = tomllib.loads(files("momopay").joinpath("wrong_names.toml").read_text("utf-8"))
    instead: str | None = names.get(section, {}).get(name)
    return instead


def missing_attribute(owner: Any, name: str) -> Any:
    """Raise AttributeError for an attribute that was not found, with what to write instead if that is known.

    It is the ``__getattr__`` of clients and of their groups of operations. It returns a value only if the attribute is
    there now.
    """
    is_client = hasattr(owner.__class__, "_is_async")
    section = "client" if is_client else str(owner.__class__.__name__).lower()
    instead = None if name.startswith("_") else hint(section, name)
    if instead is None:
        # A property may have raised it; this raises that error again.
        return object.__getattribute__(owner, name)
    is_async = owner._is_async if is_client else owner._session.backend.is_async  # noqa: SLF001
    raise AttributeError(f"there is no {section}.{name}: write {'await ' if is_async else ''}{instead}")


def missing_name(name: str) -> Exception:
    """Return the error for a name that the package lacks."""
    instead = None if name.startswith("_") else hint("momopay", name)
    if instead is None:
        return AttributeError(f"module 'momopay' has no attribute {name!r}")
    import dis  # noqa: PLC0415  for wrong names only

    text = f"there is no momopay.{name}: write {instead}"
    frame = sys._getframe(2)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  that of the program that asked for the name
    # `from momopay import ...` does not show the text of an AttributeError.
    is_import = frame.f_lasti >= 0 and dis.opname[frame.f_code.co_code[frame.f_lasti]] == "IMPORT_FROM"
    return ImportError(text, name="momopay") if is_import else AttributeError(text)


def explain(error: BaseException, function: Callable[..., object]) -> None:
    """Add what to write instead to the TypeError of a call of the function with an argument that does not exist."""
    if not isinstance(error, TypeError):
        return
    start, quoted, name = str(error).removesuffix("'").partition(" got an unexpected keyword argument '")
    if not quoted or start != f"{function.__qualname__}()":
        return
    section = "options" if function.__name__ in {"__init__", "with_options"} else "arguments"
    if instead := hint(section, name):
        error.args = (f"{error}: write {instead}",)
