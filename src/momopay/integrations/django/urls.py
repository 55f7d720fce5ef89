"""The URLs of the app: ``path("momopay/", include("momopay.integrations.django.urls"))``."""

from __future__ import annotations

from django.urls import URLPattern, path

from momopay.integrations.django.views import receive, without_transaction

app_name = "momopay"
# The signal has a transaction of its own, see `send_end`.
urlpatterns: list[URLPattern] = [path("callback", without_transaction(receive), name="callback")]
