"""Models that show phones masked; the attributes hold the whole numbers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict

from momopay.phones import mask_phone, mask_phones


class MaskedModel(BaseModel):
    """A model whose repr and str may be logged."""

    model_config: ClassVar[ConfigDict] = ConfigDict(defer_build=True)

    def __repr_args__(self) -> Iterable[tuple[str | None, Any]]:
        for name, value in super().__repr_args__():
            if not isinstance(value, str) or type(value) is not str:
                yield name, value
            elif name in {"phone", "phone_number"}:
                yield name, mask_phone(value)
            else:
                yield name, mask_phones(value)

    def __repr__(self) -> str:
        return mask_phones(super().__repr__())

    def __str__(self) -> str:
        return mask_phones(super().__str__())
