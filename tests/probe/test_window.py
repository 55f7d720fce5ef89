"""`rate=True`: the window of the rate limit, in virtual time."""

from typing import Literal

import httpx
import pytest

from in_turn import in_turn
from momopay import Client, RateBudget
from momopay.probe import Profile, probe
from momopay.types import Lane
from probe.kit import OtherTime, Scene, error_response
from probe.other_service import OtherService
from virtual import install_backend

pytestmark = pytest.mark.usefixtures("few_requests")


@pytest.mark.parametrize(("window", "limit"), [("fixed", 30), ("sliding", 20)])
def test_the_window_is_found(scene: Scene, window: Literal["fixed", "sliding"], limit: int) -> None:
    scene.account.rate_limit = limit
    scene.account.switches.rate_window = window
    scene.account.switches.rate_limit_code = "RATE_LIMITED" if window == "fixed" else "HTTP_429"
    budget = RateBudget()
    scene.client = scene.client.with_options(budget=budget)
    found = scene.probe(rate=True)
    assert (found.switches["rate_window"], found.facts["rate_limit"]) == (window, limit)
    assert found.switches["rate_limit_code"] == scene.account.switches.rate_limit_code
    assert (found.facts["retry_after"], scene.methods, "get 429" in scene.notes[0]) == ("text", {"GET"}, True)
    assert budget.reserve(scene.time.now(), Lane.PAYMENT) > 60, "whoever shares the budget waits"


def test_without_a_limit_nothing_is_told(scene: Scene) -> None:
    scene.account.rate_limit = None
    found = scene.probe(rate=True)
    assert found.switches["rate_window"] == found.facts["rate_limit"] == "unknown"
    assert found.findings["rate_window"].sentence == "100 requests in a row got no 429."


LIMIT = 15


class Counting(OtherService):
    """A service that counts the requests of the burst in its own way. Time moves by sleeping alone."""

    def __init__(self, rule: str, *, second: int = 10, stated: int | None = LIMIT) -> None:
        super().__init__()
        self.rule = rule
        self.details = {} if stated is None else {"limit": stated}
        self.now = 1_000_020.0 + second  # a minute on the wall begins at 1,000,020
        self.hits: list[float] = []
        self.tokens = float(LIMIT)
        self.is_counting = False

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.tokens = min(float(LIMIT), self.tokens + seconds)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        passed, reset = getattr(self, self.rule)() if self.is_counting else (True, 0)
        if passed:
            return super().handle_request(request)
        refused = error_response(429, "RATE_LIMIT_EXCEEDED").json()
        refused["error"]["details"] = self.details
        return httpx.Response(429, json=refused, headers={"retry-after": str(reset)})

    def wall_clock(self) -> tuple[bool, int]:
        self.hits = [hit for hit in self.hits if hit // 60 == self.now // 60]
        return self._take(60 - int(self.now % 60))

    def sliding(self) -> tuple[bool, int]:
        self.hits = [hit for hit in self.hits if hit > self.now - 60]
        return self._take(int(self.hits[0] + 60 - self.now) if self.hits else 60)

    def banned(self) -> tuple[bool, int]:
        return self._take(3600)

    def bucket(self) -> tuple[bool, int]:
        if self.tokens < 1:
            return False, 1
        self.tokens -= 1
        return True, 0

    def busy(self) -> tuple[bool, int]:
        return False, 60

    def failing(self) -> tuple[bool, int]:
        raise httpx.ConnectError("gone")

    def _take(self, reset: int) -> tuple[bool, int]:
        if len(self.hits) >= LIMIT:
            return False, reset
        self.hits.append(self.now)
        return True, 0


def found_of(service: Counting) -> Profile:
    def note(_text: str) -> None:
        service.is_counting = True

    with Client("pk_test_x", base_url="https://api.example/v1", budget=None) as client:
        install_backend(client, OtherTime(service, service.sleep))
        return probe(client, rate=True, note=note)


@in_turn(
    ("rule", "seen", "sentence"),
    [
        ("wall_clock", "fixed", f"and {LIMIT} after"),
        ("sliding", "sliding", "and 5 after"),
        ("bucket", None, "The first 5 requests did not count any more"),
        ("busy", None, "the limit was reached too early"),
        ("banned", None, "a 429 asked to wait for 3600 s"),
        ("failing", None, "A request of the burst got no answer"),
    ],
)
def test_other_services(rule: str, seen: str | None, sentence: str) -> None:
    found = found_of(Counting(rule)).findings["rate_window"]
    assert (found.seen, sentence.lower() in found.sentence.lower()) == (seen, True)
    if seen is None:  # what is no such window shows no limit
        assert found_of(Counting(rule, stated=None)).facts["rate_limit"] == "unknown"


@in_turn("stated", [LIMIT, None])
@in_turn("second", [0, 12, 28, 29, 33, 52, 58, 59])
def test_a_window_by_the_clock_on_the_wall_is_never_another_one(second: int, stated: int | None) -> None:
    found = found_of(Counting("wall_clock", second=second, stated=stated))
    # It may end between the first requests and the rest; without a stated limit, that cannot be seen.
    assert found.switches["rate_window"] in ({"fixed", "unknown"} if stated is None else {"fixed"})
    assert found.facts["rate_limit"] in {LIMIT, found.switches["rate_window"]}
