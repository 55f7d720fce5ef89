"""Callbacks are handled once, on both databases."""

from __future__ import annotations

import threading
from contextlib import suppress

import pytest

from journal.kit import callback, sender
from momopay import CallbackError, Journal
from patience import until


def test_a_callback_is_new_once(journal: Journal, url: str) -> None:
    assert journal.first_seen(callback())
    with Journal(url) as elsewhere:
        assert not elsewhere.first_seen(callback())


def test_other_news_of_the_same_transaction_is_new(journal: Journal) -> None:
    assert journal.first_seen(callback(status="FAILED"))
    assert journal.first_seen(callback(status="SUCCESS"))
    assert not journal.first_seen(callback(status="FAILED"))


def test_a_callback_is_new_to_one_of_many_threads(journal: Journal) -> None:
    said: list[bool] = []
    together = threading.Barrier(8)

    def race() -> None:
        together.wait()
        said.append(journal.first_seen(callback()))

    threads = [threading.Thread(target=race) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(said) == [False] * 7 + [True]


def test_what_was_handled_is_not_handled_again(journal: Journal) -> None:
    with journal.handling(callback()) as first:
        assert first
    with journal.handling(callback()) as first:
        assert not first
    assert not journal.first_seen(callback())


def test_what_failed_is_handled_when_it_comes_again(journal: Journal) -> None:
    with pytest.raises(KeyError), journal.handling(callback()):
        raise KeyError
    with journal.handling(callback()) as first:
        assert first


def test_what_is_being_handled_is_left_alone(journal: Journal, url: str) -> None:
    with sender(url, "callback") as other:
        assert other.says() == "held"
        with pytest.raises(CallbackError, match="another call is handling"), journal.handling(callback()):
            raise AssertionError
        other.end()
        with journal.handling(callback()) as first:
            assert not first


def test_what_a_killed_process_was_handling_is_handled_again(journal: Journal, url: str) -> None:
    with sender(url, "callback") as other:
        assert other.says() == "held"
        other.kill()

    def handled() -> bool:
        with suppress(CallbackError), journal.handling(callback()) as first:
            return first
        return False

    until(handled, "the database saw the process go")
    with journal.handling(callback()) as first:
        assert not first
