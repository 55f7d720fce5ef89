"""A seeded storm of callbacks, genuine and not: one effect for each genuine one. Without a safety the check fails."""

import json
import logging
import os
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random, SystemRandom
from threading import Lock
from typing import Any, TypeAlias
from uuid import UUID

import pytest

from durable.receiving import ConfirmingService, awaited, blocking
from journal.database_kit import in_threads
from models.kit import STATED
from momopay import CallbackSigner, Journal, Payment
from test_callbacks import EVENT_OF

Key: TypeAlias = tuple[str, str]
URL = "https://shop.example/momo"
EVENTS = EVENT_OF | {"REVERSED": "transaction.failed"}


@dataclass(frozen=True)
class Sent:
    """One callback on its way; `key` is None where the service never sent it."""

    kind: str
    query: str
    body: bytes
    key: Key | None = None


@dataclass
class Effects:
    """A sync and an async handler; it fails once for some callbacks, before it has any effect."""

    failing: set[Key]
    counted: Counter[Key] = field(default_factory=Counter[Key])
    _lock: Lock = field(default_factory=Lock)

    def handle(self, payment: Payment) -> None:
        key = (payment.transaction_id, str(payment.status))
        with self._lock:
            if key in self.failing:
                self.failing.remove(key)
                raise RuntimeError("the shop's database is away")
            self.counted[key] += 1

    async def handle_async(self, payment: Payment) -> None:
        self.handle(payment)


class HonestService(ConfirmingService):
    """A service whose record says only what genuine callbacks said; a payout that was reversed stays so."""

    def __init__(self, genuine: set[Key]) -> None:
        super().__init__()
        self._genuine = genuine
        self._reversed = set[str]()
        self._lock = Lock()

    def believe(self, body: bytes) -> None:
        with suppress(ValueError, KeyError, TypeError), self._lock:
            stated = json.loads(body)["transaction"]
            identity, status = stated["id"], stated["status"]
            if (identity, status) not in self._genuine or identity in self._reversed:
                return
            if status == "REVERSED":
                self._reversed.add(identity)
            super().believe(body)


class Storm:
    """Callbacks: about half are genuine; the others are duplicates, forged, replayed for another reference, garbage."""

    def __init__(self, seed: int, size: int) -> None:
        self._random = Random(seed)
        self._signer = CallbackSigner("the shop's own secret")
        self._intruder = CallbackSigner("somebody else's secret")
        self.signer = CallbackSigner(["the shop's next secret", "the shop's own secret"])
        originals = self._originals(size // 2)
        self.genuine = {sent.key for sent in originals if sent.key is not None}
        failing = self._random.sample(sorted(self.genuine), len(self.genuine) // 20)
        self.effects = Effects(set(failing))
        self.service = HonestService(self.genuine)
        self.sent = self._random.sample(originals, len(originals))  # in any order
        makers = {self._duplicate: 5, self._forged: 3, self._replayed: 2, self._garbage: 1}
        while len(self.sent) < size:
            (make,) = self._random.choices(list(makers), list(makers.values()))
            # Near its original or far from it, before it or after it.
            place = self._random.randrange(len(self.sent))
            model = self.sent[place]
            where = place + self._random.choice([0, 1, 2, self._random.randrange(size)])
            self.sent.insert(where, make(model if model.key else self._random.choice(originals)))

    def blow(self, receive: Callable[..., int], workers: int = 4) -> Counter[tuple[str, int]]:
        """Deliver all, and again what was genuine and not acknowledged; return the count of each kind and status."""
        waiting = deque(self.sent)
        responses = list[tuple[str, int]]()

        def work() -> None:
            while waiting and len(responses) < 5 * len(self.sent):  # a service that contradicts itself never ends it
                try:
                    sent = waiting.popleft()
                except IndexError:
                    return
                status = receive(sent.query, sent.body)
                responses.append((sent.kind, status))
                if sent.key is not None and status != 200:
                    waiting.append(sent)

        in_threads(workers, work)
        return Counter(responses)

    def wrong(self) -> Mapping[Key, int]:
        """Return the effects that took place too often, too seldom, or without a genuine callback.

        FAILED may stay without one if REVERSED, which outranks it, was handled first; and never comes after it.
        """
        counted, order = self.effects.counted, list(self.effects.counted)
        wrong = {key: counted[key] for key in self.genuine | set(counted) if counted[key] != (key in self.genuine)}
        for identity, status in self.genuine:
            failed, reversed_ = (identity, "FAILED"), (identity, "REVERSED")
            if status == "REVERSED" and counted[reversed_] == 1:
                if failed not in counted:
                    wrong.pop(failed, None)
                elif order.index(failed) > order.index(reversed_):
                    wrong[failed] = counted[failed]
        return wrong

    def _originals(self, size: int) -> list[Sent]:
        """Return what the service sends once: a failed payout may be reported as FAILED and then as REVERSED."""
        originals = list[Sent]()
        while len(originals) < size:
            reference = f"{self._random.choice(['INV', 'café', 'a&b=', '₤ 5'])}-{len(originals)}"
            stated = self._stated(reference, self._random.choice(["SUCCESS", "FAILED", "CANCELLED", "EXPIRED"]))
            originals.append(self._signed("genuine", stated, stated))
            if stated["status"] == "FAILED":
                originals.append(self._signed("genuine", stated, {**stated, "status": "REVERSED"}))
        return originals

    def _stated(self, reference: str, status: str) -> dict[str, Any]:
        identity, amount = str(UUID(int=self._random.getrandbits(128))), self._random.randrange(1, 10**6) / 100
        return STATED | {"id": identity, "status": status, "amount": amount, "external_reference": reference}

    def _signed(self, kind: str, signed: Mapping[str, Any], stated: Mapping[str, Any]) -> Sent:
        url = self._signer.url(URL, reference=signed["external_reference"])
        key = (str(stated["id"]), str(stated["status"])) if kind == "genuine" else None
        return Sent(kind, url.partition("?")[2], _body(stated), key)

    def _duplicate(self, model: Sent) -> Sent:
        return Sent("duplicate", model.query, model.body, model.key)

    def _forged(self, model: Sent) -> Sent:
        stated = self._altered(model)
        genuine = self._random.choice([model.query, ""])
        intruders = self._intruder.url(URL, reference=stated["external_reference"]).partition("?")[2]
        query = self._random.choice(["", genuine[:-1] + "z", f"{genuine}&{genuine}", intruders])
        return Sent("forged", query, _body(stated))

    def _replayed(self, model: Sent) -> Sent:
        stated = self._altered(model)
        stated["external_reference"] += "0"
        return Sent("replayed", model.query, _body(stated))

    def _garbage(self, model: Sent) -> Sent:
        return Sent("garbage", model.query, self._random.choice([b"", b"[]", model.body[:-1], b"\xff" + model.body]))

    def _altered(self, model: Sent) -> dict[str, Any]:
        """Return what never happened: another end of a real transaction, or an unknown transaction."""
        stated = dict(json.loads(model.body)["transaction"])
        other = self._random.choice([status for status in EVENTS if (stated["id"], status) not in self.genuine])
        unknown = self._stated(stated["external_reference"], "SUCCESS")
        return self._random.choice([unknown, stated | {"status": other}])


def _body(stated: Mapping[str, Any]) -> bytes:
    event_type = EVENTS[stated["status"]]
    return json.dumps({"event": "transaction.updated", "event_type": event_type, "transaction": stated}).encode()


SEED = int(os.environ.get("MOMOPAY_SEED") or SystemRandom().randrange(2**32))


MANY = int(os.environ.get("MOMOPAY_STORM") or 100_000)
ways = pytest.mark.parametrize("way", [blocking, awaited])


@pytest.fixture
def seed(caplog: pytest.LogCaptureFixture) -> int:
    caplog.set_level(logging.CRITICAL, "momopay")  # each callback that is refused is logged there
    print(f"MOMOPAY_SEED={SEED}")  # noqa: T201  what replays a failure
    return SEED


def run(storm: Storm, way: Any, journal: Journal) -> None:
    begun = time.perf_counter()
    statuses = storm.blow(way(storm.effects, storm.signer, journal, service=storm.service))
    seconds = time.perf_counter() - begun
    print(f"{len(storm.sent)} callbacks, {len(storm.genuine)} genuine, in {seconds:.0f} s: {sorted(statuses.items())}")  # noqa: T201  the report
    assert storm.wrong() == {}
    by_kind = {kind: {status for of, status in statuses if of == kind} for kind, _ in statuses}
    assert by_kind["forged"] == by_kind["replayed"] == {403}
    assert by_kind["garbage"] == {400}
    assert by_kind["genuine"] | by_kind["duplicate"] <= {200, 500, 503}


@ways
@pytest.mark.parametrize("size", [700, pytest.param(MANY, marks=pytest.mark.campaign)])
def test_each_genuine_callback_has_one_effect(way: Any, seed: int, journal: Journal, size: int) -> None:
    run(Storm(seed, size), way, journal)


@ways
def test_the_check_fails_without_a_signer_and_without_a_journal(way: Any, seed: int, journal: Journal) -> None:
    storm = Storm(seed, 200)
    # Of a service that confirms whatever a callback says; one at a time, or the next one changes what it confirms.
    storm.blow(way(storm.effects, None, journal), workers=1)
    assert set(storm.wrong()) - storm.genuine
    assert {count for key, count in storm.effects.counted.items() if key in storm.genuine} == {1}
    storm = Storm(seed, 500)
    storm.blow(way(storm.effects, storm.signer, None, service=storm.service))
    assert set(storm.wrong()) <= storm.genuine
    assert max(storm.wrong().values()) > 1
