"""Clients of both sides, ready to be measured: momopay with its budget in force, httpx as anyone would write it."""

import httpx
from httpx_aiohttp import AiohttpTransport

import momopay
from benchmarks.processes import AUTHORIZATION, KEY


def _budget() -> momopay.RateBudget:
    return momopay.RateBudget(requests=1_000_000)  # in force, and never empty


def momopay_client(url: str) -> momopay.Client:
    return momopay.Client(KEY, base_url=url, budget=_budget())


def async_momopay_client(url: str, *, aiohttp: bool = False) -> momopay.AsyncClient:
    """Make the SDK's asyncio client, inside the event loop that is to use it."""
    transport = AiohttpTransport() if aiohttp else None
    return momopay.AsyncClient(KEY, base_url=url, budget=_budget(), transport=transport)


def httpx_client(url: str) -> httpx.Client:
    """Make httpx's client; the environment's proxies, if any, stay out."""
    return httpx.Client(base_url=url, headers=AUTHORIZATION, trust_env=False)


def async_httpx_client(url: str) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=url, headers=AUTHORIZATION, trust_env=False)
