"""The person who looks after what is in doubt: one who reads the service's ledger first, and one who does not.

The careful one may do anything that the ledger allows. The hasty one trusts `client.payouts.release`, which must keep
her from what was sent a moment ago.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

from campaign.clocks import A_DAY, Clock, end_lease
from campaign.judge import Payment, by_order
from momopay import Client, EntryKind, Journal, JournalEntry, JournalError, MomoPayError
from momopay.journal.journal import parts_of

WAITS = 2.5
"""Seconds for which something is in doubt before the careful one acts: what is still under way has come by then."""
GIVES_UP = 12.0
"""Seconds after which she leaves a payout whose release is refused."""
DOUBTED = 3.5
"""Seconds for which the hasty one tries to release what just came to be in doubt. A call takes 3.6 s at most, so this
too is over before its lease and a minute are, after 7.5 s."""
BY = "the campaign's human"


class Human:
    """Releases payments, and has `pay` pay what was released."""

    def __init__(
        self,
        kind: EntryKind,
        payments: Callable[[], list[Payment]],
        journal: Journal,
        client: Client,
        clock: Clock,
        pay: Callable[[Iterable[str]], object],
    ) -> None:
        """`payments` reads the service's ledger."""
        self.events: Counter[str] = Counter()
        self.began: dict[str, float] = {}
        """When each release began, by the clock of the payments."""
        self.journal = journal
        self._kind = kind
        self._payments = payments
        self._client = client
        self._clock = clock
        self._pay = pay
        self._doubted: dict[tuple[str, int], float] = {}
        self._pressed: dict[tuple[str, int], float] = {}
        """Since when each attempt is known to be in doubt, to the careful one and to the hasty one. An attempt may be
        executed a moment after its call has ended, so the time counts anew with each."""

    def look(self) -> None:
        """Release what was in doubt for long and, by the ledger, was not paid; have it paid."""
        now, entries = time.monotonic(), self.journal.unresolved()
        self._doubted = {_attempt(entry): self._doubted.get(_attempt(entry), now) for entry in entries}
        left = parts_of(self.journal).store.seconds_to_release
        due = [entry for entry in entries if now - self._doubted[_attempt(entry)] >= WAITS and left(entry) <= 0]
        for entry in sorted(self.unpaid(due), key=_attempt)[:3]:
            # To pay the one before took seconds, in which somebody may have attempted this one.
            if self._attempts(entry.reference) != entry.attempts or not self.unpaid([entry]):
                continue
            if self._release(entry.reference) or self._release(entry.reference, unseen=True):
                self.events["released after a look into the ledger"] += 1
                self._pay([entry.reference])

    def press(self) -> None:
        """Release, without any search, what just came to be in doubt; have it paid."""
        now, doubtful = time.monotonic(), self.journal.unresolved()
        fresh = [entry for entry in doubtful if now - self._pressed.setdefault(_attempt(entry), now) < DOUBTED]
        released = [entry.reference for entry in fresh if self._release(entry.reference, unseen=True)]
        self.events["released as soon as it was in doubt"] += len(released)
        self._pay(released)

    def release_in_time(self, reference: str) -> bool:
        """Release what a frozen process is paying, once its lease and a minute are over; have it paid."""
        begun, first = time.monotonic(), 0
        while time.monotonic() - begun < GIVES_UP:
            time.sleep(0.2)
            with suppress(JournalError):  # the database is down
                entry = self.journal.get(reference, self._kind)
                attempts = 0 if entry is None else entry.attempts
                first = first or attempts
                if attempts != first:
                    return False
                if entry is not None and self.unpaid([entry]) and self._release(reference):
                    self._pay([reference])
                    return True
        return False

    def release_at_last(self, references: Iterable[str]) -> None:
        """Release them two days later."""
        with self._clock.ahead(2 * A_DAY):
            for reference in references:
                end_lease(self.journal, reference)
                released = self._release(reference) or self._release(reference, unseen=True)
                self.events["released at the end"] += released

    def _attempts(self, reference: str) -> int:
        entry = self.journal.get(reference, self._kind)
        return 0 if entry is None else entry.attempts

    def unpaid(self, entries: list[JournalEntry]) -> list[JournalEntry]:
        """Return those for which the service has made nothing, apart from the prompts that the journal has."""
        made = by_order(self._payments(), {entry.reference: entry for entry in entries})

        def is_unpaid(entry: JournalEntry) -> bool:
            known = entry.transaction_ids if self._kind is EntryKind.COLLECTION else ()
            return {each.transaction_id for each in made[entry.reference]} <= set(known)

        return list(filter(is_unpaid, entries))

    def _release(self, reference: str, *, unseen: bool = False) -> bool:
        self.began[reference] = time.monotonic()
        options: dict[str, Any] = {"reference": reference, "kind": self._kind, "by": BY, "searched_elsewhere": unseen}
        try:
            self._client.payouts.release(journal=self.journal, **options)
        except MomoPayError as error:
            how = "without a search" if unseen else "with a search"
            self.events[f"client.payouts.release, {how}: {type(error).__name__}"] += 1
            return False
        return True


def _attempt(entry: JournalEntry) -> tuple[str, int]:
    return entry.reference, entry.attempts
