"""What the checkers see of the adapters. Read by mypy and pyright, never run; each ignored line must be an error."""

from collections.abc import Awaitable, Callable
from typing import Any, assert_type

from django.http import HttpRequest
from django.urls import path
from fastapi import FastAPI
from flask import Flask, Response
from starlette.requests import Request
from starlette.responses import Response as StarletteResponse

from momopay import AsyncClient, Callback, CallbackSigner, Client, Journal
from momopay.integrations import django, fastapi, flask


def blocking(callback: Callback) -> None: ...


async def suspending(callback: Callback) -> None: ...


def of_something_else(callback: int) -> None: ...


def views(signer: CallbackSigner, journal: Journal) -> None:
    endpoint = fastapi.callback_endpoint(suspending, signer=signer, journal=journal)
    assert_type(endpoint, Callable[[Request], Awaitable[StarletteResponse]])
    assert_type(fastapi.callback_endpoint(blocking), Callable[[Request], Awaitable[StarletteResponse]])
    assert_type(flask.callback_endpoint(suspending, signer=signer), Callable[[], Response])
    assert_type(flask.callback_endpoint(blocking, journal=journal), Callable[[], Response])
    assert_type(django.callback_endpoint(suspending, signer=signer), Callable[[HttpRequest], Any])
    assert_type(django.callback_endpoint(blocking, journal=journal), Callable[[HttpRequest], Any])
    for client in (Client(journal=journal), AsyncClient()):
        fastapi.callback_endpoint(suspending, client=client)
        django.callback_endpoint(suspending, client=client)


def routes(application: FastAPI, shop: Flask) -> list[object]:
    application.post("/momo")(fastapi.callback_endpoint(suspending))
    shop.post("/momo")(flask.callback_endpoint(blocking))
    return [path("momo", django.callback_endpoint(blocking)), path("later", django.callback_endpoint(suspending))]


def mistakes(signer: CallbackSigner) -> None:
    fastapi.callback_endpoint(of_something_else)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    flask.callback_endpoint(blocking, signer="secret")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    fastapi.callback_endpoint(blocking, client="pk_test_x")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    django.callback_endpoint(of_something_else)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    signer.url("https://shop.example/momo", "INV-42")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
