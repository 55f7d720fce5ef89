"""The URLs of the app: ``path("momopay/", include("momopay.integrations.django.urls"))``."""

from __future__ import annotations

from django.db import connections, transaction
from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern, path
from django.views.decorators.csrf import csrf_exempt

app_name = "momopay"


@csrf_exempt
def callback(request: HttpRequest) -> HttpResponse:
    """Respond to a callback of the service."""
    from momopay.integrations.django.views import receive  # each management command would wait for it

    return receive(request)


for _alias in connections:  # the signal has a transaction of its own, see `send_end`
    callback = transaction.non_atomic_requests(_alias)(callback)
urlpatterns: list[URLPattern] = [path("callback", callback, name="callback")]
