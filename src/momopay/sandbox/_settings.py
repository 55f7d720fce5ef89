"""Changing an account's settings from JSON: all of the change or, when any of it is wrong, none."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, cast

from pydantic import ValidationError

from momopay.sandbox._accounts import Account
from momopay.sandbox._bodies import invalid
from momopay.sandbox._refusals import Refusal
from momopay.sandbox._state import ServiceState

# What identifies the account, and what follows from its payments.
_READ_ONLY = {"tenant_id", "label", "service_updated_at"}
CHANGEABLE = tuple(name for name in Account.model_fields if name not in _READ_ONLY)


def change_account(state: ServiceState, value: object, now: datetime) -> Account:
    """Apply `{"key" or "tenant_id": ..., "change": {...}}` and return the account; without a change this is a read.

    Raises:
        Refusal: VALIDATION_ERROR or INVALID_API_KEY; nothing has changed.
    """
    if not isinstance(value, dict):
        raise Refusal("VALIDATION_ERROR", "The request body is not a JSON object")
    body = cast("dict[str, Any]", value)
    account = _find_account(state, body, now)
    change = body.get("change", {})
    if not isinstance(change, dict) or not set(cast("dict[str, Any]", change)) <= set(CHANGEABLE):
        raise Refusal("VALIDATION_ERROR", f"change may hold: {', '.join(CHANGEABLE)}")
    changes = cast("dict[str, Any]", change)
    # Checked on a copy as a whole: assigning one by one would leave half a change when the second is wrong.
    merged: dict[str, Any] = {**account.model_dump(), **changes}
    if isinstance(changes.get("switches"), dict):
        merged["switches"] = {**account.switches.model_dump(), **changes["switches"]}
    try:
        checked = Account.model_validate(merged)
    except ValidationError as error:
        raise invalid(error, "The change is not valid") from None
    for name in changes:
        setattr(account, name, getattr(checked, name))
    state.version += 1
    return account


def _find_account(state: ServiceState, body: Mapping[str, Any], now: datetime) -> Account:
    tenant_id = body.get("tenant_id")
    if isinstance(tenant_id, str) and tenant_id in state.accounts:
        return state.accounts[tenant_id].account
    key = body.get("key")
    if not isinstance(key, str):
        raise Refusal("VALIDATION_ERROR", "key (or the tenant_id of a known account) is required")
    return state.account_of(key, now).account
