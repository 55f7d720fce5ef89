"""Whether this machine, this key and this address can work: a line and a remedy for each check. Moves no money."""

from __future__ import annotations

import os
import platform
import re
import sys
from collections.abc import Generator, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from enum import StrEnum
from http import HTTPStatus
from typing import TYPE_CHECKING

import typer
from rich.table import Table
from rich.text import Text

from momopay.cli.credentials import find_key
from momopay.cli.exit_codes import ExitCode, remedy_of
from momopay.cli.options import BaseUrl, Json
from momopay.cli.output import Output, kes, plain, stdout
from momopay.errors import ConfigurationError, MomoPayError

if TYPE_CHECKING:
    import httpx

    from momopay.client import Client

_PATIENCE = 10.0
_SKEW_WARNED_OF = 30.0
_SKEW_TOO_MUCH = 240.0
"""Seconds; the search for a payout in doubt allows for five minutes."""
_LOW_BALANCE = 100
_PACKAGES = ("anyio", "httpx", "pydantic", "tenacity", "typer", "rich", "sqlalchemy", "fastapi", "redis")


class Verdict(StrEnum):
    """How a check ended."""

    ok = "ok"
    warn = "warn"
    fail = "fail"
    skipped = "skipped"


_STYLES = {Verdict.ok: "green", Verdict.warn: "yellow", Verdict.fail: "bold red", Verdict.skipped: "dim"}
_WITHOUT_THE_KEY = ("tls", "reachable", "clock")
_WITH_THE_KEY = ("wallet", "channels")
_TLS, _WAY = "TLS", "the way to the service"


@dataclass(frozen=True)
class Check:
    """One check."""

    name: str
    verdict: Verdict
    found: str
    remedy: str | None = None


def doctor(base_url: BaseUrl = None, as_json: Json = False) -> None:
    """Check Python, packages, key, address, TLS, reachability, clock, wallet and channels.

    Sends three reads and never shows the key. What could not be checked says what to mend first. Exits with 0 if
    nothing failed, 3 if something did.
    """
    output = Output(as_json)
    checks: list[Check] = []
    for check in _checks(base_url):
        checks.append(check)
        if not as_json:
            _show(check)
    failed = any(check.verdict is Verdict.fail for check in checks)
    if as_json:
        output.document({"ok": not failed, "checks": [asdict(check) for check in checks]})
    raise typer.Exit(ExitCode.CONFIGURATION if failed else ExitCode.OK)


def _show(check: Check) -> None:
    line = Table.grid(padding=(0, 2))
    line.add_column(width=7)
    line.add_column(width=9)
    line.add_column(overflow="fold")
    line.add_row(Text(check.verdict, _STYLES[check.verdict]), Text(check.name, "bold"), plain(check.found))
    if check.remedy:
        line.add_row("", "", Text(plain(check.remedy), "italic"))
    stdout().print(line)


def _checks(base_url: str | None) -> Iterator[Check]:
    yield Check("python", Verdict.ok, f"{platform.python_version()} ({sys.platform})")
    yield _packages()
    key = find_key()
    key_check = _key(key, base_url)
    yield key_check
    broken = ["the key"] if key_check.verdict is Verdict.fail else []
    address = _address(base_url)
    yield address
    if base_url is None or address.verdict is Verdict.fail:
        yield from _skipped(_WITHOUT_THE_KEY, "the address")
        broken.append("the address")
    elif in_the_way := (yield from _reach(base_url)):
        broken.append(in_the_way)
    if base_url is None or broken:
        yield from _skipped(_WITH_THE_KEY, *broken)
    else:
        yield from _account(key, base_url)


def _skipped(names: Sequence[str], *broken: str) -> Iterator[Check]:
    """Tell of checks that cannot be made before something else is mended."""
    for name in names:
        yield Check(name, Verdict.skipped, "not checked", f"first mend {' and '.join(broken)}")


def _packages() -> Check:
    found = {name: _version(name) for name in ("momopay", *_PACKAGES)}
    return Check("packages", Verdict.ok, ", ".join(f"{name} {which}" for name, which in found.items() if which))


def _version(package: str) -> str | None:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _key(key: str, base_url: str | None) -> Check:
    remedy = "set MOMOPAY_API_KEY to a key from the account console, or to any pk_test_ key for the sandbox"
    if not key:
        return Check("key", Verdict.fail, "not set", remedy)
    if key != key.strip():
        return Check("key", Verdict.fail, "has spaces or a line break around it", "set it without them")
    shape = re.fullmatch(r"pk_(test|live)_([!-9;-~]+)", key)
    if shape is None:
        return Check("key", Verdict.fail, "does not start with pk_live_ or pk_test_", remedy)
    if shape[1] == "live" and _is_loopback(base_url):
        return Check("key", Verdict.fail, "a live key does not go to loopback", "use a pk_test_ key with the sandbox")
    kind = "a test key" if shape[1] == "test" else "a live key: real money"
    return Check("key", Verdict.ok, f"{kind}, {len(key)} characters")


def _is_loopback(base_url: str | None) -> bool:
    from momopay.urls import check_base_url, is_loopback

    try:
        return base_url is not None and is_loopback(check_base_url(base_url))
    except ValueError:
        return False


def _address(base_url: str | None) -> Check:
    from momopay.urls import check_base_url

    if not base_url:
        remedy = "set MOMOPAY_BASE_URL; for the sandbox, `momopay sandbox` shows it"
        return Check("address", Verdict.fail, "not set", remedy)
    try:
        address = check_base_url(base_url)
    except ValueError as error:
        return Check("address", Verdict.fail, f"base_url {error}", "take it from the account console")
    if not address.endswith("/v1"):
        return Check("address", Verdict.warn, address, "the service's base address ends in /v1")
    return Check("address", Verdict.ok, address)


def _reach(base_url: str) -> Generator[Check, None, str | None]:
    """Ask without the key, which nobody gets whom the address leads to by mistake; give what is broken on the way."""
    import httpx

    url = base_url.rstrip("/") + "/wallets/service/balance"
    secure = base_url.startswith("https:")
    plain_http = Check("tls", Verdict.ok, "not needed on loopback")
    begun = datetime.now(UTC)
    try:
        with httpx.Client(timeout=_PATIENCE, trust_env=False) as client:
            answer = client.get(url)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        text = f"{type(error).__name__}: {error}"
        if secure and "certificate" in text.lower():
            yield Check("tls", Verdict.fail, text, "check the address; a proxy that opens TLS must not see the key")
            yield from _skipped(("reachable", "clock"), _TLS)
            return _TLS
        yield from _skipped(("tls",), _WAY) if secure else (plain_http,)
        proxied = " (HTTPS_PROXY is not used)" if os.environ.get("HTTPS_PROXY") else ""
        yield Check("reachable", Verdict.fail, text, f"check the network, the firewall and the address{proxied}")
        yield from _skipped(("clock",), _WAY)
        return _WAY
    took = datetime.now(UTC) - begun
    yield Check("tls", Verdict.ok, "the certificate holds") if secure else plain_http
    answered = _answered(answer, took.total_seconds())
    yield answered
    yield _clock(answer.headers.get("date"), begun + took / 2)
    return None if answered.verdict is Verdict.ok else _WAY


def _answered(answer: httpx.Response, seconds: float) -> Check:
    found = f"HTTP {answer.status_code} in {seconds * 1000:.0f} ms"
    if answer.status_code == HTTPStatus.UNAUTHORIZED and '"INVALID_API_KEY"' in answer.text:
        return Check("reachable", Verdict.ok, f"{found}, the service's own refusal of a request without a key")
    remedy = "a request without a key should get 401 INVALID_API_KEY: is this the service's address, ending in /v1?"
    return Check("reachable", Verdict.fail, found, remedy)


def _clock(date: str | None, now: datetime) -> Check:
    from email.utils import parsedate_to_datetime

    try:
        theirs = parsedate_to_datetime(date or "")
    except ValueError:
        return Check("clock", Verdict.warn, "the answer has no Date", "check this machine's clock by hand")
    skew = abs((theirs - now).total_seconds())
    found = f"{skew:.0f} s from the service's (its Date has whole seconds)"
    remedy = "set this machine's clock by NTP: payouts in doubt are looked for by time"
    if skew > _SKEW_TOO_MUCH:
        return Check("clock", Verdict.fail, found, remedy)
    if skew > _SKEW_WARNED_OF:
        return Check("clock", Verdict.warn, found, remedy)
    return Check("clock", Verdict.ok, found)


def _account(key: str, base_url: str) -> Iterator[Check]:
    from momopay.client import Client

    try:
        client = Client(key, base_url=base_url, timeout=_PATIENCE, deadline=_PATIENCE, max_attempts=1)
    except ConfigurationError as error:
        yield Check("account", Verdict.fail, error.message, "use a pk_test_ key with the sandbox")
        yield from _skipped(_WITH_THE_KEY, "the account")
        return
    with client:
        for name, look in (("wallet", _wallet), ("channels", _channels)):
            try:
                yield look(client)
            except MomoPayError as error:
                yield Check(name, Verdict.fail, str(error), remedy_of(error))


def _wallet(client: Client) -> Check:
    available = client.wallet.balance().available_balance
    found = f"KES {kes(available)} for fees"
    if available <= 0:
        return Check("wallet", Verdict.fail, found, "top up the service wallet: payments are refused")
    if available < _LOW_BALANCE:
        return Check("wallet", Verdict.warn, found, "top up the service wallet soon: each payment costs a fee")
    return Check("wallet", Verdict.ok, found)


def _channels(client: Client) -> Check:
    found = client.channels.list()
    default = next((channel for channel in found if channel.is_default), None)
    if default is not None:
        return Check("channels", Verdict.ok, f"{len(found)}, the default is {default.type} {default.shortcode}")
    if found:
        return Check(
            "channels", Verdict.warn, f"{len(found)}, none the default", "give a channel to each prompt, or set one"
        )
    return Check("channels", Verdict.warn, "none", "STK prompts are refused without one; payouts are not")
