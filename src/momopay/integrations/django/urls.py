"""The URLs of the app: ``path("momopay/", include("momopay.integrations.django.urls"))``."""

from __future__ import annotations

from django.db import connections, transaction
from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern, path
from django.views.decorators.csrf import csrf_exempt

from momopay._core.wiring import load

app_name = "momopay"


def callback(request: HttpRequest) -> HttpResponse:
    """Respond to a callback of the service."""
    response: HttpResponse = load("integrations.django.views.receive")(request)
    return response


for _alias in connections:  # the signal has a transaction of its own, see `send_end`
    callback = transaction.non_atomic_requests(_alias)(callback)
urlpatterns: list[URLPattern] = [path("callback", csrf_exempt(callback), name="callback")]
