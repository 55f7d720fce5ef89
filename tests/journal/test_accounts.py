"""What a namespace of the journal is bound to, on both databases."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from typing import Literal

import pytest
from momopay.journal.identity import KeyIdentity

from journal.kit import before_each, execute, in_threads
from momopay import ConfigurationError, Journal
from momopay.journal.journal import accounts_of

HERE = KeyIdentity(mode="live", host="api.example", key="a")
OTHER_KEY = replace(HERE, key="b")


@contextmanager
def statements(journal: Journal) -> Generator[list[str]]:
    """Yield what the journal executes in the context."""
    seen: list[str] = []

    with before_each(seen.append, journal._database._own.database.engine):
        yield seen


def test_the_first_use_binds(journal: Journal, url: str) -> None:
    accounts_of(journal).check(HERE)
    accounts_of(journal).check(OTHER_KEY)
    with Journal(url) as later:
        accounts_of(later).check(HERE)
        for other, named in [(replace(HERE, mode="test"), "'live'"), (replace(HERE, host="h"), "'api.example'")]:
            for _ in range(2):
                with pytest.raises(ConfigurationError, match=named):
                    accounts_of(later).check(other)


@pytest.mark.both_databases
def test_of_two_that_use_it_first_one_binds(journal: Journal, url: str) -> None:
    journal.get("r")

    def use(mode: Literal["live", "test"]) -> bool:
        with Journal(url) as other:
            try:
                accounts_of(other).check(replace(HERE, mode=mode))
            except ConfigurationError:
                return False
        return True

    modes: tuple[Literal["live", "test"], ...] = ("live", "test", "live", "test")
    each = iter(modes)
    assert sorted(in_threads(4, lambda: use(next(each)))) == [False] * 2 + [True] * 2


def test_each_name_has_an_account_of_its_own(journal: Journal, url: str) -> None:
    accounts_of(journal).check(HERE)
    with Journal(url, account="shop 2") as other:
        accounts_of(other).check(replace(HERE, mode="test"))
        assert accounts_of(other).learn(replace(HERE, mode="test"), "t2")
    assert accounts_of(journal).learn(HERE, "t1")


@pytest.mark.parametrize("account", ["", " ", None, 1])
def test_an_account_needs_a_name(url: str, account: str) -> None:
    with pytest.raises(ConfigurationError, match="account"):
        Journal(url, account=account)


def test_what_was_checked_costs_no_statement(journal: Journal) -> None:
    accounts = accounts_of(journal)
    accounts.check(HERE)
    assert accounts.learn(HERE, "t")
    with statements(journal) as executed:
        accounts.check(HERE)
        assert accounts.learn(HERE, "t")
    assert executed == []
    assert accounts.learn(OTHER_KEY, "t")


def test_a_key_of_another_tenant_is_refused_from_then_on_and_the_others_go_on(journal: Journal, url: str) -> None:
    accounts = accounts_of(journal)
    accounts.check(HERE)
    assert accounts.learn(HERE, "ours")
    accounts.check(OTHER_KEY)
    assert not accounts.learn(OTHER_KEY, "theirs")
    with Journal(url) as later:
        for each in (accounts, accounts_of(later)):
            with pytest.raises(ConfigurationError, match=r"'ours'.*'theirs'"):
                each.check(OTHER_KEY)
            each.check(HERE)
            assert each.learn(HERE, "ours")


def test_a_key_whose_tenant_changes_is_refused(journal: Journal) -> None:
    accounts = accounts_of(journal)
    accounts.check(HERE)
    assert accounts.learn(HERE, "ours")
    assert not accounts.learn(HERE, "theirs")
    with pytest.raises(ConfigurationError, match="theirs"):
        accounts.check(HERE)


def test_another_process_learns_what_one_has_seen(journal: Journal, url: str) -> None:
    """What a process remembers does not outlive what another one learned."""
    with Journal(url) as other:
        for each in (journal, other):
            accounts_of(each).check(HERE)
        assert accounts_of(other).learn(OTHER_KEY, "ours")
        assert not accounts_of(journal).learn(HERE, "theirs")
        with pytest.raises(ConfigurationError):
            accounts_of(journal).check(HERE)


def test_no_key_is_kept(journal: Journal) -> None:
    identity = KeyIdentity.of("pk_live_secret", "https://api.example/v1")
    accounts_of(journal).check(identity)
    accounts_of(journal).learn(identity, "t")
    with journal._database.connection() as connection:
        (row,) = connection.exec_driver_sql("SELECT * FROM momopay_keys")
        bound = connection.exec_driver_sql("SELECT account, mode, host, tenant_id FROM momopay_accounts").one()
    assert "secret" not in str(row)
    assert tuple(bound) == ("default", "live", "api.example", "t")


@pytest.mark.both_databases
def test_a_namespace_that_vanishes_is_bound_anew(journal: Journal, url: str) -> None:
    accounts_of(journal).check(HERE)
    execute(journal, "DELETE FROM momopay_accounts")
    with Journal(url) as later:
        accounts_of(later).check(replace(HERE, mode="test"))
