"""A seeded storm of callbacks, genuine and not, and what is to come of it: one effect for each genuine one."""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from random import Random
from threading import Lock, Thread
from typing import Any, TypeAlias
from uuid import UUID

from momopay import Callback, CallbackSigner

Key: TypeAlias = tuple[str, str]
Deliver: TypeAlias = Callable[[str, bytes], int]
"""Hands a query and a body to an app, and gives its answer's status."""

URL = "https://shop.example/momo"
EVENTS = {
    "SUCCESS": "transaction.success",
    "FAILED": "transaction.failed",
    "CANCELLED": "transaction.cancelled",
    "EXPIRED": "transaction.expired",
    "REVERSED": "transaction.failed",
}


@dataclass(frozen=True)
class Sent:
    """One callback on its way; `key` is None where the service never sent it."""

    kind: str
    query: str
    body: bytes
    key: Key | None = None


@dataclass
class Effects:
    """A handler of either colour; it fails once on some, before it has any effect."""

    failing: set[Key]
    counted: Counter[Key] = field(default_factory=Counter[Key])
    _lock: Lock = field(default_factory=Lock)

    def handle(self, callback: Callback) -> None:
        key = (callback.transaction.id, str(callback.transaction.status))
        with self._lock:
            if key in self.failing:
                self.failing.remove(key)
                raise RuntimeError("the shop's database is away")
            self.counted[key] += 1

    async def handle_async(self, callback: Callback) -> None:
        self.handle(callback)


class Storm:
    """So many callbacks: about half genuine, the rest duplicates, forged, replayed with another reference, garbage."""

    def __init__(self, seed: int, size: int) -> None:
        self._random = Random(seed)
        self._signer = CallbackSigner("the shop's own secret")
        self._intruder = CallbackSigner("somebody else's secret")
        self.signer = CallbackSigner(["the shop's next secret", "the shop's own secret"])
        news = self._news(size // 2)
        self.genuine = {sent.key for sent in news if sent.key is not None}
        failing = self._random.sample(sorted(self.genuine), len(self.genuine) // 20)
        self.effects = Effects(set(failing))
        self.sent = self._random.sample(news, len(news))  # in any order
        makers = {self._duplicate: 5, self._forged: 3, self._replayed: 2, self._garbage: 1}
        while len(self.sent) < size:
            (make,) = self._random.choices(list(makers), list(makers.values()))
            # Near its original or far from it, before it or after it.
            place = self._random.randrange(len(self.sent))
            model = self.sent[place]
            where = place + self._random.choice([0, 1, 2, self._random.randrange(size)])
            self.sent.insert(where, make(model if model.key else self._random.choice(news)))

    def blow(
        self, connect: Callable[[], AbstractContextManager[Deliver]], workers: int = 4
    ) -> Counter[tuple[str, int]]:
        """Deliver all of it, and again what was genuine and not acknowledged; count the answers by kind."""
        waiting = deque(self.sent)
        answers = list[tuple[str, int]]()

        def work() -> None:
            with connect() as deliver:
                while waiting:
                    try:
                        sent = waiting.popleft()
                    except IndexError:
                        return
                    status = deliver(sent.query, sent.body)
                    answers.append((sent.kind, status))
                    if sent.key is not None and status != 200:
                        waiting.append(sent)

        threads = [Thread(target=work) for _ in range(workers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return Counter(answers)

    def wrong(self) -> Mapping[Key, int]:
        """Tell which effects took place too often, too seldom, or without a genuine callback."""
        counted = self.effects.counted
        return {key: counted[key] for key in self.genuine | set(counted) if counted[key] != (key in self.genuine)}

    def _news(self, size: int) -> list[Sent]:
        """Give what the service sends once: a failed payout may be told as FAILED and then as REVERSED."""
        news = list[Sent]()
        while len(news) < size:
            reference = f"{self._random.choice(['INV', 'café', 'a&b=', '₤ 5'])}-{len(news)}"
            told = self._told(reference, self._random.choice(["SUCCESS", "FAILED", "CANCELLED", "EXPIRED"]))
            news.append(self._signed("genuine", told, told))
            if told["status"] == "FAILED":
                news.append(self._signed("genuine", told, {**told, "status": "REVERSED"}))
        return news

    def _told(self, reference: str, status: str) -> dict[str, Any]:
        return {
            "id": str(UUID(int=self._random.getrandbits(128))),
            "type": "STK",
            "status": status,
            "amount": self._random.randrange(1, 10**6) / 100,
            "phone_number": "254712345678",
            "external_reference": reference,
            "created_at": "2026-01-05T09:00:00Z",
            "updated_at": "2026-01-05T09:01:00Z",
        }

    def _signed(self, kind: str, signed: Mapping[str, Any], told: Mapping[str, Any]) -> Sent:
        url = self._signer.url(URL, reference=signed["external_reference"])
        key = (str(told["id"]), str(told["status"])) if kind == "genuine" else None
        return Sent(kind, url.partition("?")[2], _body(told), key)

    def _duplicate(self, model: Sent) -> Sent:
        return Sent("duplicate", model.query, model.body, model.key)

    def _forged(self, model: Sent) -> Sent:
        told = self._altered(model)
        genuine = self._random.choice([model.query, ""])
        query = self._random.choice(
            [
                "",
                genuine[:-1] + "z",
                f"{genuine}&{genuine}",
                self._intruder.url(URL, reference=told["external_reference"]).partition("?")[2],
            ]
        )
        return Sent("forged", query, _body(told))

    def _replayed(self, model: Sent) -> Sent:
        told = self._altered(model)
        return Sent("replayed", model.query, _body({**told, "external_reference": told["external_reference"] + "0"}))

    def _garbage(self, model: Sent) -> Sent:
        return Sent("garbage", model.query, self._random.choice([b"", b"[]", model.body[:-1], b"\xff" + model.body]))

    def _altered(self, model: Sent) -> dict[str, Any]:
        """Tell something that never happened: another end of a real transaction, or one that is none."""
        told = dict(json.loads(model.body)["transaction"])
        other = self._random.choice([status for status in EVENTS if (told["id"], status) not in self.genuine])
        return (
            self._told(told["external_reference"], "SUCCESS")
            if self._random.random() < 0.5
            else told | {"status": other}
        )


def _body(told: Mapping[str, Any]) -> bytes:
    event_type = EVENTS[told["status"]]
    return json.dumps({"event": "transaction.updated", "event_type": event_type, "transaction": told}).encode()
