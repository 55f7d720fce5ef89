"""What the checkers see of the adapters. Read by mypy and pyright, never run; each ignored line must be an error."""

from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any, assert_type

from django.http import HttpRequest
from django.urls import path
from fastapi import FastAPI
from flask import Flask, Response
from starlette.requests import Request
from starlette.responses import Response as StarletteResponse

from momopay import AsyncClient, CallbackSigner, Client, Payment
from momopay.integrations import django, fastapi, flask


def blocking(payment: Payment) -> None: ...


async def suspending(payment: Payment) -> None: ...


def of_something_else(payment: int) -> None: ...


def views(signer: CallbackSigner, client: Client) -> None:
    endpoint = fastapi.callback_endpoint(suspending, client=client, signer=signer)
    assert_type(endpoint, Callable[[Request], Awaitable[StarletteResponse]])
    assert_type(flask.callback_endpoint(suspending, client=client, signer=signer), Callable[[], Response])
    assert_type(flask.callback_endpoint(blocking, client=client), Callable[[], Response])
    assert_type(django.callback_endpoint(suspending, client=client), Callable[[HttpRequest], Any])
    for each in (client, AsyncClient()):
        fastapi.callback_endpoint(blocking, client=each)
        django.callback_endpoint(suspending, client=each)


async def without_a_view(url: str, body: bytes, client: Client, async_client: AsyncClient) -> None:
    assert_type(client.transactions.receive(url, body, blocking), HTTPStatus)
    assert_type(await async_client.transactions.receive(url, body, suspending), HTTPStatus)


def routes(application: FastAPI, shop: Flask, client: Client) -> list[object]:
    application.post("/momo")(fastapi.callback_endpoint(suspending, client=client))
    shop.post("/momo")(flask.callback_endpoint(blocking, client=client))
    return [path("momo", django.callback_endpoint(blocking, client=client))]


def mistakes(signer: CallbackSigner, client: Client) -> None:
    fastapi.callback_endpoint(of_something_else, client=client)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    flask.callback_endpoint(blocking, client=client, signer="secret")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    flask.callback_endpoint(blocking, client=AsyncClient())  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    fastapi.callback_endpoint(blocking, client="pk_test_x")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    fastapi.callback_endpoint(blocking)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    signer.url("https://shop.example/momo", "INV-42")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
