"""``momopay doctor``: checks the machine, the key, the address and the account. It moves no money."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from rich.table import Table
from rich.text import Text

import momopay
from momopay._core.wiring import NO_JOURNAL
from momopay._redaction import key_mode
from momopay.cli.exit_codes import MISSING_EXTRA, ExitCode, remedy_of
from momopay.cli.options import ADDRESS_REMEDY, KEY_REMEDY, AccountOptions, find_key
from momopay.cli.output import kes, plain, stdout
from momopay.errors import ConfigurationError, InsufficientServiceBalanceError, MomoPayError, NoDefaultChannelError
from momopay.urls import check_base_url, is_loopback

if TYPE_CHECKING:  # loads pydantic
    from momopay.journal.entries import JournalCheck

_TIMEOUT = 10.0
_SKEW_WARNED = 30.0
_SKEW_FAILED = 240.0  # seconds; the search for a payout of unknown outcome allows for five minutes
_LOW_BALANCE = 100
_WAY = "the way to the service"

Verdict: TypeAlias = Literal["ok", "warn", "fail", "skipped"]
_STYLES = {"ok": "green", "warn": "yellow", "fail": "bold red", "skipped": "dim"}


@dataclass(frozen=True)
class Check:
    """The result of one check; it has a remedy unless it is ok."""

    name: str
    verdict: Verdict
    found: str
    remedy: str | None = None


def doctor(options: AccountOptions) -> ExitCode:
    """Check Python, key, address, TLS, reachability, clock, wallet, channels, list and the journal.

    Sends four reads, a fifth if there is a payout, and never shows the key. The journal is checked if it is given: that
    it can be read, that it is this account's, and what in it needs a person. A check that could not be made says what
    to fix first. Exits with 0 if nothing failed, 3 if something did.

    Examples:
        momopay doctor
        momopay doctor --journal payments.db
    """
    checks: list[Check] = []
    for check in _checks(options):
        checks.append(check)
        if not options.as_json:  # at once, because a service that does not answer takes ten seconds
            line = Table.grid("", "", "", padding=(0, 2))
            line.columns[0].width, line.columns[1].width, line.columns[2].overflow = 7, 9, "fold"
            line.add_row(Text(check.verdict, _STYLES[check.verdict]), Text(check.name, "bold"), plain(check.found))
            if check.remedy:
                line.add_row("", "", Text(plain(check.remedy), "italic"))
            stdout().show(line)
    failed = any(check.verdict == "fail" for check in checks)
    if options.as_json:
        options.output.result({"ok": not failed, "checks": [asdict(check) for check in checks]})
    return ExitCode.CONFIGURATION if failed else ExitCode.OK


def _checks(options: AccountOptions) -> Iterator[Check]:
    base_url = options.base_url
    yield Check("python", "ok", f"{platform.python_version()} ({sys.platform}), momopay {momopay.__version__}")
    # Every check that is possible is made, so that one run shows everything that needs fixing.
    address, key = _address(base_url), find_key()
    can_send = address.verdict == "ok"
    key_check = _key(key, base_url if base_url and can_send else "https://service.example/v1")
    yield key_check
    yield address
    broken = ["the key"] if key_check.verdict == "fail" else []
    if base_url and can_send:
        broken += yield from _reach(base_url)
    else:
        broken.append("the address")
        yield from _skipped(("tls", "reachable", "clock"), "the address")
    with ExitStack() as stack:
        client = None
        if can_send and key_check.verdict == "ok":
            # One attempt, because a retry would hide a failure.
            opened = momopay.Client(
                key, base_url=base_url, timeout=_TIMEOUT, deadline=_TIMEOUT, max_attempts=1, journal=NO_JOURNAL
            )
            client = stack.enter_context(opened)
        if client is None or broken:
            yield from _skipped(("wallet", "channels", "list"), *broken)
        else:
            for name, check in (("wallet", _wallet), ("channels", _channels), ("list", _list)):
                try:
                    made = check(client)
                except MomoPayError as error:
                    made = Check(name, "fail", str(error), remedy_of(error))
                yield made
        if options.journal:
            yield _journal(options, client)


def _skipped(names: Sequence[str], *broken: str) -> Iterator[Check]:
    for name in names:
        yield Check(name, "skipped", "not checked", f"fix {' and '.join(broken)} first")


def _key(key: str, base_url: str) -> Check:
    if not key:
        return Check("key", "fail", "not set", KEY_REMEDY)
    try:
        momopay.Client(key, base_url=base_url, journal=NO_JOURNAL).close()  # checks the key and the address together
    except ConfigurationError as error:
        return Check("key", "fail", error.message, KEY_REMEDY)
    kind = "a test key" if key_mode(key) == "test" else "a live key: real money"
    return Check("key", "ok", f"{kind}, {len(key)} characters")


def _address(base_url: str | None) -> Check:
    if not base_url:
        return Check("address", "fail", "not set", ADDRESS_REMEDY)
    try:
        address = check_base_url(base_url)
    except ValueError as error:
        return Check("address", "fail", f"base_url {error}", "take it from the account console")
    return Check("address", "ok", address)


def _reach(base_url: str) -> Generator[Check, None, list[str]]:
    """Send a request without the key, since a mistyped address may be a stranger's; return what is broken."""
    import httpx

    from momopay._transport.connections import shared_tls_context
    from momopay.probe.wire import Answer

    secure = base_url.startswith("https:")
    tls = Check("tls", "ok", "the certificate is valid" if secure else "not needed on loopback")
    begun = datetime.now(UTC)
    try:
        # Like the library: no proxy from the environment, but its CA certificates. Without TLS, none are loaded.
        verify = shared_tls_context() if secure else False
        with httpx.Client(timeout=_TIMEOUT, trust_env=False, verify=verify) as client:
            answer = client.get(base_url.rstrip("/") + "/wallets/service/balance")
    except ConfigurationError as error:
        yield Check("tls", "fail", str(error), remedy_of(error))
        yield from _skipped(("reachable", "clock"), "TLS")
        return ["TLS"]
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        problem = f"{type(error).__name__}: {error}"
        # httpx has no class for a certificate that does not verify.
        if secure and "certificate" in problem.lower():
            yield Check("tls", "fail", problem, "check the address; a proxy that opens TLS must not see the key")
            yield from _skipped(("reachable", "clock"), "TLS")
            return ["TLS"]
        yield from _skipped(("tls",), _WAY) if secure else (tls,)
        proxied = " (HTTPS_PROXY is not used)" if os.environ.get("HTTPS_PROXY") else ""
        yield Check("reachable", "fail", problem, f"check the network, the firewall and the address{proxied}")
        yield from _skipped(("clock",), _WAY)
        return [_WAY]
    took = datetime.now(UTC) - begun
    yield tls
    found = f"HTTP {answer.status_code} in {took.total_seconds() * 1000:.0f} ms"
    refusal = Answer(answer.status_code, body=answer.content)
    is_service = (
        answer.status_code == HTTPStatus.UNAUTHORIZED
        and refusal.envelope.get("success") is False
        and bool(refusal.code)
    )
    if is_service:
        yield Check("reachable", "ok", f"{found} {refusal.code}, the service's own refusal of a request without a key")
    else:
        remedy = "a request without a key should get 401 and the service's error: is this the service's address?"
        yield Check("reachable", "fail", found, remedy)
    # The service read its clock about half-way.
    yield _clock(answer.headers.get("date"), begun + took / 2, on_loopback=is_loopback(base_url))
    return [] if is_service else [_WAY]


def _clock(date: str | None, now: datetime, *, on_loopback: bool) -> Check:
    from momopay._core.response import http_date

    theirs = http_date(date or "")
    if theirs is None:
        return Check("clock", "warn", "the answer has no Date", "check this machine's clock by hand")
    if on_loopback:
        return Check("clock", "ok", "not compared: the time of a sandbox is virtual")
    skew = abs((theirs - now).total_seconds())
    found = f"{skew:.0f} s from the service's (its Date has whole seconds)"
    if skew <= _SKEW_WARNED:
        return Check("clock", "ok", found)
    remedy = "set this machine's clock by NTP: payouts of unknown outcome are searched for by time"
    return Check("clock", "fail" if skew > _SKEW_FAILED else "warn", found, remedy)


def _journal(options: AccountOptions, client: momopay.Client | None) -> Check:
    """Check the journal and, with a client, that it is this account's."""
    try:
        with options.open_journal() as journal:
            found = _read_journal(journal)
            unchecked = _check_account(journal, client) if found.mode else ""
            past = _past(client, journal)
    except (MomoPayError, ModuleNotFoundError) as error:
        made = _unusable(error, options.journal or "")
        return (made.verdict == "warn" and _past(client, None)) or made
    if found.went_back:
        return Check("journal", "fail", found.went_back, "`momopay journal accept-restored`, after that")
    if past:
        return past
    count = sum(found.counts.values())
    entries = "1 entry" if count == 1 else f"{count} entries"
    if found.needs_attention:
        waiting = f"{entries}, {len(found.unresolved)} unresolved, {len(found.paid_twice)} paid twice"
        return Check("journal", "warn", waiting, "`momopay journal check` names them, and what to do")
    return Check("journal", "ok", f"{entries}, nothing needs a person{unchecked}")


def _unusable(error: MomoPayError | ModuleNotFoundError, where: str) -> Check:
    """Return the check of a journal that cannot be used. One that a first payment creates is only a warning."""
    if isinstance(error, ModuleNotFoundError):
        return Check("journal", "fail", str(error), MISSING_EXTRA)
    if isinstance(error, _OtherAccountError):
        return Check("journal", "fail", error.message, "give the journal of this account; each account has its own")
    # A file that does not exist, or a server's database without a journal.
    if "there is no journal" not in error.message and "create=False" not in error.message:
        return Check("journal", "fail", str(error), remedy_of(error))
    if obstacle := _obstacle(where):
        return Check("journal", "fail", f"{error}, and the first payment cannot create it", obstacle)
    remedy = "the first payment creates it; if there was one, check the path or the URL"
    return Check("journal", "warn", str(error), remedy)


def _past(client: momopay.Client | None, journal: momopay.Journal | None) -> Check | None:
    """Return the check of a new journal, or None yet, if its account made payments that it does not know."""
    from momopay.durable.past import problem_with

    if client is None:
        return None
    remedy = "use the journal that knows them; if there was none, `momopay journal accept-restored --by NAME`, once"
    try:
        problem = problem_with(client, journal)
    except MomoPayError as error:
        return Check("journal", "fail", str(error), remedy)
    verdict: Verdict = "fail" if key_mode(find_key()) == "live" else "warn"
    return Check("journal", verdict, problem, remedy) if problem else None


class _OtherAccountError(MomoPayError):
    """The journal is another account's."""


def _read_journal(journal: momopay.Journal) -> JournalCheck:
    """Read the whole journal; raise if a payment could not write into it, or not create it."""
    from momopay.journal.journal import internals
    from momopay.journal.upgrade import NoJournalError

    database = internals(journal).store.database.shared
    try:
        found = journal.check()
    except NoJournalError:
        database.rehearse()
        raise
    database.check_writable()
    return found


def _check_account(journal: momopay.Journal, client: momopay.Client | None) -> str:
    """Raise _OtherAccountError if the journal is another account's; return why that is not known, or ""."""
    from momopay.durable.access import check_client

    unchecked = "; whether it is this account's could not be checked"
    if client is None:
        return unchecked
    try:
        check_client(client, journal)
    except ConfigurationError as error:
        raise _OtherAccountError(error.message) from error
    except MomoPayError as error:
        return f"{unchecked}: {error}"
    return ""


def _obstacle(where: str) -> str:
    """Return why no file can be created at a path, as a remedy; "" if one can, or if this is a server's URL."""
    if "://" in where:
        return ""
    folder = Path(where).parent
    if not folder.is_dir():
        return f"create the folder {folder}, or correct the path"
    return "" if os.access(folder, os.W_OK | os.X_OK) else f"let this user write into the folder {folder.resolve()}"


def _wallet(client: momopay.Client) -> Check:
    available = client.wallet.balance().available_balance
    found = f"KES {kes(available)} for fees"
    if available >= _LOW_BALANCE:
        return Check("wallet", "ok", found)
    return Check("wallet", "fail" if available <= 0 else "warn", found, InsufficientServiceBalanceError.remedy)


def _channels(client: momopay.Client) -> Check:
    try:
        found = client.channels.list()
    except momopay.APIError as error:
        if error.status_code != HTTPStatus.NOT_FOUND:
            raise
        return Check("channels", "warn", "this service does not show them", "look at them in the account console")
    default = next((channel for channel in found if channel.is_default), None)
    if default is not None:
        return Check("channels", "ok", f"{len(found)}, the default is {default.type} {default.shortcode}")
    if found:
        return Check("channels", "warn", f"{len(found)}, none the default", NoDefaultChannelError.remedy)
    return Check("channels", "warn", "none", "STK prompts are refused without one; payouts are not")


def _list(client: momopay.Client) -> Check:
    """Read a page of the list, and the newest payout of it for the name of its callback URL."""
    page = client.transactions.list(limit=100)
    found = f"{len(page.items)} of the newest {len(page.items) + len(page.unread)} transactions can be read"
    payout = next((each for each in page if each.type is momopay.TransactionType.B2C), None)
    if payout is not None:
        extra = client.transactions.get(payout).model_extra or {}
        names = [name for name in ("callbackUrl", "callback_url") if name in extra]
        found += f"; a read of a payout has {' and '.join(names) or 'no callback URL'}"
    if not page.unread:
        return Check("list", "ok", found)
    remedy = f"`momopay probe` says more; the first that cannot be read: {page.unread[0].problem}"
    return Check("list", "warn", found, remedy)
