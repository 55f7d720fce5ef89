"""The caller's own data about a payment, which the journal keeps. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping

from momopay.errors import RequestValidationError


def checked_metadata(metadata: Mapping[str, object] | None) -> dict[str, object] | None:
    """Return a copy that JSON can hold; raise RequestValidationError if it is no JSON object."""
    if metadata is None:
        return None
    problem = {"metadata": "must be a mapping of names to what JSON can hold"}
    if not isinstance(metadata, Mapping) or not all(isinstance(name, str) for name in metadata):
        raise RequestValidationError(problem)
    try:
        copy: dict[str, object] = json.loads(json.dumps(dict(metadata), allow_nan=False))
    except (TypeError, ValueError, RecursionError):
        raise RequestValidationError(problem) from None  # the cause may show a value
    return copy
