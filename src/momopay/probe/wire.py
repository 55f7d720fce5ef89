"""Raw requests with a client's connections, key and rate budget. The SDK's own calls would hide what is asked about."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlencode, urlsplit

import momopay
from momopay._core.operation import run_sync
from momopay._core.session import Session
from momopay._ratelimit.budget import Lane
from momopay._transport import NoResponseError, Progress
from momopay._transport.sync_backend import SyncBackend
from momopay.errors import APIConnectionError, InvalidApiKeyError
from momopay.probe.answers import THROTTLED, UNAUTHORIZED, Answer, amount_of

WINDOW: Final = 61.0  # seconds: the service page, "Limits", and one for the clocks
_LONGEST_WAIT: Final = 180.0  # seconds to wait for a slot of the rate budget
_LONGEST_PAUSE: Final = 90.0  # seconds to wait after a 429
_ATTEMPTS: Final = 3
_BACKOFF: Final = 2.0  # seconds


class Wire:
    """Sends the probe's requests. Times are in seconds."""

    def __init__(self, client: momopay.Client) -> None:
        # The one place that reaches into a client: what it was configured with is to hold here too.
        session: Session[SyncBackend] = client._session  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
        self._session = session
        self._passed = ""  # what could be read last
        self._is_failing = False
        self.reads: list[Answer] = []
        self.host: str = urlsplit(session.account.base_url).hostname or ""
        self.key: str = session.account.api_key

    def get(self, path: str, **query: str) -> Answer:
        """Read, again after a 5xx or without an answer; `path` is relative to the base address.

        A failure or a 401 that is returned is the answer to this request: something else could be read just now, or
        nothing could be read yet.
        """
        target = path + (f"?{urlencode(query)}" if query else "")
        answer = self._within_budget("GET", target)
        attempts = 1
        # A service that fails at one question after the other is not asked three times about each.
        while answer.is_failure and attempts < _ATTEMPTS and not self._is_failing:
            self.sleep(_BACKOFF * attempts)
            answer = self._within_budget("GET", target)
            attempts += 1
        self._is_failing = answer.is_failure
        if answer.is_success and answer.envelope:
            self._passed = target
        self._check(answer)
        return answer

    def change(self, method: str, path: str, body: Mapping[str, object] | None = None) -> Answer:
        """Send a request that changes something, once."""
        answer = self._within_budget(method, path, body)
        self._check(answer)
        return answer

    def send(self, method: str, path: str, body: Mapping[str, object] | None = None) -> Answer:
        """Send a request at once, whatever the budget says."""
        session = self._session
        content = None if body is None else json.dumps(body).encode()
        progress = None if method == "GET" else Progress()
        url, timeout = session.account.base_url + path, session.limits.timeout
        sending = session.backend.send(method, url, session.headers, content, timeout=timeout, progress=progress)
        try:
            raw = run_sync(sending)
        except NoResponseError:
            answer = Answer(None)
        else:
            answer = Answer(raw.status, raw.headers, raw.body)
        if method == "GET":
            self.reads.append(answer)
        return answer

    def sleep(self, seconds: float) -> None:
        """Wait."""
        run_sync(self._session.backend.sleep(seconds))

    def hold(self, seconds: float) -> None:
        """Have everybody who shares the rate budget wait so long."""
        if self._session.limiter is not None:
            run_sync(self._session.limiter.pause(seconds))

    def _within_budget(self, method: str, path: str, body: Mapping[str, object] | None = None) -> Answer:
        """Send a request in a slot of the rate budget, and again if another program used up what the key has."""
        limiter, name = self._session.limiter, f"{method} {path.partition('?')[0]}"
        for _ in range(2):
            if limiter is not None:
                latest = self._session.backend.now() + _LONGEST_WAIT
                run_sync(limiter.acquire(Lane.READ, latest=latest, describe=lambda: name))
            answer = self.send(method, path, body)
            # Not to wait would leave what comes next undone, such as the deletion of the probe's channel.
            pause = pause_of(answer) or WINDOW
            if answer.status != THROTTLED or pause > _LONGEST_PAUSE:
                break
            self.hold(pause)
            if limiter is None:
                self.sleep(pause)
        return answer

    def _check(self, answer: Answer) -> None:
        """Raise if nothing can be read any more: then an answer says nothing about what was asked."""
        if not self._passed or not (answer.is_failure or answer.status == UNAUTHORIZED):
            return
        control = self._within_budget("GET", self._passed)
        if control.status == UNAUTHORIZED:
            raise key_refused(control)
        if control.is_failure:
            raise APIConnectionError(f"the service does not answer any more ({control.summary})")


def key_refused(answer: Answer) -> InvalidApiKeyError:
    """Return the error for a key that nothing can be read with."""
    code = answer.code or "INVALID_API_KEY"
    return InvalidApiKeyError(
        "the service refused the key", code=code, status_code=UNAUTHORIZED, request_id=answer.request_id
    )


def pause_of(answer: Answer) -> float | None:
    """Return the seconds that a 429 asks for, None if it names none."""
    stated = (answer.details.get("resetInSeconds"), answer.headers.get("retry-after"))
    seconds = [float(amount) for amount in map(amount_of, stated) if amount is not None and amount >= 0]
    return max(seconds, default=None)
