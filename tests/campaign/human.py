"""The person who looks after what is in doubt: one who reads the service's ledger first, and one who does not.

The careful one may do anything that the ledger allows. The careless one trusts `client.payouts.release`, which must
keep her from every payout that the list shows or may yet show.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from campaign.clocks import A_DAY, Clock, end_lease
from campaign.settings import Note
from campaign.storm import Service
from momopay import Client, Journal, JournalEntry, JournalError, MomoPayError
from momopay.journal.journal import parts_of

WAITS = 2.5
"""Seconds for which something is in doubt before the careful one acts: what is still under way has come by then."""
GIVES_UP = 12.0
"""Seconds after which she leaves a payout whose release is refused."""
HASTY = 6.0
"""Seconds for which the careless one tries to release what a dead process was paying: less than its lease and a minute,
which are 7.5 s here, and longer than a list may lag."""
DOUBTED = 3.5
"""Seconds for which the hasty one tries to release what just came to be in doubt. A call takes 3.6 s at most, so this
too is over before 7.5 s."""
BY = "the campaign's human"


class Doubts:
    """Remembers when each attempt was first seen in doubt.

    An attempt may be executed a moment after its call has ended. So the time counts anew with each attempt, also if
    somebody released the reference, and attempted it again, between two looks.
    """

    def __init__(self) -> None:
        self._since: dict[tuple[str, int], float] = {}

    def older_than(self, seconds: float, entries: Iterable[JournalEntry]) -> list[JournalEntry]:
        """Return, of the entries that are in doubt now, those that have been for so long, by reference."""
        now = time.monotonic()
        doubtful = {(entry.reference, entry.attempts): entry for entry in entries}
        self._since = {attempt: self._since.get(attempt, now) for attempt in doubtful}
        return [doubtful[attempt] for attempt in sorted(doubtful) if now - self._since[attempt] >= seconds]


class Human:
    """Releases payouts, and has `pay` pay what was released."""

    def __init__(
        self, service: Service, journal: Journal, client: Client, clock: Clock, pay: Callable[[str], object]
    ) -> None:
        self.events: Counter[str] = Counter()
        self.began: dict[str, float] = {}
        """When each release began, by the clock of the payments."""
        self._service = service
        self.journal = journal
        self._client = client
        self._clock = clock
        self._pay = pay
        self._doubts = Doubts()
        self._dead: dict[str, float] = {}
        self._pressed: dict[tuple[str, int], float] = {}
        """Since when each attempt is known to be in doubt."""
        self._died_at: dict[str, int] = {}
        """The number of the attempt at which a process died."""

    def look(self) -> None:
        """Release what was in doubt for long and, by the ledger, was not paid; have it paid."""
        paid = self.paid()
        doubtful = self._doubts.older_than(WAITS, self.journal.unresolved())
        due = [entry for entry in doubtful if entry.reference not in paid and self._may_release(entry)]
        for entry in due[:3]:
            reference = entry.reference
            # To pay the one before took seconds, in which somebody may have attempted this one.
            if self._attempts(reference) != entry.attempts or reference in self.paid():
                continue
            if self._release(reference) or self._release_unseen(reference):
                self.events["released after a look into the ledger"] += 1
                self._pay(reference)

    def hear_of_death(self, note: Note) -> None:
        """Take up the payout of a process that died."""
        self._died_at.pop(note.reference, None)
        self._dead[note.reference] = time.monotonic()

    def hurry(self) -> None:
        """Release, without a look into the ledger, what dead processes were paying; have it paid."""
        for reference, since in list(self._dead.items()):
            attempts = self._attempts(reference)
            # What somebody attempted since is no dead process's payout any more.
            if time.monotonic() - since > HASTY or attempts != self._died_at.setdefault(reference, attempts):
                del self._dead[reference]
            elif self._release(reference):
                del self._dead[reference]
                self.events["released as soon as it could be"] += 1
                self._pay(reference)

    def press(self) -> None:
        """Release, without any search, what just came to be in doubt; have it paid."""
        now, doubtful = time.monotonic(), self.journal.unresolved()
        fresh = [
            entry.reference
            for entry in doubtful
            if now - self._pressed.setdefault((entry.reference, entry.attempts), now) < DOUBTED
        ]
        released = [reference for reference in fresh if self._release_unseen(reference)]
        self.events["released as soon as it was in doubt"] += len(released)
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(self._pay, released))

    def release_in_time(self, reference: str) -> bool:
        """Release what a frozen process is paying, once its lease and a minute are over; have it paid."""
        begun, first = time.monotonic(), 0
        while time.monotonic() - begun < GIVES_UP:
            time.sleep(0.2)
            with suppress(JournalError):  # the database is down
                attempts = self._attempts(reference)
                first = first or attempts
                if attempts != first:
                    return False
                if reference not in self.paid() and self._release(reference):
                    self._pay(reference)
                    return True
        return False

    def release_early(self, reference: str) -> bool:
        """Release it while its payer's deadline is not over, as if the database's clock had jumped; have it paid."""
        end_lease(self.journal, reference)
        released = reference not in self.paid() and self._release(reference)
        if released:
            self._pay(reference)
        return released

    def release_carelessly(self, references: Iterable[str], *, look: bool) -> list[str]:
        """Release without the ledger, an hour later, with or without a search; return what was released."""
        release = self._release if look else self._release_unseen
        done: list[str] = []
        for reference in references:
            end_lease(self.journal, reference)
            if release(reference):
                done.append(reference)
        how = "released by the list alone" if look else "released without a look, then found by the search"
        self.events[how] += len(done)
        return done

    def release_unpaid(self) -> list[str]:
        """Release all that is in doubt and, by the ledger, was not paid; two days later. Return what was released."""
        paid = self.paid()
        unpaid = [entry.reference for entry in self.journal.unresolved() if entry.reference not in paid]
        with self._clock.ahead(2 * A_DAY):
            for reference in unpaid:
                end_lease(self.journal, reference)
                if not self._release(reference):
                    self._release_unseen(reference)
        self.events["released at the end"] += len(unpaid)
        return unpaid

    def _may_release(self, entry: JournalEntry) -> bool:
        """Return whether the lease of its last attempt, and a minute, are over."""
        return parts_of(self.journal).store.seconds_to_release(entry) <= 0

    def _attempts(self, reference: str) -> int:
        entry = self.journal.get(reference)
        return 0 if entry is None else entry.attempts

    def paid(self) -> set[str]:
        return {payment.reference for payment in self._service.payments()}

    def _release(self, reference: str, *, unseen: bool = False) -> bool:
        self.began[reference] = time.monotonic()
        try:
            self._client.payouts.release(journal=self.journal, reference=reference, by=BY, searched_elsewhere=unseen)
        except MomoPayError as error:
            how = "without a search" if unseen else "with a search"
            self.events[f"client.payouts.release, {how}: {type(error).__name__}"] += 1
            return False
        return True

    def _release_unseen(self, reference: str) -> bool:
        return self._release(reference, unseen=True)
