"""Each framework's app with a callback's view at /momo."""

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


APPS: list[Callable[..., Any]] = [fastapi_app, flask_app, django_wsgi_app, django_asgi_app]
