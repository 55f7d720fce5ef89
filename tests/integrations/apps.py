"""Real servers on loopback, one way to start each framework's app with a callback's view at /momo."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler
from wsgiref.simple_server import make_server as make_wsgiref_server

import django
import uvicorn
from django.conf import settings
from django.core.asgi import get_asgi_application
from django.core.wsgi import get_wsgi_application
from django.urls import path
from fastapi import FastAPI
from flask import Flask
from werkzeug.serving import make_server as make_werkzeug_server

import momopay.integrations.fastapi
import momopay.integrations.flask

METHODS = ["DELETE", "GET", "PATCH", "POST", "PUT"]
"""Each route takes them all, so that the view itself has to tell them apart."""

if not settings.configured:
    settings.configure(
        SECRET_KEY="a test's own, which signs nothing",
        ALLOWED_HOSTS=["127.0.0.1", "testserver"],
        MIDDLEWARE=["django.middleware.common.CommonMiddleware", "django.middleware.csrf.CsrfViewMiddleware"],
        DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
        LOGGING_CONFIG=None,  # each new app would undo what a test set
        USE_TZ=True,
    )
    django.setup()

import momopay.integrations.django  # noqa: E402  settings come first


def fastapi_app(handler: Any, **options: Any) -> Any:
    app = FastAPI()
    app.add_api_route("/momo", momopay.integrations.fastapi.callback_endpoint(handler, **options), methods=METHODS)
    return app


def flask_app(handler: Any, **options: Any) -> Any:
    app = Flask("shop")
    view = momopay.integrations.flask.callback_endpoint(handler, **options)
    app.add_url_rule("/momo", view_func=view, methods=METHODS)
    return app


def _django_app(handler: Any, options: dict[str, Any], application: Callable[[], Any]) -> Any:
    endpoint: Any = momopay.integrations.django.callback_endpoint
    settings.ROOT_URLCONF = (path("momo", endpoint(handler, **options)),)
    return application()


def django_wsgi_app(handler: Any, **options: Any) -> Any:
    return _django_app(handler, options, get_wsgi_application)


def django_asgi_app(handler: Any, **options: Any) -> Any:
    return _django_app(handler, options, get_asgi_application)


@contextmanager
def uvicorn_serves(app: Any) -> Generator[str]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = uvicorn.Server(uvicorn.Config(app, log_config=None, lifespan="off", timeout_graceful_shutdown=5))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            while not server.started:
                assert thread.is_alive()
                time.sleep(0.005)
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


@contextmanager
def _wsgi_serves(server: Any) -> Generator[str]:
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Quiet(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  the base class's name
        pass


def werkzeug_serves(app: Any) -> Any:
    return _wsgi_serves(make_werkzeug_server("127.0.0.1", 0, app, threaded=True, request_handler=None))


def wsgiref_serves(app: Any) -> Any:
    return _wsgi_serves(make_wsgiref_server("127.0.0.1", 0, app, handler_class=_Quiet))


APPS: dict[str, tuple[Callable[..., Any], Callable[[Any], Any]]] = {
    "fastapi": (fastapi_app, uvicorn_serves),
    "flask": (flask_app, werkzeug_serves),
    "django-wsgi": (django_wsgi_app, wsgiref_serves),
    "django-asgi": (django_asgi_app, uvicorn_serves),
}
