"""The recipes of the page about connections, each run as printed against a server of its kind on loopback.

Only addresses and files are put in place of those that a reader replaces.
"""

from __future__ import annotations

import asyncio
import re
import ssl
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from socket import AF_UNIX, create_server, socket
from typing import Any

import hypercorn.asyncio
import pytest
import trustme
from hypercorn.config import Config

import momopay
from docs.blocks import ROOT, blocks_in
from drivers import unique_key
from momopay import Client, PollSchedule
from momopay.sandbox import Sandbox
from patience import beside
from sandbox.kit import posts
from served import asgi_served
from transport.proxy import proxying

PAGE = ROOT / "docs/operate/connections.md"
RECIPES = {name: block.text for block in blocks_in(PAGE) if (name := block.noted("recipe:"))}
Recipe = Callable[..., Any]
STK = "/payments/stk"
SERVE: Any = vars(hypercorn.asyncio)["serve"]  # its types are not complete


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """The files of a company: its authority, and the certificates that it has signed."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "company.pem"))
    for name in ("localhost", "shop.example"):
        issued = authority.issue_cert(name)
        issued.cert_chain_pems[0].write_to_path(str(tmp_path / f"{name}.pem"))
        issued.private_key_pem.write_to_path(str(tmp_path / f"{name}.key"))
    return tmp_path


@pytest.fixture
def sandbox() -> Iterator[Sandbox]:
    with closing(Sandbox(speed=0)) as sandbox:
        yield sandbox


@pytest.fixture
def recipe(monkeypatch: pytest.MonkeyPatch, files: Path) -> Recipe:
    """Run a recipe of the page, and return its client."""

    def run(name: str, base_url: str = "", **replaced: str) -> Any:
        monkeypatch.setenv("MOMOPAY_BASE_URL", base_url)
        monkeypatch.setenv("MOMOPAY_API_KEY", unique_key())
        text, names = RECIPES[name].replace("/etc/ssl/shop", f"{files}/shop.example"), dict[str, Any]()
        for old, new in {"/etc/ssl": str(files), **replaced}.items():
            text = text.replace(old, new)
        exec(text, names)
        return names["client"]

    return run


@contextmanager
def served_over_tls(app: Any, files: Path, **options: Any) -> Generator[str]:
    certificate, key = files / "localhost.pem", files / "localhost.key"
    with asgi_served(app, ssl_certfile=certificate, ssl_keyfile=key, **options) as url:
        yield f"https://localhost:{url.rpartition(':')[2]}/v1"


def collect(client: Any) -> None:
    """Collect through the client, of either kind, and close it."""

    async def run() -> None:
        async with client:
            prompt = await client.stk.initiate(amount=100, phone="0712345678")
            assert (await client.transactions.get(prompt)).transaction_id == prompt.transaction_id

    if not isinstance(client, Client):
        asyncio.run(run())
        return
    with client:
        prompt = client.stk.initiate(amount=100, phone="0712345678")
        assert client.transactions.get(prompt).transaction_id == prompt.transaction_id


@pytest.mark.parametrize(("name", "user"), [("proxy", ""), ("proxy with a password", "clerk:password@")])
def test_a_proxy(recipe: Recipe, files: Path, sandbox: Sandbox, name: str, user: str) -> None:
    with served_over_tls(sandbox.app, files) as base_url, proxying() as proxy:
        placed = {f"http://{user}proxy.example:3128": proxy.url.replace("http://", f"http://{user}")}
        if not user:  # this recipe trusts the public authorities
            trusting = f"__import__('ssl').create_default_context(cafile='{files}/company.pem')"
            placed["proxy="] = f"verify={trusting}, proxy="
        collect(recipe(name, base_url, **placed))
    assert posts(sandbox, STK) == 1
    assert all(head.startswith(b"CONNECT localhost:") for head in proxy.heads)
    assert all((b"Proxy-Authorization: Basic" in head) == bool(user) for head in proxy.heads)


def test_a_private_authority(recipe: Recipe, files: Path, sandbox: Sandbox) -> None:
    with served_over_tls(sandbox.app, files) as base_url:
        collect(recipe("private authority", base_url))
    assert posts(sandbox, STK) == 1


def test_a_client_certificate(recipe: Recipe, files: Path, sandbox: Sandbox) -> None:
    wanted = {"ssl_ca_certs": str(files / "company.pem"), "ssl_cert_reqs": ssl.CERT_REQUIRED}
    with served_over_tls(sandbox.app, files, **wanted) as base_url:
        trusting = ssl.create_default_context(cafile=str(files / "company.pem"))
        with Client(unique_key(), base_url=base_url, verify=trusting, max_attempts=1) as without:
            with pytest.raises(momopay.APIConnectionError):
                without.wallet.balance()
            with pytest.raises(momopay.OutcomeUnknownError):
                without.stk.initiate(amount=100, phone="0712345678")
        assert sandbox.requests == []
        collect(recipe("client certificate", base_url))
    assert posts(sandbox, STK) == 1


@contextmanager
def served_over_http2(app: Any, files: Path) -> Generator[str]:
    config, stop = Config(), threading.Event()
    config.certfile, config.keyfile = str(files / "localhost.pem"), str(files / "localhost.key")
    with create_server(("127.0.0.1", 0)) as listener:
        config.bind = [f"fd://{listener.fileno()}"]

        async def run() -> None:
            await SERVE(app, config, shutdown_trigger=lambda: asyncio.to_thread(stop.wait))

        with beside(lambda: asyncio.run(run())):
            yield f"https://localhost:{listener.getsockname()[1]}/v1"
            stop.set()
        listener.detach()  # hypercorn has closed it


def test_http2(recipe: Recipe, files: Path, sandbox: Sandbox) -> None:
    versions = set[str]()

    async def noting(scope: Any, receive: Any, send: Any) -> None:
        versions.add(scope.get("http_version", "2"))
        await sandbox.app(scope, receive, send)

    with served_over_http2(noting, files) as base_url:
        collect(recipe("http2", base_url))
    assert (versions, posts(sandbox, STK)) == ({"2"}, 1)


def test_a_unix_socket(recipe: Recipe, sandbox: Sandbox, tmp_path: Path) -> None:
    path = str(tmp_path / "gateway.sock")
    listener = socket(AF_UNIX)
    listener.bind(path)
    with asgi_served(sandbox.app, listener):
        collect(recipe("unix socket", **{"/run/gateway/momopay.sock": path}))
    assert posts(sandbox, STK) == 1


@pytest.fixture
def cacheable(sandbox: Sandbox) -> Iterator[str]:
    """The address of a gateway that lets everything be cached for an hour."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        async def allow(message: Any) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], (b"cache-control", b"public, max-age=3600")]
            await send(message)

        await sandbox.app(scope, receive, allow)

    with asgi_served(app) as url:
        yield f"{url}/v1"


PATIENT = PollSchedule(first=0, every=0.05, limit=30)


def test_a_cache_that_obeys_http_shows_a_wait_the_end(
    recipe: Recipe, cacheable: str, sandbox: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # its database is made here
    with recipe("cache", cacheable, **{"rfc=True)": "rfc=True), budget=None"}) as client:
        prompt = client.stk.initiate(amount=100, phone="0712345678")
        assert client.transactions.get(prompt).status == "PENDING"
        sandbox.advance(60)
        assert client.transactions.wait(prompt, schedule=PATIENT).status == "SUCCESS"


def test_every_recipe_is_run() -> None:
    run = re.findall(r'recipe\("([\w ]+)"', Path(__file__).read_text())
    assert {*run, "proxy", "proxy with a password"} == RECIPES.keys()
