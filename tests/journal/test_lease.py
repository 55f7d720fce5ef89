"""Leases: when one ends, and whose it is."""

from __future__ import annotations

import os

import pytest

from momopay.journal.lease import Lease, LeaseHolder

DAY = 24 * 3600


class Registry:
    """The processes that are alive; this one is the first."""

    def __init__(self, *alive: str) -> None:
        self.sender = alive[0]
        self._alive = alive

    def register_process(self) -> str:
        return self.sender

    def is_alive(self, sender: str) -> bool:
        return sender in self._alive


@pytest.fixture
def holder() -> LeaseHolder:
    return LeaseHolder(Registry("this", "another"))


def row_of(sender: str, ends_in: float) -> dict[str, object]:
    return {"claim": "lease", "sender": sender, "lease_left": ends_in}


def test_a_lease_ends_with_its_context(holder: LeaseHolder) -> None:
    with holder.lease() as lease:
        row = row_of("this", 60) | {"claim": lease.id}
        holder.columns(lease, 60)
        assert (holder.holds(lease), holder.has_ended(row)) == (True, False)
    assert (holder.holds(lease), holder.has_ended(row)) == (False, True)


def test_a_lease_ends_with_a_context_that_raises(holder: LeaseHolder) -> None:
    with pytest.raises(KeyError), holder.lease() as lease:
        raise KeyError
    assert not holder.holds(lease)


def test_leases_are_told_apart_by_their_ids(holder: LeaseHolder) -> None:
    with holder.lease() as first, holder.lease() as second:
        assert first.id != second.id
    assert not holder.holds(Lease(id="never taken"))


def test_a_lease_of_the_parent_is_not_held_in_a_child(holder: LeaseHolder) -> None:
    with holder.lease() as lease:
        assert lease.process == os.getpid()
        assert not holder.holds(Lease(id=lease.id, process=lease.process + 1))


def test_the_columns_name_lease_process_and_time(holder: LeaseHolder) -> None:
    with holder.lease() as lease:
        assert holder.columns(lease, 60) == {"claim": lease.id, "sender": "this", "lease_seconds": 60}


@pytest.mark.parametrize(
    ("sender", "ends_in", "ended"),
    [
        ("another", DAY, False),
        ("another", -1, True),  # frozen, or cut off
        ("dead", DAY, True),
        ("dead", -1, True),
    ],
)
def test_a_lease_of_another_process_ends_with_its_time_or_its_process(
    holder: LeaseHolder, sender: str, ends_in: float, ended: bool
) -> None:
    assert holder.has_ended(row_of(sender, ends_in)) is ended


def test_a_call_that_gave_up_ends_its_lease_early(holder: LeaseHolder) -> None:
    with holder.lease() as lease:
        holder.end(lease)
        assert not holder.holds(lease)
        holder.end(lease)


def test_in_its_own_process_a_lease_outlasts_its_time(holder: LeaseHolder) -> None:
    with holder.lease() as lease:
        holder.columns(lease, 60)
        assert not holder.has_ended(row_of("this", -1) | {"claim": lease.id})
