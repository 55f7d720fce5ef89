"""Finds out how the service counts a minute's requests, by using them up. Times are in seconds.

It sends a few requests, and the rest of the limit half a minute later. Once requests pass again, a fixed window lets a
whole limit through, and a sliding one only as many as were sent first.
"""

from __future__ import annotations

from typing import Final

from momopay._core.response import http_date
from momopay.probe.channels import Note
from momopay.probe.profile import Findings
from momopay.probe.reads import BALANCE
from momopay.probe.wire import THROTTLED, WINDOW, Answer, Wire, amount_of, pause_of

_HALF: Final = 30.0
_EARLY: Final = 5
_MOST: Final = 100  # requests that are sent to find the limit


class _UnclearError(Exception):
    """The window could not be found; the message says why."""


def ask_for_window(wire: Wire, findings: Findings, note: Note) -> None:
    """Find the limit and the window."""
    what = "Using up a minute's requests of this key, for three to six minutes"
    note(f"{what}: until a minute after it, other programs with the key get 429.")
    try:
        _find(wire, findings)
    except _UnclearError as error:
        findings.add("rate_window", None, sentence=str(error))
    finally:
        wire.hold(WINDOW)


def _find(wire: Wire, findings: Findings) -> None:
    for _ in range(2):
        wire.sleep(WINDOW)  # so that the window is empty
        _, refused = _send(wire, _EARLY)
        if refused is not None:
            raise _UnclearError("Other programs use the key: the limit was reached too early.")
        wire.sleep(_HALF)
        passed, refused = _send(wire, _MOST)
        if refused is None:
            raise _UnclearError(f"{_MOST} requests in a row got no 429.")
        stated = _look_at_refusal(findings, refused)
        pause = pause_of(refused) or WINDOW - _HALF
        if pause > WINDOW:  # waiting for an hour would show nothing about a minute
            raise _UnclearError(f"A 429 asked to wait for {pause:g} s.")
        wire.sleep(pause + 1)
        if stated is None or passed + _EARLY <= stated:
            return _conclude(wire, findings, passed, pause, stated or passed + _EARLY)
        # A window that follows the wall clock may have ended in between. The next attempt begins with a new one.
    raise _UnclearError(f"The first {_EARLY} requests did not count any more half a minute later.")


def _conclude(wire: Wire, findings: Findings, passed: int, pause: float, limit: int) -> None:
    again, refused = _send(wire, _MOST)
    # If requests pass before the first ones are a minute old, it is a token bucket, which fills evenly.
    is_a_minute = _HALF + pause >= WINDOW - 3
    value = "fixed" if again >= limit else "sliding" if is_a_minute and again <= _EARLY + 1 else "neither"
    sentence = f"{_EARLY} requests, then {passed} after {_HALF:g} s, and {again} after {pause:g} s more passed."
    answers = [] if refused is None else [refused]
    findings.add("rate_window", value if again else None, *answers, sentence=sentence)
    if value != "neither":
        findings.add("rate_limit", limit, *answers, sentence=sentence)


def _look_at_refusal(findings: Findings, refused: Answer) -> int | None:
    """Record what a 429 says, and return the limit that it states."""
    stated = refused.details.get("limit")
    limit = stated if isinstance(stated, int) else None
    findings.add("rate_limit", limit, refused)
    value = refused.headers.get("retry-after", "").strip()
    style = "missing" if not value else "seconds" if value.isdigit() else "fractions of seconds"
    if value and amount_of(value) is None:
        style = "neither seconds nor a date" if http_date(value) is None else "HTTP date"
    findings.add("retry_after", style, refused)
    return limit


def _send(wire: Wire, count: int) -> tuple[int, Answer | None]:
    """Send up to `count` requests until a 429; return how many passed, and the 429 if there was one."""
    for passed in range(count):
        answer = wire.send("GET", BALANCE, at_once=True)
        if answer.status == THROTTLED:
            return passed, answer
        if not answer.is_success:
            raise _UnclearError(f"A request of the burst got {answer.summary}.")
    return count, None
