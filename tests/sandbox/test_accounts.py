"""Accounts: their ids and labels never give the key away, and a reset restores them in place."""

import pytest

from momopay.sandbox import Sandbox, Switches
from momopay.sandbox._accounts import mask_key, tenant_id_of
from sandbox.kit import KEY, Service, data


def test_an_id_is_derived_from_the_key() -> None:
    # Fixed: a state file of an earlier version has accounts under such ids.
    assert tenant_id_of("pk_test_suite") == "78c33a10-dceb-5edd-9262-ce46a82527d4"


@pytest.mark.parametrize(
    ("key", "label"), [("pk_test_a", "pk_test_a"), ("pk_test_abcd", "pk_test_abcd"), ("pk_test_abcde", "pk_test_…bcde")]
)
def test_a_key_is_shown_by_its_last_four_characters(key: str, label: str) -> None:
    assert mask_key(key) == label


def test_reset_restores_accounts_in_place(sandbox: Sandbox, service: Service) -> None:
    account = sandbox.account(KEY)
    account.kyc_approved, account.channels, account.fee = False, [], account.fee + 1
    account.switches.naming = "snake_case"
    sandbox.fail_next("POST", "/payments/stk", "html_502")
    sandbox.reset()
    assert sandbox.account(KEY) is account
    assert account.kyc_approved
    assert account.switches == Switches()
    assert account.rate_limit == 60
    assert account.fee == 1
    data(service.stk())
    assert len(sandbox.requests) == 1


def test_a_wrong_value_cannot_be_assigned(sandbox: Sandbox) -> None:
    account = sandbox.account(KEY)
    for target, name, value in ((account, "fee", -1), (account, "typo", 1), (account.switches, "naming", "kebab")):
        with pytest.raises(ValueError, match=name):
            setattr(target, name, value)
