"""What the tests of the probe share: an account with a history, and a client whose sleeps move the sandbox's clock."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import httpx

from bodies import refusal
from momopay import Client
from momopay._transport.sync_backend import SyncBackend
from momopay.probe import Profile, probe
from momopay.sandbox import Account, Outcome, ReceivedRequest, Sandbox, phone_for
from virtual import VirtualSignal, install_backend

Edit = Callable[[httpx.Request, httpx.Response], httpx.Response | None]


class Edited(httpx.BaseTransport):
    """Passes requests on, and answers that a test has edited."""

    def __init__(self) -> None:
        self._inner = httpx.HTTPTransport(verify=False)
        self.edit: Edit | None = None
        self.instead: Callable[[httpx.Request], httpx.Response | None] = lambda _request: None

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        instead = self.instead(request)
        if instead is not None:
            return instead
        response = self._inner.handle_request(request)
        if self.edit is None:
            return response
        response.read()
        return self.edit(request, response) or response

    def close(self) -> None:
        self._inner.close()


class OtherTime(SyncBackend):
    """Sleeps by another clock, which nothing else moves."""

    def __init__(self, transport: httpx.BaseTransport, advance: Callable[[float], object]) -> None:
        super().__init__(transport)
        self._advance = advance
        self.slept: list[float] = []

    def now(self) -> float:
        return super().now() + sum(self.slept)

    def signal(self) -> Any:
        return VirtualSignal(self)

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self._advance(seconds)


@dataclass
class Scene:
    """One account of a sandbox, and a client of it in virtual time, without a rate budget."""

    sandbox: Sandbox
    key: str
    account: Account

    def __post_init__(self) -> None:
        self.client = Client(self.key, base_url=self.sandbox.base_url, budget=None)
        self.service = Edited()
        self.time = OtherTime(self.service, self.sandbox.advance)
        install_backend(self.client, self.time)
        self.saved: list[Profile] = []
        self.notes: list[str] = []

    def prompt(self, outcome: Outcome, *, seconds: float = 120) -> None:
        """Send a prompt with this outcome, and let so many seconds pass."""
        self.client.stk.initiate(amount=7, phone=phone_for(outcome), account_reference="INV-1")
        self.sandbox.advance(seconds)

    def prepare(self, switches: dict[str, Any]) -> None:
        """Set switches, and leave a history that shows them: a top-up, and prompts that ended in each way."""
        for name, value in switches.items():
            setattr(self.account.switches, name, value)
        self.account.switches.strict_fields = False  # these prompts leave fields out
        self.client.wallet.top_up(amount=5, phone=phone_for(Outcome.success), idempotency_key=str(len(switches)))
        for outcome in (Outcome.cancelled, Outcome.expired, Outcome.success):
            self.prompt(outcome)
        self.account.switches.strict_fields = bool(switches.get("strict_fields"))

    def edit(self, *changes: tuple[str, Callable[[dict[str, Any]], object]]) -> None:
        """Apply each change to every record that a read of its path returns: the items of a list, or the data."""

        def edited(request: httpx.Request, response: httpx.Response) -> httpx.Response | None:
            if request.method != "GET" or not response.is_success:
                return None
            document = response.json()
            data = document["data"]
            for path, change in changes:
                for record in data.get("items", [data]) if request.url.path.endswith(path) else ():
                    change(record)
            return httpx.Response(response.status_code, headers={"date": response.headers["date"]}, json=document)

        self.service.edit = edited

    def answer(self, method: str, path: str, answer: Callable[[], httpx.Response]) -> None:
        """Answer requests with this method, to an address that contains this path, in the place of the sandbox."""

        def instead(request: httpx.Request) -> httpx.Response | None:
            return answer() if request.method == method and path in str(request.url) else None

        self.service.instead = instead

    def probe(self, **options: Any) -> Profile:
        """Probe, and check what must hold for every run."""
        before = len(self.sandbox.requests)
        self.notes, self.saved = [], []
        try:
            profile = probe(self.client, note=self.notes.append, save=self.saved.append, **options)
        finally:
            self.sent = self.sandbox.requests[before:]
            for each in self.saved:
                self.assert_clean(each)
        assert profile.findings == self.saved[-1].findings
        return profile

    def assert_clean(self, profile: Profile) -> None:
        """Nothing that is written or said has the key, a phone or the tenant's id."""
        text = profile.to_toml() + "".join(self.notes)
        assert self.key not in text
        assert self.account.tenant_id not in text
        for phone in {phone_for(outcome) for outcome in Outcome}:
            assert phone not in text
            assert "0" + phone[3:] not in text

    def requests(self, method: str, path: str) -> list[ReceivedRequest]:
        return [each for each in self.sent if each.method == method and each.path.startswith(path)]

    @property
    def methods(self) -> set[str]:
        return {request.method for request in self.sent}

    @property
    def channels(self) -> list[str]:
        return [channel.name for channel in self.account.live_channels()]


def error_response(status: int, code: str) -> httpx.Response:
    return httpx.Response(status, json=refusal(code))
