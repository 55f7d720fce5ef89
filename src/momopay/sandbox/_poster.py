"""POSTs callbacks, to loopback addresses and nowhere else."""

import asyncio
import json
from collections.abc import Mapping

import httpx

from momopay.sandbox._callback_urls import may_be_sent
from momopay.sandbox._deliveries import ANSWER_LIMIT, Posted

_SHOWN = 500


class Poster:
    """Sends one callback at a time, each on a connection of its own."""

    def __init__(self, speed: float) -> None:
        """The answer limit of 30 virtual seconds shrinks with the speed, to one real second at least."""
        self.limit = max(1.0, ANSWER_LIMIT / max(speed, 1.0))
        self._client = httpx.AsyncClient(
            verify=False,  # noqa: S501 - loopback only, where nobody has a certificate to verify
            trust_env=False,
            timeout=None,  # noqa: S113 - bounded as a whole, below
            limits=httpx.Limits(max_keepalive_connections=0),
        )

    async def post(self, url: str, payload: Mapping[str, object]) -> Posted:
        """POST a payload and report the answer; nothing is raised."""
        if not may_be_sent(url):
            return Posted(error="not sent: not loopback")
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
                    if len(answer) >= _SHOWN:
                        break
                return Posted(response.status_code, answer[:_SHOWN].decode("utf-8", "replace"))
        except TimeoutError:
            return Posted(error=f"no answer within {ANSWER_LIMIT:.0f} seconds", timed_out=True)
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            return Posted(error=f"{type(error).__name__}: {error}")

    async def close(self) -> None:
        """Close what is open."""
        await self._client.aclose()
