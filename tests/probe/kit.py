"""What the tests of the probe share: an account with a history, and a client whose sleeps move the sandbox's clock."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from momopay import Client
from momopay._transport.sync_backend import SyncBackend
from momopay.probe import Profile, probe
from momopay.sandbox import Account, Outcome, ReceivedRequest, Sandbox, phone_for
from virtual import install_backend


class SandboxTime(SyncBackend):
    """Sleeps by the sandbox's clock, which nothing else moves."""

    def __init__(self, sandbox: Sandbox) -> None:
        super().__init__()
        self._sandbox = sandbox
        self.slept: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self._sandbox.advance(seconds)


@dataclass
class Scene:
    """One account of a sandbox, and a client of it in virtual time, without a rate budget."""

    sandbox: Sandbox
    key: str
    account: Account

    def __post_init__(self) -> None:
        self.client = Client(self.key, base_url=self.sandbox.base_url, budget=None)
        self.time = SandboxTime(self.sandbox)
        install_backend(self.client, self.time)

    def prompt(self, outcome: Outcome, *, seconds: float = 120) -> None:
        """Have a prompt in the account's history."""
        self.client.stk.initiate(amount=7, phone=phone_for(outcome), account_reference="INV-1")
        self.sandbox.advance(seconds)

    def probe(self, **options: Any) -> Profile:
        """Probe, and check what must hold for every run."""
        before = len(self.sandbox.requests)
        self.notes: list[str] = []
        profile = probe(self.client, note=self.notes.append, **options)
        self.sent = self.sandbox.requests[before:]
        self.assert_clean(profile)
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
        """The requests of the last probe with that method, whose path begins so."""
        return [each for each in self.sent if each.method == method and each.path.startswith(path)]

    @property
    def methods(self) -> set[str]:
        return {request.method for request in self.sent}

    @property
    def channels(self) -> list[str]:
        """The names of the account's channels."""
        return [channel.name for channel in self.account.live_channels()]
