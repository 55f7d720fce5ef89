"""Other SDKs and libraries at the same work, where they are installed (peers.txt), used as their manuals say.

Everything of theirs is Any here: nobody has to install them to check this package.
"""

import http.client
import json
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, contextmanager
from datetime import UTC, datetime
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any, TypeVar
from urllib.parse import urlsplit

from benchmarks.answers import ID
from benchmarks.processes import AUTHORIZATION

T = TypeVar("T")
Get = Callable[[str], object]
"""Reads the record with an id, and its JSON."""
AwaitedGet = Callable[[str], Awaitable[object]]
_SECRET = "whsec_" + "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="


def _installed(peers: dict[str, T], modules: dict[str, str]) -> dict[str, T]:
    return {name: peer for name, peer in peers.items() if find_spec(modules.get(name, name)) is not None}


_MODULES = {"daraja-sdk": "daraja_sdk", "http.client": "http", "openai, with a client": "openai"}

IMPORTS = _installed(
    {
        "stripe": "import stripe; stripe.StripeClient('sk_test_x')",
        "openai, with a client": "import openai; openai.OpenAI(api_key='x', base_url='http://127.0.0.1:1/v1')",
        "mpesakit": "import mpesakit",
        "daraja-sdk": "import daraja_sdk",
    },
    _MODULES,
)
"""What is imported, and built where that is what loads it."""

COLD_STARTS = _installed(
    {
        "http.client": """
import http.client, json
host, path = {url!r}.removeprefix("http://").split("/", 1)
connection = http.client.HTTPConnection(host, timeout=10)
connection.request("GET", "/" + path + "/transactions/" + {id!r}, headers={headers!r})
assert json.loads(connection.getresponse().read())["data"]["status"] == "SUCCESS"
""",
        "stripe": """
import stripe
client = stripe.StripeClient("sk_test_x", base_addresses={{"api": {url!r}.removesuffix("/v1")}})
assert client.v1.customers.retrieve("cus_1").id == "cus_1"
""",
        "openai": """
import openai
client = openai.OpenAI(api_key="x", base_url={url!r})
assert client.models.retrieve("cus_1").id == "cus_1"
""",
    },
    _MODULES,
)
"""From the start of an interpreter to the first answer."""


@contextmanager
def _standard(url: str) -> Generator[Get]:
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.netloc, timeout=10)

    def get(identity: str) -> object:
        connection.request("GET", f"{parts.path}/transactions/{identity}", headers=AUTHORIZATION)
        return json.loads(connection.getresponse().read())

    yield get
    connection.close()


@contextmanager
def _urllib3(url: str) -> Generator[Get]:
    pool: Any = import_module("urllib3").PoolManager(headers=AUTHORIZATION)
    yield lambda identity: pool.request("GET", f"{url}/transactions/{identity}").json()
    pool.clear()


@contextmanager
def _stripe(url: str) -> Generator[Get]:
    yield _stripe_client(url).v1.customers.retrieve


def _stripe_client(url: str, **options: Any) -> Any:
    return import_module("stripe").StripeClient(
        "sk_test_benchmark", base_addresses={"api": url.removesuffix("/v1")}, **options
    )


@contextmanager
def _openai(url: str) -> Generator[Get]:
    with import_module("openai").OpenAI(api_key="x", base_url=url) as client:
        yield client.models.retrieve


GETS: dict[str, Callable[[str], AbstractContextManager[Get]]] = _installed(
    {"http.client": _standard, "urllib3": _urllib3, "stripe": _stripe, "openai": _openai}, _MODULES
)


@asynccontextmanager
async def _aiohttp(url: str) -> AsyncGenerator[AwaitedGet]:
    async with import_module("aiohttp").ClientSession(headers=AUTHORIZATION) as session:

        async def get(identity: str) -> object:
            async with session.get(f"{url}/transactions/{identity}") as response:
                return await response.json()

        yield get


@asynccontextmanager
async def _stripe_awaited(url: str) -> AsyncGenerator[AwaitedGet]:
    http_client: Any = import_module("stripe").HTTPXClient()
    yield _stripe_client(url, http_client=http_client).v1.customers.retrieve_async
    await http_client.close_async()


@asynccontextmanager
async def _openai_awaited(url: str) -> AsyncGenerator[AwaitedGet]:
    async with import_module("openai").AsyncOpenAI(api_key="x", base_url=url) as client:
        yield client.models.retrieve


AWAITED_GETS: dict[str, Callable[[str], AbstractAsyncContextManager[AwaitedGet]]] = _installed(
    {"aiohttp": _aiohttp, "stripe": _stripe_awaited, "openai": _openai_awaited}, _MODULES
)


def _stripe_walk(url: str) -> Callable[[], int]:
    customers = _stripe_client(url).v1.customers
    return lambda: sum(1 for _ in customers.list({"limit": 100}).auto_paging_iter())


def _openai_walk(url: str) -> Callable[[], int]:
    jobs: Any = import_module("openai").OpenAI(api_key="x", base_url=url).fine_tuning.jobs
    return lambda: sum(1 for _ in jobs.list(limit=100))


WALKS: dict[str, Callable[[str], Callable[[], int]]] = _installed(
    {"stripe": _stripe_walk, "openai": _openai_walk}, _MODULES
)
"""Walk all pages, and count."""


def _msgspec_reading(body: bytes) -> Callable[[], object]:
    msgspec = import_module("msgspec")
    names = json.loads(body)["transaction"]
    kinds = {float: float, int: float, str: str}
    fields = [(name, kinds[type(value)]) for name, value in names.items()]
    transaction: Any = msgspec.defstruct("Transaction", fields, frozen=True)
    callback: Any = msgspec.defstruct("Callback", [("event", str), ("event_type", str), ("transaction", transaction)])
    return partial(msgspec.json.Decoder(callback).decode, body)


def _stripe_event(body: bytes) -> Callable[[], object]:
    stripe = import_module("stripe")
    text = json.dumps({"id": ID, "object": "event", "data": {"object": json.loads(body)}})
    now = int(time.time())
    signed = stripe.WebhookSignature._compute_signature(f"{now}.{text}", _SECRET)
    return partial(stripe.Webhook.construct_event, text, f"t={now},v1={signed}", _SECRET, tolerance=3600)


def _svix_check(body: bytes) -> Callable[[], object]:
    webhook: Any = import_module("svix.webhooks").Webhook(_SECRET)
    when = datetime.now(UTC)
    headers = {
        "svix-id": ID,
        "svix-timestamp": str(int(when.timestamp())),
        "svix-signature": webhook.sign(ID, when, body.decode()),
    }
    return partial(webhook.verify, body, headers)


READINGS: dict[str, Callable[[bytes], Callable[[], object]]] = _installed(
    {"msgspec": _msgspec_reading, "stripe": _stripe_event, "svix": _svix_check}, _MODULES
)
"""A callback's body to a record, or checked and read."""
