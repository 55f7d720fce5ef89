"""What a namespace of the journal is bound to, on both databases."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import pytest

from journal.kit import before_each, execute, in_threads, store_of
from momopay import ConfigurationError, Journal, JournalError
from momopay.journal.accounts import Accounts
from momopay.journal.evidence import KeyIdentity

HERE = KeyIdentity(mode="live", host="api.example", key="a")
OTHER_KEY = replace(HERE, key="b")


def accounts_of(journal: Journal) -> Accounts:
    return store_of(journal).accounts


def check(journal: Journal, identity: KeyIdentity = HERE) -> bool:
    """Return whether the tenant of a key is known; bind the namespace if it is new."""
    with store_of(journal).database.connection() as connection:
        return accounts_of(journal).check(connection, identity)


@pytest.mark.both_databases
def test_the_first_use_binds_mode_and_host(journal: Journal, url: str) -> None:
    check(journal)
    check(journal, OTHER_KEY)
    with Journal(url) as later:
        check(later)
        for other, named in [
            (replace(HERE, mode="test"), "'live'.*'test'"),
            (replace(HERE, host="h"), "'api.example'.*'h'"),
        ]:
            for _ in range(2):
                with pytest.raises(ConfigurationError, match=named):
                    check(later, other)


@pytest.mark.both_databases
def test_of_two_that_use_it_first_one_binds(journal: Journal, url: str) -> None:
    journal.get("r")

    def use(mode: Literal["live", "test"]) -> bool:
        with Journal(url) as other:
            try:
                check(other, replace(HERE, mode=mode))
            except ConfigurationError:
                return False
        return True

    modes: tuple[Literal["live", "test"], ...] = ("live", "test", "live", "test")
    each = iter(modes)
    assert sorted(in_threads(4, lambda: use(next(each)))) == [False] * 2 + [True] * 2


def test_each_name_has_an_account_of_its_own(journal: Journal, url: str) -> None:
    check(journal)
    with Journal(url, account="shop 2") as other:
        check(other, replace(HERE, mode="test"))
        assert accounts_of(other).learn(replace(HERE, mode="test"), "t2")
    assert accounts_of(journal).learn(HERE, "t1")


def test_a_key_is_asked_for_its_tenant_until_an_answer_shows_one(journal: Journal, url: str) -> None:
    assert not check(journal)
    assert accounts_of(journal).learn(HERE, "ours")
    assert check(journal)
    with Journal(url) as later:
        assert check(later), "another process knows it too"
        assert not check(later, OTHER_KEY)
        assert accounts_of(later).learn(OTHER_KEY, "ours")
        assert check(later, OTHER_KEY)


def test_a_key_whose_tenant_no_answer_shows_is_asked_once_in_a_process(journal: Journal, url: str) -> None:
    for nothing in (None, ""):
        with Journal(url) as process:
            assert not check(process)
            assert accounts_of(process).learn(HERE, nothing)
            assert check(process)
            assert accounts_of(process).learn(HERE, "ours"), "the first payment shows it"
        execute(journal, "DELETE FROM momopay_keys")


def test_what_was_checked_costs_no_statement(journal: Journal) -> None:
    check(journal)
    assert accounts_of(journal).learn(HERE, "t")
    seen: list[str] = []
    with store_of(journal).database.connection() as connection, before_each(seen.append, journal):
        assert accounts_of(journal).check(connection, HERE)
        assert accounts_of(journal).learn(HERE, "t")
        assert accounts_of(journal).knows(HERE, "t")
        assert accounts_of(journal).knows(HERE, None)
        assert not accounts_of(journal).knows(HERE, "another")
        assert not accounts_of(journal).knows(OTHER_KEY, "t")
    assert seen == []


@pytest.mark.both_databases
def test_a_key_of_another_tenant_is_refused_from_then_on_and_the_others_go_on(journal: Journal, url: str) -> None:
    check(journal)
    assert accounts_of(journal).learn(HERE, "ours")
    check(journal, OTHER_KEY)
    assert not accounts_of(journal).learn(OTHER_KEY, "theirs")
    with Journal(url) as later:
        for each in (journal, later):
            with pytest.raises(ConfigurationError, match=r"'ours'.*'theirs'"):
                check(each, OTHER_KEY)
            assert check(each)
            assert accounts_of(each).learn(HERE, "ours")


def test_a_key_whose_tenant_changes_is_refused(journal: Journal) -> None:
    check(journal)
    assert accounts_of(journal).learn(HERE, "ours")
    assert not accounts_of(journal).learn(HERE, "theirs")
    with pytest.raises(ConfigurationError, match="theirs"):
        check(journal)
    assert accounts_of(journal).learn(HERE, "ours")
    assert check(journal)


def test_what_a_process_remembers_does_not_outlive_what_another_one_learned(journal: Journal, other: Journal) -> None:
    for each in (journal, other):
        check(each)
    assert accounts_of(other).learn(OTHER_KEY, "ours")
    assert not accounts_of(journal).learn(HERE, "theirs")
    with pytest.raises(ConfigurationError):
        check(journal)


def test_no_key_is_kept(journal: Journal) -> None:
    identity = KeyIdentity.of("pk_live_secret", "https://api.example/v1")
    assert journal.check().mode is None
    check(journal, identity)
    accounts_of(journal).learn(identity, "t")
    assert "secret" not in str(execute(journal, "SELECT * FROM momopay_keys"))
    checked = journal.check()
    assert (checked.account, checked.mode, checked.host, checked.tenant_id) == ("default", "live", "api.example", "t")


def test_a_namespace_that_vanishes_is_bound_anew(journal: Journal, url: str) -> None:
    check(journal)
    execute(journal, "DELETE FROM momopay_accounts")
    with Journal(url) as later:
        check(later, replace(HERE, mode="test"))


def test_a_database_that_neither_takes_an_account_nor_shows_one_is_an_error(journal: Journal) -> None:
    journal.get("r")
    if "sqlite" not in repr(journal):
        pytest.skip("SQLite has the shorter trigger")
    execute(journal, "CREATE TRIGGER lost BEFORE INSERT ON momopay_accounts BEGIN SELECT RAISE(IGNORE); END")
    with pytest.raises(JournalError, match="neither took the account"):
        check(journal)
