"""The public names with their signatures, one a line. As a script, it writes them to a file for a release."""

import inspect
import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from enum import Enum
from importlib import import_module
from pathlib import Path
from types import GenericAlias
from typing import Any

from pydantic import BaseModel

import momopay

SNAPSHOT = Path(__file__).with_name("public_api.txt")
MODULES = ("momopay", "momopay.types", "momopay.events", "momopay.probe", "momopay.sandbox")
MORE = (
    "momopay.integrations.django.callback_endpoint",
    "momopay.integrations.django.status_endpoint",
    "momopay.integrations.django.sweep_endpoint",
    "momopay.integrations.fastapi.callback_endpoint",
    "momopay.integrations.fastapi.status_endpoint",
    "momopay.integrations.fastapi.sweep_endpoint",
    "momopay.integrations.flask.callback_endpoint",
    "momopay.integrations.flask.status_endpoint",
    "momopay.integrations.flask.sweep_endpoint",
    "momopay.integrations.opentelemetry.observer",
)


def public_api() -> list[str]:
    """Return every public name with its signature or value."""
    lines: set[str] = set()
    for module_name in MODULES:
        module = import_module(module_name)
        for name in module.__all__:
            lines.update(_described(f"{module_name}.{name}", getattr(module, name)))
    for path in MORE:
        module_name, _, name = path.rpartition(".")
        lines.update(_described(path, getattr(import_module(module_name), name)))
    return sorted(lines)


def _described(path: str, value: Any) -> Iterator[str]:
    if not inspect.isclass(value):
        yield f"{path}{_signature(value)}"
        return
    bases = ", ".join(
        base.__name__
        for base in value.__mro__[1:-1]
        if base.__module__.startswith("momopay") and not base.__name__.startswith("_")
    )
    yield f"class {path}({bases})"
    if issubclass(value, Enum):
        yield from (f"{path}.{name} = {member.value!r}" for name, member in value.__members__.items())
        return
    if issubclass(value, BaseModel):
        told = {name: kind for base in reversed(value.__mro__) for name, kind in inspect.get_annotations(base).items()}
        yield from (f"{path}.{name}: {_written(told[name])}" for name in value.model_fields)
    elif is_dataclass(value):
        yield from (f"{path}.{field.name}: {_written(field.type)}" for field in fields(value))
    elif "__init__" in vars(value) or value in {momopay.Client, momopay.AsyncClient}:  # they share theirs
        yield f"{path}{_signature(value.__init__)}"
    for name, member in inspect.getmembers_static(value):
        of_ours = any(name in vars(base) for base in value.__mro__ if base.__module__.startswith("momopay"))
        if of_ours and not name.startswith(("_", "model_")):
            yield from _member(f"{path}.{name}", member)


def _member(path: str, member: Any) -> Iterator[str]:
    inner = getattr(member, "__wrapped__", None) or getattr(member, "__func__", member)
    if isinstance(member, property):
        yield f"{path}: property"
    elif inspect.isfunction(inner):
        yield f"{path}{_signature(inner)}"


def _signature(value: Any) -> str:
    if not callable(value) or isinstance(value, GenericAlias):
        # As they were called before typing-extensions 4.16, and before Python 3.14.
        name = type(value).__name__.replace("Sentinel", "sentinel")
        return f" = {'UnionType' if name == 'Union' else name}"
    # Neither where a function lies in memory nor what this Python calls a Path is anybody's business.
    said = re.sub(r"<function (\w+|<lambda>) at 0x[0-9a-fA-F]+>", r"\1", str(inspect.signature(value)))
    said = re.sub(r"\bmomopay\.(?=[A-Z])", "", said)  # errors name records through the package
    said = re.sub(r"= <([A-Z_]+)>", r"= \1", said)  # as typing-extensions before 4.16 shows a sentinel
    return said.replace("pathlib._local.", "pathlib.")


def main() -> None:
    SNAPSHOT.write_text("\n".join([f"momopay {momopay.__version__}", *public_api()]) + "\n")


def _written(annotation: Any) -> str:
    """Return an annotation as Pythons before 3.14 write it."""
    return re.sub(r"^(typing\..*) \| None$", r"typing.Optional[\1]", str(annotation))


if __name__ == "__main__":
    main()
