"""POSTs callbacks, to loopback addresses and the hosts that were named, and nowhere else."""

import asyncio
import json
from collections.abc import Collection, Mapping

import httpx

from momopay.sandbox._callback_urls import may_be_sent
from momopay.sandbox._deliveries import ANSWER_LIMIT, PostResult

_KEPT_BYTES = 500


class CallbackSender:
    """POSTs callbacks, each on a connection of its own."""

    def __init__(self, speed: float, hosts: Collection[str] = ()) -> None:
        """The answer limit of 30 virtual seconds shrinks with the speed, to one real second at least.

        `hosts` are POSTed to beside loopback.
        """
        self._hosts = hosts
        # Less would fail a receiver merely because the machine is busy.
        self.limit = max(1.0, ANSWER_LIMIT / max(speed, 1.0))
        self._client = httpx.AsyncClient(
            verify=False,  # noqa: S501 - loopback and a test's own hosts, where nobody has a certificate to verify
            trust_env=False,
            timeout=None,  # noqa: S113 - bounded as a whole, below
            # A kept connection could be closed by the receiver just when the next callback is written to it.
            limits=httpx.Limits(max_keepalive_connections=0),
        )

    async def post(self, url: str, payload: Mapping[str, object]) -> PostResult:
        """POST a payload and return the result; nothing is raised."""
        if not may_be_sent(url, self._hosts):
            others = ", and no callback host" if self._hosts else ""
            return PostResult(error=f"not sent: not loopback{others}")
        body = json.dumps(payload).encode()
        headers = {"content-type": "application/json", "user-agent": "momopay-sandbox"}
        try:
            async with (
                asyncio.timeout(self.limit),
                self._client.stream("POST", url, content=body, headers=headers) as response,
            ):
                answer = b""
                async for chunk in response.aiter_raw():
                    answer += chunk
                    if len(answer) >= _KEPT_BYTES:
                        break
                return PostResult(response.status_code, answer[:_KEPT_BYTES].decode("utf-8", "replace"))
        except TimeoutError:
            return PostResult(error=f"no answer within {ANSWER_LIMIT:.0f} seconds", timed_out=True)
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            return PostResult(error=f"{type(error).__name__}: {error}")

    async def close(self) -> None:
        """Close what is open."""
        await self._client.aclose()
