"""A Django shop in one file: orders in the ORM, each end handled once, refunds paid once.

    python examples/django_shop.py [--port 8002]
    python examples/django_shop.py refund ORDER
    python examples/django_shop.py sweep           from cron, every minute: what no callback brought

A refund is a payout with `pay_once` and its journal. Run the command again after any error, or twice by mistake: the
customer gets the money once. In a project, the parts are in the usual files of Django. Without MOMOPAY_* settings it
runs on the embedded sandbox and prints how to refund there. On the real service set SHOP_URL, the public https://
address, and DJANGO_SECRET_KEY.
"""

from __future__ import annotations

import os
import secrets
import sys
import tempfile
from argparse import ArgumentParser
from functools import cache
from shlex import quote
from typing import Any

import django
from django.conf import settings
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError
from django.core.management.utils import get_random_secret_key
from django.db import connection, models
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.template import engines
from django.urls import path

from momopay import (
    Callback,
    CallbackSigner,
    Client,
    Journal,
    MomoPayError,
    OutcomeUnknownError,
    Transaction,
    normalise_phone,
)
from momopay.integrations.django import callback_endpoint

DATABASE = os.environ.get("SHOP_DATABASE") or (
    "django_shop.db" if "MOMOPAY_BASE_URL" in os.environ else os.path.join(tempfile.mkdtemp(), "shop.db")  # noqa: PTH118  a name for Django
)
settings.configure(
    ALLOWED_HOSTS=os.environ.get("SHOP_HOSTS", "127.0.0.1,localhost").split(","),
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": DATABASE}},
    DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
    MIDDLEWARE=["django.middleware.csrf.CsrfViewMiddleware"],
    ROOT_URLCONF=__name__,
    SECRET_KEY=os.environ.get("DJANGO_SECRET_KEY") or get_random_secret_key(),
    TEMPLATES=[{"BACKEND": "django.template.backends.django.DjangoTemplates"}],
    USE_TZ=True,
)
django.setup()

PRICE = 450  # KES
signer = CallbackSigner(settings.SECRET_KEY)
journal = Journal(f"sqlite:///{DATABASE}.journal")


@cache
def client() -> Client:
    """Return the one client for all threads, created at its first use."""
    return Client(journal=journal)


class Order(models.Model):
    """WAITING, then PAID or FAILED; a PAID one may become REFUNDING and REFUNDED."""

    id: models.CharField[str, str] = models.CharField(max_length=12, primary_key=True)
    phone: models.CharField[str, str] = models.CharField(max_length=12)
    amount: models.PositiveIntegerField[int, int] = models.PositiveIntegerField()
    state: models.CharField[str, str] = models.CharField(max_length=9, default="WAITING")

    class Meta:
        """A single file has no app, so name one."""

        app_label = "shop"

    def __str__(self) -> str:
        return f"{self.id}: {self.state}"


def move(order_id: str, before: str, after: str, **conditions: Any) -> bool:
    """Change the state of an order. Only one of several callers gets True."""
    return Order.objects.filter(id=order_id, state=before, **conditions).update(state=after) == 1


def on_callback(callback: Callback) -> None:
    """Act on the service's own record, never on the callback. After an error here the service sends it again."""
    on_end(client().transactions.confirm(callback))


def on_end(transaction: Transaction) -> None:
    """Act on the end of a payment, whether a callback or the sweep brings it."""
    reference = transaction.account_reference or ""
    if transaction.type == "B2C":
        if transaction.status == "SUCCESS":
            move(reference.removeprefix("REFUND-"), "REFUNDING", "REFUNDED")
    elif transaction.status == "SUCCESS":
        for before in ("WAITING", "FAILED"):  # a late PIN may pay an order that had failed
            move(reference, before, "PAID", amount=transaction.amount)
    elif transaction.status.ended_without_success:
        move(reference, "WAITING", "FAILED")


PAGE = """<!doctype html><html lang="en"><meta name="viewport" content="width=device-width">
<meta name="color-scheme" content="light dark"><title>Soko</title>
{% if order.state == "WAITING" %}<meta http-equiv="refresh" content="2">{% endif %}
<style>body { font: 1.1rem/1.6 system-ui; max-width: 24rem; margin: 4rem auto; padding: 0 1rem }</style><h1>Soko</h1>
{% if order %}<p>Order {{ order.id }}, KES {{ order.amount }}: <b id="state">{{ order.state }}</b></p>{% else %}
<form method="post">{% csrf_token %}<p role="alert">{{ fault }}</p><label>Phone <input name="phone" type="tel" required>
</label><input type="hidden" name="order" value="{{ new }}"><button>Pay KES {{ price }}</button></form>{% endif %}"""


def page(request: HttpRequest, **context: object) -> HttpResponse:
    """Render the one page."""
    return HttpResponse(engines["django"].from_string(PAGE).render(context, request))


def front(request: HttpRequest) -> HttpResponse:
    """Show the form, or store an order and then prompt for it."""
    fault = ""
    if request.method == "POST":
        try:
            phone, order_id = normalise_phone(request.POST.get("phone", "")), request.POST.get("order", "")[:12]
            order, new = Order.objects.get_or_create(id=order_id, defaults={"phone": phone, "amount": PRICE})
            if new:  # else the form was sent twice: one prompt is enough
                prompt(order)
            return redirect(f"/orders/{order_id}")
        except ValueError as error:
            fault = str(error)
    return page(request, fault=fault, price=PRICE, new=secrets.token_hex(6))


def prompt(order: Order) -> None:
    """Send the prompt. If its outcome is unknown, the order stays WAITING."""
    try:
        client().stk.collect_once(
            reference=order.id,
            amount=order.amount,
            phone=order.phone,
            callback_url=callback_url(order.id),
        )
    except OutcomeUnknownError:
        pass
    except MomoPayError:
        move(order.id, "WAITING", "FAILED")


def callback_url(reference: str) -> str:
    """Return the signed URL for the callback of a payment."""
    return signer.url(f"{os.environ['SHOP_URL']}/momo", reference=reference)


def show(request: HttpRequest, order_id: str) -> HttpResponse:
    """Show an order."""
    return page(request, order=get_object_or_404(Order, id=order_id))


urlpatterns = [
    path("", front),
    path("orders/<str:order_id>", show),
    path("momo", callback_endpoint(on_callback, signer=signer, journal=journal)),
]


class Refund(BaseCommand):
    """`manage.py refund ORDER`, in shop/management/commands/refund.py of a project."""

    help = "Refund an order once."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add the argument for the order."""
        parser.add_argument("order")

    def handle(self, *_args: object, **options: Any) -> None:
        """Pay. This is safe to run again after any error."""
        order = Order.objects.get(id=options["order"])
        if not move(order.id, "PAID", "REFUNDING") and order.state != "REFUNDING":
            raise CommandError(f"order {order} cannot be refunded")
        try:
            paid = client().payouts.pay_once(
                reference=f"REFUND-{order.id}",
                amount=order.amount,
                phone=order.phone,
                callback_url=callback_url(f"REFUND-{order.id}"),
            )
        except MomoPayError as error:
            raise CommandError(f"{error}. Run the same command again.") from error
        self.stdout.write(f"KES {paid.amount} to {order.id}: {paid.status}, transaction {paid.transaction_id}")


class Sweep(BaseCommand):
    """`manage.py sweep`, in shop/management/commands/sweep.py of a project."""

    help = "Bring the ends that no callback brought."

    def handle(self, *_args: object, **_options: Any) -> None:
        """Sweep once. Several at once are safe."""
        report = client().transactions.sweep(handler=on_end)
        self.stdout.write(f"{report.handled} handled, {report.open} open, {report.unknown} unresolved")


COMMANDS: dict[str, type[BaseCommand]] = {"refund": Refund, "sweep": Sweep}


def main() -> None:
    """Serve the shop, or run a command."""
    if Order._meta.db_table not in connection.introspection.table_names():  # noqa: SLF001  a project has migrations
        with connection.schema_editor() as editor:
            editor.create_model(Order)
    port = sys.argv[2] if sys.argv[1:2] == ["--port"] else "8002"
    os.environ.setdefault("SHOP_URL", f"http://127.0.0.1:{port}")
    command = COMMANDS.get(sys.argv[1]) if sys.argv[1:] else None
    if command is not None:
        command().run_from_argv(["manage.py", *sys.argv[1:]])
    elif "MOMOPAY_BASE_URL" in os.environ:
        call_command("runserver", f"127.0.0.1:{port}", use_reloader=False)
    else:
        from momopay.sandbox import Sandbox

        with Sandbox(speed=30) as sandbox:
            os.environ |= {"MOMOPAY_API_KEY": "pk_test_soko", "MOMOPAY_BASE_URL": sandbox.base_url}
            shown = {"DJANGO_SECRET_KEY": settings.SECRET_KEY, "SHOP_DATABASE": DATABASE}
            shown |= {name: os.environ[name] for name in ("MOMOPAY_API_KEY", "MOMOPAY_BASE_URL", "SHOP_URL")}
            setting = " ".join(f"{name}={quote(value)}" for name, value in shown.items())
            print(f"To refund: {setting} python {sys.argv[0]} refund ORDER", flush=True)
            call_command("runserver", f"127.0.0.1:{port}", use_reloader=False)


if __name__ == "__main__":
    main()
