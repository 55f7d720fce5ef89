"""The base class of all models: phones are masked in repr and str, and whole in the attributes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict

from momopay._redaction import mask_phone, redacted_repr


class MaskedModel(BaseModel):
    """A model whose repr and str may be logged."""

    # Building the validators of all models would take most of the time of the first call.
    model_config: ClassVar[ConfigDict] = ConfigDict(defer_build=True)

    def __repr_args__(self) -> Iterable[tuple[str | None, Any]]:
        for name, value in super().__repr_args__():
            # An id is shown whole, to be searched for: the redaction could take a part of it for a phone.
            if name is not None and (name == "id" or name.endswith(("_id", "Id"))):
                yield name, value
            elif name in {"phone", "phone_number"} and isinstance(value, str):
                yield name, mask_phone(value)
            else:
                yield name, _Masked(value)


class _Masked:
    """A value whose repr is redacted; pydantic calls repr on what `__repr_args__` yields."""

    def __init__(self, value: object) -> None:
        self._text = redacted_repr(value)

    def __repr__(self) -> str:
        return self._text
