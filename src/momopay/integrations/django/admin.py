"""The admin: read-only payments, a chart, a CSV file, and three actions, each after a page that asks for confirmation.

The model reads a database view that cannot be written to. The actions call the client, so nothing else here changes a
payment. Phones are shown whole, because people who may view payments search by phone and call customers.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from functools import partialmethod
from typing import TYPE_CHECKING, Any, ClassVar, Final

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.utils import quote, unquote
from django.core.exceptions import ObjectDoesNotExist, PermissionDenied
from django.db.models import Count, Model, Q, QuerySet, Sum
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, resolve_url
from django.template.response import TemplateResponse
from django.urls import NoReverseMatch, path, reverse
from django.utils.safestring import mark_safe
from django.utils.timezone import get_current_timezone

from momopay import Client, EntryKind, JournalState, MomoPayError
from momopay._core.wiring import load
from momopay.integrations.django.clients import client, database, link, the_journal
from momopay.integrations.django.models import Payment
from momopay.integrations.django.views import send_end, without_transaction
from momopay.journal.journal import internals
from momopay.spreadsheets.writer import write_csv

if TYPE_CHECKING:
    _Model = admin.ModelAdmin[Payment]
else:
    _Model = admin.ModelAdmin


_DAYS: Final = 30  # that the chart shows
_NOT_FOUND: Final = (
    "No payment here has this reference, phone or receipt. A receipt is missing if its callback was lost or is yet to"
    " come, and of what was paid without this journal: search by the customer's phone."
)
_CHARTS: Final = {"wide": 960, "narrow": 350}  # in pixels; the style sheet shows one of them


class RefundForm(forms.Form):
    """How much to pay back."""

    reference: forms.Field = forms.CharField(widget=forms.HiddenInput)  # so that a form that is sent twice pays once
    amount: forms.Field = forms.DecimalField(label="Amount, KES", min_value=Decimal(10), decimal_places=2)


class ReleaseForm(forms.Form):
    """Who decides."""

    by: forms.Field = forms.CharField(label="Who decides")
    searched_elsewhere: forms.Field = forms.BooleanField(
        label="I searched in the account console; do not search the service's list", required=False
    )


@admin.register(Payment)
class PaymentAdmin(_Model):
    """Payments."""

    class Media:  # noqa: D106  Django's own name
        css: ClassVar[Any] = {"all": ["momopay/admin.css"]}

    list_display: Any = ("reference", "kind", "amount", "phone", "state", "status", "receipt", "created_at")
    list_filter: ClassVar[Any] = ("kind", "state", "status", "created_at")
    date_hierarchy: ClassVar[Any] = "created_at"
    search_fields: ClassVar[Any] = ("reference", "search_text")
    search_help_text: ClassVar[Any] = "Reference, phone or receipt"
    fields: ClassVar[Any] = list_display
    actions: Any = ("read_again", "refund", "release")

    has_add_permission: Any = staticmethod(lambda *_args, **_options: False)
    has_change_permission: Any = has_add_permission
    has_delete_permission: Any = has_add_permission

    def _may(self, permission: str, request: Any) -> bool:
        return bool(request.user.has_perm(f"momopay.{permission}_payment"))

    has_refund_permission: Any = partialmethod(_may, "refund")
    has_release_permission: Any = partialmethod(_may, "release")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Return the payments of the database that has the journal."""
        return super().get_queryset(request).using(database()).defer("search_text")  # slow, and no column

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """Search by reference, phone or receipt; the latter in any case and spacing, or within a customer's message."""
        found, may_repeat = super().get_search_results(request, queryset, search_term)
        if not search_term.strip() or found.exists():
            return found, may_repeat
        try:
            entry = the_journal().by_receipt(search_term)
        except MomoPayError as error:
            self.message_user(request, str(error), messages.ERROR)
            return found, may_repeat
        if entry is None:
            self.message_user(request, _NOT_FOUND, messages.INFO)
            return found, may_repeat
        return queryset.filter(kind=entry.kind, reference=entry.reference), may_repeat

    def get_urls(self) -> list[Any]:
        """Return the pages of the admin, the chart and the CSV file included."""
        views = {"csv/": self.csv_view, "activity/": self.activity_view}
        own = [path(route, self.admin_site.admin_view(view)) for route, view in views.items()]
        return [*own, *super().get_urls()]

    @without_transaction
    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        """Show the list with its sums, or run an action."""
        response = super().changelist_view(request, extra_context)
        context: dict[str, Any] = getattr(response, "context_data", None) or {}
        if "cl" in context:
            rows = context["cl"].queryset.order_by("kind").values("kind")
            paid = Sum("amount", filter=Q(status="SUCCESS"), default=0)
            context["cl"].sums = rows.annotate(count=Count("pk"), total=Sum("amount"), paid=paid)
        return response

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: Any = None
    ) -> HttpResponse:
        """Show a payment with its transactions, its history, and buttons for the actions that are possible."""
        payment: Payment | None = self.get_object(request, unquote(object_id))
        if payment is not None:
            try:
                entry, history = payment.entry, the_journal().history(payment.reference, EntryKind(payment.kind))
                buttons = [each for each in self.get_action_choices(request, []) if _is_possible(each[0], payment)]
            except MomoPayError as error:
                return self._back_to_list(request, error)
            extra_context = {"entry": entry, "history": history, "buttons": buttons, "link": _link_of(entry)}
        return super().change_view(request, object_id, form_url, extra_context)

    def _back_to_list(self, request: HttpRequest, error: Exception) -> HttpResponse:
        self.message_user(request, str(error), messages.ERROR)
        return redirect("admin:momopay_payment_changelist")

    def csv_view(self, request: HttpRequest) -> HttpResponse:
        """Return the payments that the list's filters and search show, as CSV."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        response = HttpResponse(content_type="text/csv; charset=utf-8")
        response["Content-Disposition"] = 'attachment; filename="payments.csv"'
        payments = self.get_changelist_instance(request).queryset.iterator()
        rows = ([getattr(each, name) for name in self.list_display] for each in payments)
        shown = ([_local(each) if isinstance(each, datetime) else each for each in row] for row in rows)
        write_csv(response, self.list_display, shown)
        return response

    def activity_view(self, request: HttpRequest) -> HttpResponse:
        """Show what was collected, refunded and failed on each of the last days, and the success rate of prompts."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        try:
            chart, days = load("journal.activity.chart"), the_journal().activity(_DAYS, zone=get_current_timezone())
        except MomoPayError as error:
            return self._back_to_list(request, error)
        # The words of a chart are the package's own.
        charts = {name: mark_safe(chart(days, width=width)) for name, width in _CHARTS.items()}  # noqa: S308
        context = self.admin_site.each_context(request) | charts
        context |= {"title": f"The last {_DAYS} days", "days": days[::-1], "latest": days[-1], "media": self.media}
        return TemplateResponse(request, "admin/momopay/payment/activity.html", context)

    @admin.action(description="Read again", permissions=["view"])
    def read_again(self, request: HttpRequest, queryset: QuerySet[Any]) -> HttpResponse | None:
        """Read a payment from the service, record it, and send the signal if it has ended."""

        def read(client: Client, payment: Payment) -> Any:
            for transaction_id in payment.entry.transaction_ids:
                the_journal().settle(client.transactions.get(transaction_id))
            client.transactions.sweep(handler=send_end)  # also searches for unresolved payments
            return payment.entry

        text = "The service is asked how the payment stands, and the shop learns of what ended. No money moves."
        return self._ask(request, queryset, text, forms.Form, read)

    @admin.action(description="Refund", permissions=["refund"])
    def refund(self, request: HttpRequest, queryset: QuerySet[Any]) -> HttpResponse | None:
        """Pay back a collection or a part of it."""

        def suggest(payment: Payment) -> dict[str, object]:
            refundable = internals(the_journal()).store.refundable(payment.reference)
            return {"reference": refundable.free_reference(), "amount": refundable.default_amount}

        def pay(client: Client, payment: Payment, **chosen: Any) -> Any:
            return client.payouts.refund(of=payment.reference, **chosen)

        text = "The payer gets it from the B2C wallet. Suggested is what is left, or was paid beyond one payment."
        return self._ask(request, queryset.filter(kind="COLLECTION"), text, RefundForm, pay, suggest)

    @admin.action(description="Release", permissions=["release"])
    def release(self, request: HttpRequest, queryset: QuerySet[Any]) -> HttpResponse | None:
        """Allow a payment of unknown outcome to be sent again."""

        def release(client: Client, payment: Payment, **chosen: Any) -> Any:
            return client.payouts.release(reference=payment.reference, kind=EntryKind(payment.kind), **chosen)

        text = (
            "Release only what was certainly not paid: it may be sent again then. Look into the account console first."
            " The service's list is searched now, and again ten minutes later."
        )
        return self._ask(request, queryset, text, ReleaseForm, release)

    def _ask(
        self,
        request: HttpRequest,
        queryset: QuerySet[Any],
        text: str,
        form_class: type[forms.Form],
        act: Callable[..., Any],
        suggest: Callable[[Payment], dict[str, object]] = lambda _payment: {},
    ) -> HttpResponse | None:
        """Show the page that asks. After confirmation, act, show the result, and write it to the admin's log."""
        if queryset.count() != 1:
            self.message_user(request, "Choose one payment; a refund is of a collection.", messages.WARNING)
            return None  # leads back to the list
        payment, is_confirmed = queryset.get(), "confirmed" in request.POST
        try:
            suggested = {"by": request.user.get_username(), **suggest(payment)}
            form = form_class(request.POST if is_confirmed else None, initial=suggested)
            if not form.is_valid():
                title = dict(self.get_action_choices(request))[request.POST["action"]]
                context = self.admin_site.each_context(request)
                context |= {"title": title, "text": text, "payment": payment, "entry": payment.entry, "form": form}
                context["media"] = self.media
                return TemplateResponse(request, "admin/momopay/payment/ask.html", context)
            # A person waits, and web servers often end a request after half a minute.
            done = act(client.with_options(deadline=25.0, max_wait=10.0), payment, **form.cleaned_data)
            text, level = f"{done.reference} is {done.status or done.state}", messages.SUCCESS
        except (MomoPayError, ValueError) as error:
            text, level = str(error), messages.ERROR
        self.message_user(request, text, level)
        if is_confirmed:
            self.log_change(request, payment, text)
        return redirect("admin:momopay_payment_change", quote(payment.pk))


def _is_possible(action: str, payment: Payment) -> bool:
    """Return whether the payment's page has a button for an action."""
    if action == "refund":
        is_order = payment.kind == EntryKind.COLLECTION
        return is_order and internals(the_journal()).store.refundable(payment.reference).left > 0
    return action != "release" or payment.entry.state is JournalState.UNKNOWN


def _link_of(entry: Any) -> str | None:
    """Return the URL of the object that the setting makes of a reference, or of a refund's order; None for none."""
    make = link()
    if make is None:
        return None
    try:
        made = make(entry.refund_of or entry.reference)
        if isinstance(made, Model) and not hasattr(made, "get_absolute_url"):
            model = made._meta  # noqa: SLF001  a public name of Django
            return reverse(f"admin:{model.app_label}_{model.model_name}_change", args=[quote(made.pk)])
        return resolve_url(made) if made else None
    except (ObjectDoesNotExist, NoReverseMatch):
        return None


def _local(moment: datetime) -> str:
    """Return a time of Django's, which has no zone without USE_TZ, as text in the current zone."""
    return moment.astimezone(get_current_timezone()).isoformat(" ", "seconds")
