"""What is due when."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from momopay.sandbox._state import Scheduler

START = datetime(2026, 1, 1, tzinfo=UTC)


@given(st.lists(st.integers(0, 5), max_size=20), st.integers(0, 6))
def test_entries_come_in_order_and_none_before_its_time(seconds: list[int], until: int) -> None:
    scheduler = Scheduler()
    for number, second in enumerate(seconds):
        scheduler.add(START + timedelta(seconds=second), "transaction", str(number))
    popped = list[int]()
    while entry := scheduler.pop(START + timedelta(seconds=until)):
        popped.append(int(entry[3]))
    # sorted() is stable, as the scheduler is: what is due at the same instant keeps its order.
    assert popped == [n for n in sorted(range(len(seconds)), key=seconds.__getitem__) if seconds[n] <= until]
    left = [second for second in seconds if second > until]
    assert scheduler.next_due == (START + timedelta(seconds=min(left)) if left else None)
