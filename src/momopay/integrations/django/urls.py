"""The URLs of the app: ``path("momopay/", include("momopay.integrations.django.urls"))``."""

from __future__ import annotations

from django.urls import URLPattern, path

from momopay.integrations.django.views import exempt, receive

app_name = "momopay"
urlpatterns: list[URLPattern] = [path("callback", exempt(receive), name="callback")]
