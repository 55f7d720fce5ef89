"""The URLs of the app: ``path("momopay/", include("momopay.integrations.django.urls"))``."""

from __future__ import annotations

from django.urls import URLPattern, path

from momopay.integrations.django.views import receive, status, sweep, without_transaction

app_name = "momopay"
# Without ATOMIC_REQUESTS, since `send_end` has a transaction of its own.
urlpatterns: list[URLPattern] = [
    path("callback", without_transaction(receive), name="callback"),
    path("status/", without_transaction(status), name="status"),
    path("sweep/", without_transaction(sweep), name="sweep"),
]
