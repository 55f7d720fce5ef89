"""A Django app: the journal in Django's database, callbacks, a signal, a command, system checks, and the admin.

    INSTALLED_APPS += ["momopay.integrations.django"]
    urlpatterns += [path("momopay/", include("momopay.integrations.django.urls"))]
    MOMOPAY = {"API_KEY": ..., "BASE_URL": ..., "CALLBACK_BASE_URL": "https://shop.example/momopay/"}

`clients` makes `client` and `async_client` from the setting, `views` receives callbacks and sends the signal, and
`models` has what ``manage.py migrate`` creates. `callback_endpoint` is a view for projects without the app.
"""

from __future__ import annotations

from momopay.integrations.django.clients import async_client, client, payment_ended, status_url
from momopay.integrations.django.views import callback_endpoint, status_endpoint, sweep_endpoint

__all__ = [
    "async_client",
    "callback_endpoint",
    "client",
    "payment_ended",
    "status_endpoint",
    "status_url",
    "sweep_endpoint",
]
