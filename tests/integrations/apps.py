"""Each framework's app with a callback's view at /momo, and with a signer a status view at /status."""

from collections.abc import Callable
from typing import Any

import django
from django.conf import settings
from django.core.asgi import get_asgi_application
from django.core.wsgi import get_wsgi_application
from django.urls import path
from fastapi import FastAPI
from flask import Flask

import momopay.integrations.fastapi
import momopay.integrations.flask

METHODS = ["DELETE", "GET", "PATCH", "POST", "PUT"]
"""Each route takes them all, so that the view itself has to tell them apart."""

if not settings.configured:
    settings.configure(
        SECRET_KEY="a test's own, which signs nothing",
        ALLOWED_HOSTS=["127.0.0.1", "testserver"],
        MIDDLEWARE=["django.middleware.common.CommonMiddleware", "django.middleware.csrf.CsrfViewMiddleware"],
        DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}, "shop": {}},
        INSTALLED_APPS=[
            *(f"django.contrib.{name}" for name in ("admin", "auth", "contenttypes", "messages", "sessions")),
            "momopay.integrations.django",
        ],
        PASSWORD_HASHERS=["django.contrib.auth.hashers.MD5PasswordHasher"],  # slow ones make tests slow
        TEMPLATES=[
            {
                "BACKEND": "django.template.backends.django.DjangoTemplates",
                "APP_DIRS": True,
                "OPTIONS": {
                    "context_processors": [
                        "django.template.context_processors.request",
                        "django.contrib.auth.context_processors.auth",
                        "django.contrib.messages.context_processors.messages",
                    ]
                },
            }
        ],
        LOGGING_CONFIG=None,  # each new app would undo what a test set
        USE_TZ=True,
    )
    django.setup()

import momopay.integrations.django  # noqa: E402  settings come first


def fastapi_app(handler: Any, **options: Any) -> Any:
    app = FastAPI()
    for route, view in _views(momopay.integrations.fastapi, handler, options).items():
        app.add_api_route(f"/{route}", view, methods=METHODS)
    return app


def flask_app(handler: Any, **options: Any) -> Any:
    app = Flask("shop")
    for route, view in _views(momopay.integrations.flask, handler, options).items():
        app.add_url_rule(f"/{route}", view_func=view, methods=METHODS)
    return app


def _views(adapter: Any, handler: Any, options: dict[str, Any]) -> dict[str, Any]:
    if secret := options.pop("secret", None):
        return {"sweep": adapter.sweep_endpoint(handler=handler, secret=secret, **options)}
    views = {"momo": adapter.callback_endpoint(handler, **options)}
    client: Any = options["client"]
    if {"client", "signer"} == options.keys() and (not hasattr(client, "journal") or client.journal is not None):
        views["status"] = adapter.status_endpoint(**options)
    return views


def _django_app(handler: Any, options: dict[str, Any], application: Callable[[], Any]) -> Any:
    views = _views(momopay.integrations.django, handler, options)
    routes: list[Any] = [path(route, view) for route, view in views.items()]
    settings.ROOT_URLCONF = tuple(routes)
    return application()


def django_wsgi_app(handler: Any, **options: Any) -> Any:
    return _django_app(handler, options, get_wsgi_application)


def django_asgi_app(handler: Any, **options: Any) -> Any:
    return _django_app(handler, options, get_asgi_application)


APPS: list[Callable[..., Any]] = [fastapi_app, flask_app, django_wsgi_app, django_asgi_app]
