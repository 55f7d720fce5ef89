"""Changing an account's settings from JSON: all of the change or, when any of it is wrong, none."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, cast

from pydantic import ValidationError

from momopay.sandbox._accounts import Account
from momopay.sandbox._refusals import Refusal
from momopay.sandbox._state import World

CHANGEABLE = (
    "kyc_approved",
    "b2c_balance",
    "service_balance",
    "fee",
    "rate_limit",
    "channels",
    "credentials",
    "switches",
)


def change_account(world: World, value: object, now: datetime) -> Account:
    """Apply `{"key" or "tenant_id": ..., "change": {...}}`; without a change this is a read.

    Raises:
        Refusal: VALIDATION_ERROR or INVALID_API_KEY; nothing has changed.
    """
    if not isinstance(value, dict):
        raise Refusal("VALIDATION_ERROR", "The request body is not a JSON object")
    order = cast("dict[str, Any]", value)
    account = _account(world, order, now)
    change = order.get("change", {})
    if not isinstance(change, dict) or not set(cast("dict[str, Any]", change)) <= set(CHANGEABLE):
        raise Refusal("VALIDATION_ERROR", f"change may hold: {', '.join(CHANGEABLE)}")
    changes = cast("dict[str, Any]", change)
    merged: dict[str, Any] = {**account.model_dump(), **changes}
    if isinstance(changes.get("switches"), dict):
        merged["switches"] = {**account.switches.model_dump(), **changes["switches"]}
    try:
        checked = Account.model_validate(merged)
    except ValidationError as error:
        fields = {".".join(map(str, fault["loc"])): fault["msg"] for fault in error.errors()}
        raise Refusal("VALIDATION_ERROR", "The change is not valid", details={"fields": fields}) from None
    for name in changes:
        setattr(account, name, getattr(checked, name))
    world.version += 1
    return account


def _account(world: World, order: Mapping[str, Any], now: datetime) -> Account:
    tenant_id = order.get("tenant_id")
    if isinstance(tenant_id, str) and tenant_id in world.books:
        return world.books[tenant_id].account
    key = order.get("key")
    if not isinstance(key, str):
        raise Refusal("VALIDATION_ERROR", "key (or the tenant_id of a known account) is required")
    return world.book(key, now).account
