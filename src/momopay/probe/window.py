"""How the service counts a minute's requests, found by using them up. Times are in seconds, by the service's clock.

A few requests go first, and the rest of the limit half a minute later. A minute after the first ones, a fixed window
lets a whole limit through again, and a sliding one only as many as went first.
"""

from __future__ import annotations

from typing import Final

from momopay.probe.answers import Answer, amount_of
from momopay.probe.channels import Note
from momopay.probe.findings import UNKNOWN, Findings
from momopay.probe.reads import BALANCE, headers_about_rate
from momopay.probe.wire import THROTTLED, Wire, moment_of, pause_of, served_at

_WINDOW: Final = 61.0
_HALF: Final = 30.0
_EARLY: Final = 5
_AFTERWARDS: Final = 2 * _EARLY
_MOST: Final = 100  # requests that are sent to find the limit
_MOMENT: Final = 3.0  # a window lets nothing through after that, a bucket that fills evenly does


class UnclearError(Exception):
    """The window cannot be told; the message says why."""


class WindowProbe:
    """One attempt at the limit."""

    def __init__(self, wire: Wire, findings: Findings) -> None:
        self._wire = wire
        self._findings = findings
        self._speed = 1.0  # of the service's clock: a sandbox may run faster than this machine

    def run(self, note: Note) -> None:
        """Find the limit and the window."""
        note(
            "Using up a minute's requests of this key, for about three minutes: until a minute after it, other programs"
            " with the key get 429."
        )
        try:
            self._find()
        except UnclearError as error:
            self._findings.add("rate_window", UNKNOWN, str(error))
        finally:
            self._wire.hold(_WINDOW)

    def _find(self) -> None:
        begun = self._wait_for_an_empty_window()
        self._send(_EARLY - 1, must_pass=True)
        self._sleep(_HALF)
        passed, refused = self._send(_MOST)
        if refused is None:
            self._findings.add("rate_limit", UNKNOWN, f"{_MOST} requests in a row got no 429.")
            raise UnclearError(f"{_MOST} requests in a row got no 429.")
        self._note_refusal(refused, passed + _EARLY)
        spent = self._check_for_a_bucket(pause_of(refused))
        since = (served_at(refused) or 0.0) - (served_at(begun) or 0.0) if served_at(refused) else _HALF
        if since > _WINDOW - 2 * _MOMENT:
            raise UnclearError("The requests took too long: the window was over before the limit was reached.")
        self._sleep(_WINDOW - since - _MOMENT + 1)
        again, last = self._send(_AFTERWARDS)
        # Otherwise, requests that did not count may have been in an earlier window, or in one shorter than a minute.
        is_a_minute = since + (pause_of(refused) or 0) >= _WINDOW - _MOMENT
        if not again and last is not None:
            is_a_minute = True
            # A window by the clock on the wall ends when it says, and not a minute after the first request.
            pause = pause_of(last) or _WINDOW
            if pause > _WINDOW + _MOMENT:  # to wait for an hour would show nothing about a minute
                raise UnclearError(f"A minute after the first requests, a 429 asked to wait for {pause:g} s.")
            self._sleep(pause + 1)
            again, last = self._send(_AFTERWARDS)
            if again < _AFTERWARDS:
                raise UnclearError("A minute after the first requests, none passed.")
        if last is None:
            # A window that weighs the last minute lets some through. Only a fixed one lets everything through.
            more, last = self._send(_MOST - again)
            again += more + spent
        self._conclude(passed, again, last or refused, is_a_minute=is_a_minute)

    def _check_for_a_bucket(self, pause: float | None) -> int:
        """Raise if requests trickle through in the next moments, as they do in no window; return how many passed."""
        count, moment = 1, _MOMENT
        if pause is not None and pause <= _MOMENT:
            # A window by the clock on the wall may end just now, and then lets everything through.
            count, moment = _AFTERWARDS, pause + 1
        self._sleep(moment)
        passed, _ = self._send(count)
        if passed > 0 and (count == 1 or passed < count):
            raise UnclearError(
                f"{passed} of {count} requests passed {moment:g} s after a 429: no window, but a bucket."
            )
        return passed

    def _conclude(self, passed: int, again: int, answer: Answer, *, is_a_minute: bool) -> None:
        stated = _limit_of(answer)
        # Without a stated limit: a window by the clock on the wall may have ended between the first ones and the rest.
        limit = min(passed + _EARLY, again) if stated is None and again >= _AFTERWARDS else stated or passed + _EARLY
        is_whole = passed + _EARLY <= limit
        sentence = (
            f"{_EARLY} requests went first, and {passed} passed half a minute later. When the first were a minute old,"
            f" {again} passed again."
        )
        value = UNKNOWN
        if again <= _EARLY + 1 and is_whole:
            value = "sliding"
        elif again >= limit and (is_whole or is_a_minute):
            value = "fixed"
        shown = sentence if value != UNKNOWN else f"{sentence} Neither a fixed nor a sliding window does so."
        self._findings.add("rate_window", value, shown, answer)
        if value != UNKNOWN:
            self._findings.add("rate_limit", limit, f"{sentence} The 429 states {stated or 'no limit'}.", answer)

    def _note_refusal(self, refused: Answer, passed: int) -> None:
        stated = _limit_of(refused)
        limit = UNKNOWN if stated is None else stated  # what passed may be more than the limit of a window
        sentence = (
            f"{passed} requests passed before a 429, which states {stated if stated is not None else 'no limit'}."
        )
        self._findings.add("rate_limit", limit, sentence, refused)
        value = refused.headers.get("retry-after")
        style = "missing" if value is None else _style_of(value.strip())
        self._findings.add("retry_after", style, f"The Retry-After header of a 429: {style}.", refused)
        names = sorted(refused.details)
        self._findings.add("throttled_details", names, f"The details of a 429: {', '.join(names) or 'none'}.", refused)
        headers = headers_about_rate([refused])
        sentence = f"The headers of a 429 about the limit: {', '.join(headers) or 'none'}."
        self._findings.add("throttled_headers", headers, sentence, refused)

    def _wait_for_an_empty_window(self) -> Answer:
        """Let a minute pass, and return the answer to the first request after it."""
        before = self._send_one()
        self._wire.sleep(_WINDOW)
        after = self._send_one()
        if after.status == THROTTLED:
            raise UnclearError("The key was throttled after a minute without a request of this program.")
        then, now = served_at(before), served_at(after)
        if then is not None and now is not None:
            speed = (now - then) / _WINDOW
            if speed < 1 / _WINDOW:
                raise UnclearError("The service's clock stands still.")
            # Date has whole seconds, so a clock that runs as fast as this one may seem to differ by two of them.
            if abs(now - then - _WINDOW) > 4:  # noqa: PLR2004  with the time of the requests
                self._speed = speed
        return after

    def _send(self, count: int, *, must_pass: bool = False) -> tuple[int, Answer | None]:
        """Send until a 429; return how many passed, and that 429 if it came."""
        for passed in range(count):
            answer = self._send_one()
            if answer.status == THROTTLED:
                if must_pass:
                    raise UnclearError("Other programs use the key: the limit was reached too early.")
                return passed, answer
        return count, None

    def _send_one(self) -> Answer:
        answer = self._wire.send("GET", BALANCE)
        if not answer.is_success and answer.status != THROTTLED:
            raise UnclearError(f"A request of the burst got {answer.summary}.")
        return answer

    def _sleep(self, seconds: float) -> None:
        self._wire.sleep(seconds / self._speed)


def _limit_of(refused: Answer) -> int | None:
    stated = refused.details.get("limit")
    return stated if isinstance(stated, int) and not isinstance(stated, bool) else None


def _style_of(retry_after: str) -> str:
    if retry_after.isdigit():
        return "seconds"
    if amount_of(retry_after) is not None:
        return "fractions of seconds"
    return "neither seconds nor a date" if moment_of(retry_after) is None else "HTTP date"
