"""`rate=True`: the window of the rate limit, in virtual time."""

from __future__ import annotations

import json
from typing import Any, Literal

import pytest

from momopay.probe.answers import Answer
from momopay.probe.findings import Findings
from momopay.probe.window import WindowProbe
from probe.kit import Scene


@pytest.mark.parametrize("limit", [60, 20])
@pytest.mark.parametrize("window", ["fixed", "sliding"])
def test_the_window_is_found(scene: Scene, window: Literal["fixed", "sliding"], limit: int) -> None:
    scene.account.rate_limit = limit
    scene.account.switches.rate_window = window
    found = scene.probe(rate=True)
    assert found.switches["rate_window"] == window
    assert found.facts["rate_limit"] == limit
    assert found.facts["retry_after"] == "seconds"
    assert found.facts["throttled_details"] == ["limit", "remaining", "resetInSeconds"]
    assert scene.methods == {"GET"}
    assert "get 429" in scene.notes[0]


def test_without_a_limit_nothing_is_told(scene: Scene) -> None:
    scene.account.rate_limit = None
    found = scene.probe(rate=True)
    assert found.switches["rate_window"] == found.facts["rate_limit"] == "unknown"
    assert found.findings["rate_limit"].sentence == "100 requests in a row got no 429."


class Script:
    """A service that counts in its own way. Time moves by sleeping alone."""

    def __init__(self, rule: str, *, second: int = 10, stated: int | None = 60) -> None:
        self.rule = rule
        self.details = {} if stated is None else {"limit": stated}
        self.now = 1_000_020.0 + second  # a minute on the wall begins at 1,000,020
        self.hits: list[float] = []
        self.tokens = 60.0
        self.held = 0.0
        self.speed = 1.0

    def sleep(self, seconds: float) -> None:
        seconds *= self.speed
        self.now += seconds
        self.tokens = min(60.0, self.tokens + seconds)

    def hold(self, seconds: float) -> None:
        self.held = seconds

    def send(self, _method: str, _path: str) -> Answer:
        passed, reset = getattr(self, self.rule)()
        clock = f"{int(self.now // 3600 % 24):02}:{int(self.now // 60 % 60):02}:{int(self.now % 60):02}"
        date = f"Fri, 20 Nov 2026 {clock} GMT"
        if passed:
            return Answer(200, {"date": date}, b'{"success": true, "data": {}}')
        body = {"success": False, "error": {"details": self.details}}
        return Answer(429, {"date": date, "retry-after": str(reset)}, json.dumps(body).encode())

    def wall_clock(self) -> tuple[bool, int]:
        minute = self.now // 60
        self.hits = [hit for hit in self.hits if hit // 60 == minute]
        return self._take(60 - int(self.now % 60))

    def bucket(self) -> tuple[bool, int]:
        if self.tokens < 1:
            return False, 1
        self.tokens -= 1
        return True, 0

    def busy(self) -> tuple[bool, int]:
        return False, 60

    def sliding(self) -> tuple[bool, int]:
        self.hits = [hit for hit in self.hits if hit > self.now - 60]
        return self._take(int(self.hits[0] + 60 - self.now) if self.hits else 60)

    def still(self) -> tuple[bool, int]:
        self.now = 1_000_030.0
        return True, 0

    def weighted(self) -> tuple[bool, int]:
        minute, second = divmod(self.now, 60)
        before, here = (sum(hit // 60 == each for hit in self.hits) for each in (minute - 1, minute))
        if here + before * (60 - second) / 60 >= 60:
            return False, 1
        self.hits.append(self.now)
        return True, 0

    def short(self) -> tuple[bool, int]:
        self.hits = [hit for hit in self.hits if hit > self.now - 20]
        return self._take(20)

    def banned(self) -> tuple[bool, int]:
        return self._take(3600)

    def slow(self) -> tuple[bool, int]:
        self.sleep(0.55)
        self.hits = [hit for hit in self.hits if hit > self.now - 60]
        return self._take(60)

    def _take(self, reset: int) -> tuple[bool, int]:
        if len(self.hits) >= 60:
            return False, reset
        self.hits.append(self.now)
        return True, 0


@pytest.mark.parametrize(
    ("rule", "value", "sentence"),
    [
        ("wall_clock", "fixed", "60 passed again"),
        ("bucket", "unknown", "no window, but a bucket"),
        ("busy", "unknown", "throttled after a minute without a request"),
        ("weighted", "unknown", "12 passed again. Neither a fixed nor a sliding window does so"),
        ("slow", "unknown", "The requests took too long"),
        ("short", "unknown", "60 passed half a minute later"),
        ("still", "unknown", "stands still"),
        ("banned", "unknown", "a 429 asked to wait for 3600 s"),
        ("sliding", "sliding", "5 passed again"),
    ],
)
def test_other_services(rule: str, value: str, sentence: str) -> None:
    script, findings = Script(rule), Findings([])
    wire: Any = script
    WindowProbe(wire, findings).run(lambda _text: None)
    found = findings.all()["rate_window"]
    assert found.value == value
    assert sentence in found.sentence
    assert script.held == 61.0  # nobody else sends meanwhile


@pytest.mark.parametrize("stated", [60, None])
@pytest.mark.parametrize("second", [0, 12, 28, 29, 33, 52, 58, 59])
def test_a_window_by_the_clock_on_the_wall(second: int, stated: int | None) -> None:
    script, findings = Script("wall_clock", second=second, stated=stated), Findings([])
    wire: Any = script
    WindowProbe(wire, findings).run(lambda _text: None)
    found = findings.all()
    assert (found["rate_window"].value, found["rate_limit"].value) == ("fixed", 60)


def test_a_bucket_shows_no_limit() -> None:
    script, findings = Script("bucket", stated=None), Findings([])
    wire: Any = script
    WindowProbe(wire, findings).run(lambda _text: None)
    assert findings.all()["rate_limit"].value == "unknown"


@pytest.mark.parametrize(("rule", "value"), [("wall_clock", "fixed"), ("sliding", "sliding")])
@pytest.mark.parametrize("speed", [10.0, 60.0])
def test_a_service_whose_time_runs_faster(rule: str, value: str, speed: float) -> None:
    script, findings = Script(rule), Findings([])
    script.speed = speed
    wire: Any = script
    WindowProbe(wire, findings).run(lambda _text: None)
    assert findings.all()["rate_window"].value == value


@pytest.mark.parametrize(
    ("value", "style"),
    [
        ("12", "seconds"),
        ("12.5", "fractions of seconds"),
        ("Fri, 20 Nov 2026 10:00:00 GMT", "HTTP date"),
        ("soon", "neither seconds nor a date"),
        (None, "missing"),
    ],
)
def test_the_format_of_retry_after(value: str | None, style: str, monkeypatch: pytest.MonkeyPatch) -> None:
    script, findings = Script("sliding"), Findings([])
    send = script.send

    def answer(method: str, path: str) -> Answer:
        given = send(method, path)
        headers = {name: text for name, text in given.headers.items() if name != "retry-after"}
        return Answer(given.status, headers | ({"retry-after": value} if value else {}), given.body)

    monkeypatch.setattr(script, "send", answer)
    wire: Any = script
    WindowProbe(wire, findings).run(lambda _text: None)
    assert findings.all()["retry_after"].value == style
