"""What a model found wrong with what came from outside, said without the values."""

from __future__ import annotations

from pydantic import ValidationError

_MOST = 5


def describe(error: ValidationError) -> str:
    """Name the first faults by their places."""
    faults = error.errors(include_url=False, include_context=False, include_input=False)
    return "; ".join(f"{'.'.join(map(str, fault['loc'])) or 'body'}: {fault['msg']}" for fault in faults[:_MOST])
