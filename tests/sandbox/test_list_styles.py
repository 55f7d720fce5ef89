"""The switches by which list items look different from what the other endpoints show."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from momopay.sandbox import Sandbox
from sandbox.kit import KEY, Service, data


def listed(service: Service) -> dict[str, Any]:
    (item,) = data(service.api.get("/transactions"))["items"]
    shown: dict[str, Any] = item
    return shown


@pytest.mark.parametrize(
    ("switch", "value", "changed"),
    [
        ("list_phone", "masked", {"phone": "2547*****678"}),
        ("list_amount", "with_fee", {"amount": 251.5}),
        ("list_type", "lower", {"type": "b2c"}),
    ],
)
@pytest.mark.parametrize("naming", ["camelCase", "snake_case"])
def test_one_field_of_a_list_item_is_different(
    service: Service, sandbox: Sandbox, switch: str, value: str, changed: dict[str, Any], naming: Any
) -> None:
    sandbox.account(KEY).switches.naming = naming
    initiated = service.payout()
    before, read = listed(service), service.read(initiated)
    setattr(sandbox.account(KEY).switches, switch, value)
    assert listed(service) == before | changed
    assert service.read(initiated) == read


def test_local_times_have_no_zone(service: Service, sandbox: Sandbox) -> None:
    service.payout()
    before = listed(service)
    sandbox.account(KEY).switches.list_times = "local"
    for name in ("createdAt", "updatedAt"):
        shown = datetime.fromisoformat(listed(service)[name])
        assert shown.tzinfo is None
        assert shown - datetime.fromisoformat(before[name]).replace(tzinfo=None) == timedelta(hours=3)


def test_pages_and_filters_are_as_before(service: Service, sandbox: Sandbox) -> None:
    sandbox.account(KEY).switches.list_phone = "masked"
    for number in range(3):
        service.payout(reference=f"SAL-{number}")
    first = data(service.api.get("/transactions", params={"limit": 2, "type": "B2C"}))
    assert (len(first["items"]), first["overview"]["total"]) == (2, 3)
    rest = data(service.api.get("/transactions", params={"limit": 2, "cursor": first["nextCursor"]}))
    assert ([item["accountReference"] for item in rest["items"]], rest["nextCursor"]) == (["SAL-0"], None)
