"""Raw requests with a client's connections, key and rate budget. The SDK's own calls would hide what is asked about."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote, urlencode, urlsplit

import momopay
from momopay._core.operation import run_sync
from momopay._core.response import http_date
from momopay._core.session import Session
from momopay._ratelimit.budget import Lane
from momopay._transport import NoResponseError, NotSentError, Progress
from momopay._transport.sync_backend import SyncBackend
from momopay.errors import APIConnectionError, InvalidApiKeyError
from momopay.probe.answers import Answer, amount_of

_LONGEST_WAIT: Final = 180.0  # seconds to wait for a slot of the rate budget
_ATTEMPTS: Final = 3
_BACKOFF: Final = 2.0  # seconds
_LONGEST_PAUSE: Final = 90.0  # seconds to wait after a 429
_WINDOW: Final = 61.0  # seconds: the service page, "Limits", and one for the clocks
_UNAUTHORIZED: Final = 401
THROTTLED: Final = 429


class Wire:
    """Sends the probe's requests. Times are in seconds."""

    def __init__(self, client: momopay.Client) -> None:
        # The one place that reaches into a client: what it was configured with is to hold here too.
        session: Session[SyncBackend] = client._session  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
        self._session = session
        self._is_failing = False
        self.reads: list[Answer] = []

    def get(self, path: str, **query: str) -> Answer:
        """Read, again after a 5xx or without an answer; `path` is relative to the base address.

        Raises:
            InvalidApiKeyError: The key was refused.
            APIConnectionError: The service was never reached.
        """
        target = path + (f"?{urlencode(query)}" if query else "")
        answer = self.once("GET", target)
        attempts = 1
        while _is_failure(answer) and attempts < _ATTEMPTS and not self._is_failing:
            self.sleep(_BACKOFF * attempts)
            answer = self.once("GET", target)
            attempts += 1
        # A service that is down is not asked three times about each row.
        self._is_failing = _is_failure(answer)
        return self._checked(answer)

    def change(self, method: str, path: str, body: Mapping[str, object] | None = None) -> Answer:
        """Send a request that changes something, once."""
        return self._checked(self.once(method, path, body))

    def once(self, method: str, path: str, body: Mapping[str, object] | None = None) -> Answer:
        """Send a request within the rate budget; it is sent again only if it was throttled."""
        answer = self._within_budget(method, path, body)
        if answer.status == THROTTLED and (pause := _stated_or_window(answer)) <= _LONGEST_PAUSE:
            # Another program may use the key. A throttled request was not executed.
            self.hold(pause)
            if self._session.limiter is None:
                self.sleep(pause)
            answer = self._within_budget(method, path, body)
        return answer

    def send(self, method: str, path: str, body: Mapping[str, object] | None = None) -> Answer:
        """Send a request at once, whatever the budget says."""
        session = self._session
        content = None if body is None else json.dumps(body).encode()
        progress = None if method == "GET" else Progress()
        url = session.account.base_url + path
        try:
            raw = run_sync(
                session.backend.send(
                    method, url, session.headers, content, timeout=session.limits.timeout, progress=progress
                )
            )
        except NoResponseError as error:
            # A class says whether it was sent; what the system says may quote an address, and is not kept.
            problem = "not sent" if isinstance(error, NotSentError) else "no whole response"
            answer = Answer(None, problem=f"{problem}: {str(error)[:200]}")
        else:
            answer = Answer(raw.status, {name.lower(): value for name, value in raw.headers.items()}, raw.body)
        if method == "GET":
            self.reads.append(answer)
        return answer

    def now(self) -> float:
        """Return the time of the client's clock, which sleeps move too."""
        return self._session.backend.now()

    def sleep(self, seconds: float) -> None:
        """Wait."""
        run_sync(self._session.backend.sleep(max(0.0, seconds)))

    def hold(self, seconds: float) -> None:
        """Have everybody who shares the rate budget wait so long."""
        if self._session.limiter is not None:
            run_sync(self._session.limiter.pause(seconds))

    @property
    def host(self) -> str:
        """The service's host."""
        return urlsplit(self._session.account.base_url).hostname or ""

    @property
    def key(self) -> str:
        """The API key, to keep it out of what is written."""
        return self._session.account.api_key

    def _within_budget(self, method: str, path: str, body: Mapping[str, object] | None) -> Answer:
        limiter = self._session.limiter
        if limiter is not None:
            latest = self.now() + _LONGEST_WAIT
            name = f"{method} {path.partition('?')[0]}"
            run_sync(limiter.acquire(Lane.READ, latest=latest, describe=lambda: name))
        return self.send(method, path, body)

    def _checked(self, answer: Answer) -> Answer:
        if answer.status == _UNAUTHORIZED:
            # Whatever the body says: no later answer would tell anything about the service.
            raise InvalidApiKeyError(
                "the service refused the key",
                code=answer.code or "INVALID_API_KEY",
                status_code=_UNAUTHORIZED,
                request_id=answer.request_id,
            )
        if answer.status is None and all(each.status is None for each in self.reads):
            raise APIConnectionError(answer.problem or "no answer")
        return answer


def served_at(answer: Answer) -> float | None:
    """Return the time of an answer by the service's clock, whole seconds since 1970; None if it shows none."""
    return moment_of(answer.headers.get("date", ""))


def moment_of(header: str) -> float | None:
    """Return an HTTP date as seconds since 1970; None if it is none."""
    date = http_date(header)
    return None if date is None else date.timestamp()


def pause_of(answer: Answer) -> float | None:
    """Return the seconds that a 429 asks for, None if it names none."""
    stated: tuple[Any, ...] = (answer.details.get("resetInSeconds"), answer.headers.get("retry-after"))
    seconds = [float(amount) for amount in map(amount_of, stated) if amount is not None and amount >= 0]
    return max(seconds, default=None)


def _stated_or_window(answer: Answer) -> float:
    """Return the seconds that a 429 asks for; those of a window, if it names none that can be read."""
    pause = pause_of(answer)
    until, since = moment_of(answer.headers.get("retry-after", "")), served_at(answer)
    if pause is None and until is not None and since is not None:
        pause = max(0.0, until - since)
    # Not to wait would leave what comes next undone, such as the deletion of the probe's channel.
    return _WINDOW if pause is None else pause


def _is_failure(answer: Answer) -> bool:
    return answer.status is None or answer.status >= 500  # noqa: PLR2004  the server's own


def segment(text: str) -> str:
    """Return a text as one segment of a path."""
    return quote(text, safe="")
