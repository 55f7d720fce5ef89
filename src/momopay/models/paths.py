"""Paths to one record: an id, percent-encoded as one segment, so that no id leads anywhere else."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import quote

from momopay.errors import RequestValidationError
from momopay.models import arguments as fields


def transaction_id(transaction: object) -> str:
    """Give the id of the transaction that is meant.

    Raises:
        RequestValidationError: Neither an id nor a record that carries one.
    """
    return _checked("transaction_id", fields.transaction_id, transaction)


def transaction_path(transaction: object) -> str:
    """Give the path of one transaction; raises as `transaction_id`."""
    return "/transactions/" + quote(transaction_id(transaction), safe="")


def channel_path(channel: object) -> str:
    """Give the path of one payment channel; raises as `transaction_id`."""
    return "/payment-wallet/channels/" + quote(_checked("channel_id", fields.channel_id, channel), safe="")


def _checked(name: str, check: Callable[[object], str], value: object) -> str:
    try:
        return check(value)
    except ValueError as error:
        problem = str(error)
    raise RequestValidationError({name: problem})
