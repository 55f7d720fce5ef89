"""The shop with the Django app, in one file: checkout, webhook, sweep, refunds, and the admin.

    python examples/django_shop.py [--port 8002]
    python examples/django_shop.py momopay_sweep      from cron, every minute; and every other command of manage.py

docs/start/shop.md explains it. In a project, the parts are in the usual files of Django. Without MOMOPAY_* settings it
runs on the embedded sandbox, sweeps by itself, and makes a user for the admin. On the real service set SHOP_URL, the
public https:// address for callbacks, and DJANGO_SECRET_KEY.
"""

from __future__ import annotations

import atexit
import logging
import os
import secrets
import shutil
import sys
import tempfile
import threading
from decimal import Decimal
from pathlib import Path
from typing import Any

import django
from django.conf import settings
from django.core.management import execute_from_command_line
from django.core.management.utils import get_random_secret_key

from momopay.sandbox import Sandbox

PORT = sys.argv[2] if sys.argv[1:2] == ["--port"] else "8002"
SANDBOX = None if "MOMOPAY_BASE_URL" in os.environ else Sandbox(speed=30).start()
if SANDBOX is not None:
    os.chdir(folder := tempfile.mkdtemp())  # the sandbox forgets its payments, and so must the journal
    atexit.register(shutil.rmtree, folder)
    atexit.register(SANDBOX.close)
    os.environ |= {"MOMOPAY_API_KEY": "pk_test_soko", "MOMOPAY_BASE_URL": SANDBOX.base_url}

PAGE = """<!doctype html><html lang="en"><meta name="viewport" content="width=device-width">
<meta name="color-scheme" content="light dark"><title>Soko</title>
{% if waits %}<meta http-equiv="refresh" content="2">{% endif %}
<style>body { font: 1.1rem/1.6 system-ui; max-width: 24rem; margin: 4rem auto; padding: 0 1rem }</style><h1>Soko</h1>
{% if order %}<p>Order {{ order.id }}, KES {{ order.amount }}: <b id="state">{{ order.state }}</b></p>{% endif %}
{% if waits %}<p>No prompt on your phone? <a href="?again">Try again</a></p>
{% elif is_open %}<form method="post" action="/pay">{% csrf_token %}
<label>Phone <input name="phone" type="tel" required></label>
<input type="hidden" name="order" value="{{ order.id }}{{ new }}"><button>Pay KES {{ price }}</button></form>
{% endif %}"""

settings.configure(
    ALLOWED_HOSTS=os.environ.get("SHOP_HOSTS", "127.0.0.1,localhost").split(","),
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": Path("shop.db").absolute()}},
    DEBUG=SANDBOX is not None,  # serves the styles of the admin
    DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
    INSTALLED_APPS=[
        *("django.contrib.admin", "django.contrib.auth", "django.contrib.contenttypes", "django.contrib.messages"),
        *("django.contrib.sessions", "django.contrib.staticfiles", "momopay.integrations.django"),
    ],
    MIDDLEWARE=[
        "django.contrib.sessions.middleware.SessionMiddleware",
        "django.middleware.csrf.CsrfViewMiddleware",
        "django.contrib.auth.middleware.AuthenticationMiddleware",
        "django.contrib.messages.middleware.MessageMiddleware",
    ],
    MOMOPAY={
        "CALLBACK_BASE_URL": os.environ.get("SHOP_URL", f"http://127.0.0.1:{PORT}") + "/momopay/",
        "LINK": "/orders/{reference}",
    },
    ROOT_URLCONF=__name__,
    SECRET_KEY=os.environ.get("DJANGO_SECRET_KEY") or get_random_secret_key(),
    STATIC_URL="static/",
    TEMPLATES=[
        {
            "BACKEND": "django.template.backends.django.DjangoTemplates",
            "OPTIONS": {
                "loaders": [
                    ("django.template.loaders.locmem.Loader", {"soko/order.html": PAGE}),
                    "django.template.loaders.app_directories.Loader",
                ],
                "context_processors": [
                    "django.template.context_processors.request",
                    "django.contrib.auth.context_processors.auth",
                    "django.contrib.messages.context_processors.messages",
                ],
            },
        }
    ],
    USE_TZ=True,
)
django.setup()

from django.contrib import admin  # noqa: E402  needs the settings, as all below
from django.contrib.auth.models import User  # noqa: E402
from django.core.management import call_command  # noqa: E402
from django.db import connection, models, transaction  # noqa: E402
from django.dispatch import receiver  # noqa: E402
from django.http import HttpRequest, HttpResponse  # noqa: E402
from django.shortcuts import get_object_or_404, redirect, render  # noqa: E402
from django.urls import include, path  # noqa: E402

from momopay import (  # noqa: E402
    DuplicateCollectionError,
    EntryKind,
    InvalidPhoneError,
    JournalError,
    MomoPayError,
    Payment,
    RequestValidationError,
)
from momopay.integrations.django import client, payment_ended  # noqa: E402

PRICE = 450  # KES; a price never comes from a form
logger = logging.getLogger("shop")


class Order(models.Model):
    """An order: WAITING, PAID or NOT PAID; then REFUNDED, or REFUND CAME BACK."""

    id: models.CharField[str, str] = models.CharField(max_length=12, primary_key=True)
    amount: models.PositiveIntegerField[int, int] = models.PositiveIntegerField()
    state: models.CharField[str, str] = models.CharField(max_length=16, default="WAITING")

    class Meta:
        """A single file has no app, so name one."""

        app_label = "shop"

    def __str__(self) -> str:
        return f"{self.id}: {self.state}"


def move(order: str, state: str, *before: str) -> None:
    """Change the state of an order, if it is in one of the states before. Raise LookupError if there is no order."""
    found = Order.objects.filter(id=order)
    with transaction.atomic():
        if found.filter(state__in=before).update(state=state):
            # The place to deliver what was paid. An error here undoes the change.
            print(f"  order {order}: {state}", flush=True)
        elif not found.exists():
            raise LookupError(f"there is no order {order}")


@receiver(payment_ended)
def on_end(payment: Payment, **_: object) -> None:
    """Act on the end of a payment. Callbacks and sweeps bring each end here once; after an error, again."""
    if not payment.in_journal:
        return  # the shop did not ask for it: a pay link, or the dashboard
    if payment.kind is EntryKind.COLLECTION:
        if payment.is_paid:
            # NOT PAID: the PIN came after the prompt had ended.
            move(payment.reference, "PAID", "WAITING", "NOT PAID")
        else:
            move(payment.reference, "NOT PAID", "WAITING")
    elif payment.refund_of is not None:
        if payment.status == "REVERSED":
            move(payment.refund_of, "REFUND CAME BACK", "PAID", "REFUNDED")
        elif payment.is_paid and payment.refunded >= paid(payment.refund_of):
            # After a part, it stays PAID.
            move(payment.refund_of, "REFUNDED", "PAID", "REFUND CAME BACK")


def paid(order: str) -> Decimal:
    """Return what was paid for an order, in KES; more than its amount, if it was paid twice."""
    journal = client.journal
    entry = journal.get(order, EntryKind.COLLECTION) if journal else None
    return sum((each.amount for each in (entry.counting if entry else ())), Decimal(0))


@transaction.non_atomic_requests  # the order is committed before the prompt is sent
def pay(request: HttpRequest) -> HttpResponse:
    """Collect an order, however often "Pay" is pressed, and from which phone."""
    order, _ = Order.objects.get_or_create(id=request.POST["order"], defaults={"amount": PRICE})
    move(order.id, "WAITING", "NOT PAID")
    try:
        client.stk.collect_once(
            reference=order.id,
            amount=order.amount,
            phone=request.POST["phone"],
        )
    except DuplicateCollectionError:
        return HttpResponse("Open on the other phone.", status=409)
    except (RequestValidationError, InvalidPhoneError) as error:
        move(order.id, "NOT PAID", "WAITING")
        return HttpResponse(str(error), status=422)
    except MomoPayError as error:
        logger.exception("order %s", order.id)
        if isinstance(error, JournalError) or not error.may_have_executed:
            move(order.id, "NOT PAID", "WAITING")
            return HttpResponse("Please try again in a minute.", status=503)
    return redirect(f"/orders/{order.id}")


def front(request: HttpRequest) -> HttpResponse:
    """Show the form, for a new order."""
    context = {"new": secrets.token_hex(6), "price": PRICE, "is_open": True}
    return render(request, "soko/order.html", context)


def show(request: HttpRequest, order: str) -> HttpResponse:
    """Show an order, and the form again if it is not paid. While it waits, the customer may ask for the form."""
    found = get_object_or_404(Order, id=order)
    waits = found.state == "WAITING" and "again" not in request.GET
    is_open = found.state in {"WAITING", "NOT PAID"}
    context = {"order": found, "price": PRICE, "waits": waits, "is_open": is_open}
    return render(request, "soko/order.html", context)


urlpatterns = [
    path("", front),
    path("pay", pay),
    path("orders/<order>", show),
    path("momopay/", include("momopay.integrations.django.urls")),
    path("admin/", admin.site.urls),
]


def main() -> None:
    """Serve the shop, or run a command."""
    call_command("migrate", verbosity=0)
    if Order._meta.db_table not in connection.introspection.table_names():  # noqa: SLF001  a project has migrations
        with connection.schema_editor() as editor:
            editor.create_model(Order)
    if sys.argv[1:] and sys.argv[1] != "--port":
        execute_from_command_line(sys.argv)
        return
    if SANDBOX is not None:
        password = secrets.token_hex(4)
        User.objects.create_superuser("admin", password=password)
        shop = f"http://127.0.0.1:{PORT}/"
        print(f"Shop  {shop}\nPhone {SANDBOX.url}\nAdmin {shop}admin/, admin, {password}", flush=True)
        sweeps: dict[str, Any] = {"every": 1, "stdout": open(os.devnull, "w")}  # noqa: PTH123, SIM115  until the end
        threading.Thread(target=call_command, args=["momopay_sweep"], kwargs=sweeps, daemon=True).start()
    call_command("runserver", f"127.0.0.1:{PORT}", use_reloader=False)


if __name__ == "__main__":
    main()
