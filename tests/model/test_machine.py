from __future__ import annotations

from collections.abc import Iterator

from model.machine import Model, explore


def counter(broken_at: int) -> Model[tuple[int, int]]:
    """Two counters, each of which goes up to 3."""

    def steps(state: tuple[int, int]) -> Iterator[tuple[str, tuple[int, int]]]:
        left, right = state
        if left < 3:
            yield "left", (left + 1, right)
        if right < 3:
            yield "right", (left, right + 1)

    return Model((0, 0), steps, lambda state: "too high" if sum(state) >= broken_at else None)


def test_every_state_is_visited_once() -> None:
    result = explore(counter(broken_at=7))
    assert (result.states, result.transitions, result.depth) == (16, 24, 6)
    assert result.broken is None
    assert "every property holds" in str(result)


def test_the_shortest_way_to_a_broken_property_is_shown() -> None:
    result = explore(counter(broken_at=3))
    assert result.broken == "too high"
    assert len(result.trace) == 3
    assert str(result).splitlines()[-1].strip() == "too high"
