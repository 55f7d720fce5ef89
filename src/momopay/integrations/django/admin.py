"""The admin: payments to look at, and three actions, each after a page that asks.

Nothing here writes a payment but the three actions, which are calls of the client; the model is on a view of the
database, which takes no writes. Phones are shown whole: whoever may view payments looks for them, and calls customers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from decimal import Decimal
from functools import partialmethod
from typing import TYPE_CHECKING, Any, ClassVar, Final

from django import forms
from django.contrib import admin, messages
from django.contrib.admin import helpers
from django.contrib.admin.utils import quote
from django.db import transaction
from django.db.models import Count, Q, QuerySet, Sum
from django.db.models.expressions import RawSQL
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.loader import render_to_string
from django.template.response import TemplateResponse

from momopay._core.wiring import load
from momopay.errors import CallbackError, MomoPayError, RequestValidationError
from momopay.integrations.django.clients import client, the_journal
from momopay.integrations.django.models import Payment
from momopay.phones import normalise_phone

if TYPE_CHECKING:
    _Model = admin.ModelAdmin[Payment]
else:
    _Model = admin.ModelAdmin

_ACTIONS: Final = ("read_again", "refund", "release")
_AT_ONCE: Final = 20
_FIND: Final = """
    SELECT kind || ':' || reference FROM momopay_payments WHERE account = 'default' AND phone LIKE %s
    UNION SELECT kind || ':' || reference FROM momopay_transactions
    WHERE account = 'default' AND (transaction_id = %s OR upper(receipt) = upper(%s) OR phone LIKE %s)"""


class RefundForm(forms.Form):
    """How much to pay back."""

    reference: forms.Field = forms.CharField(widget=forms.HiddenInput)  # sent twice, it pays once
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

    list_display: Any = ("reference", "kind", "amount", "phone", "state", "status", "receipt", "created_at")
    list_filter: ClassVar[Any] = ("kind", "state", "status", "created_at")
    date_hierarchy: ClassVar[Any] = "created_at"
    search_fields: ClassVar[Any] = ("reference", "phone", "receipt")
    search_help_text: ClassVar[Any] = "Reference, phone or receipt"
    list_per_page: ClassVar[Any] = 50
    fields: ClassVar[Any] = (
        *("reference", "kind", "amount", "phone", "state", "status", "code", "result_code", "receipt"),
        *("transaction_id", "attempts", "refund_of", "metadata", "created_at", "ended_at"),
        *("released_by", "released_at", "transactions"),
    )
    actions: Any = _ACTIONS

    def _never(self, request: HttpRequest, obj: Any = None) -> bool:  # noqa: ARG002  as Django calls it
        return False

    has_add_permission: Any = _never
    has_change_permission: Any = _never
    has_delete_permission: Any = _never

    def _may(self, action: str, request: HttpRequest) -> bool:
        user: Any = request.user
        return bool(user.has_perm(f"momopay.{action}_payment"))

    # Django asks for these by the names that the actions give.
    has_read_again_permission: Any = partialmethod(_may, "read_again")
    has_refund_permission: Any = partialmethod(_may, "refund")
    has_release_permission: Any = partialmethod(_may, "release")

    @admin.display(description="amount, KES", ordering="cents")
    def amount(self, payment: Payment) -> str:
        """Return the amount."""
        return payment.amount

    @admin.display
    def transactions(self, payment: Payment) -> str:
        """Return the table of a payment's transactions."""
        entry = the_journal().get(payment.reference, load("journal.entries.EntryKind")(payment.kind))
        return render_to_string("admin/momopay/payment/transactions.html", {"entry": entry})

    def get_search_results(
        self,
        request: HttpRequest,  # noqa: ARG002  as Django has it
        queryset: QuerySet[Any],
        search_term: str,
    ) -> Any:
        """Find a reference or a phone in part, a receipt or a transaction's id as a whole."""
        term = search_term.strip()
        if not term:
            return queryset, False
        digits = "".join(filter(str.isdigit, term))
        with suppress(ValueError):
            digits = normalise_phone(term)
        phone = f"%{digits}%" if len(digits) >= 6 else None  # noqa: PLR2004  fewer are in too many phones
        found = RawSQL(_FIND, [phone, term, term, phone])  # noqa: S611  the term is a parameter
        return queryset.filter(Q(reference__icontains=term) | Q(pk__in=found)), False

    @transaction.non_atomic_requests
    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        """Show the list with its sums, or run an action."""
        response = super().changelist_view(request, extra_context)
        listed: dict[str, Any] = getattr(response, "context_data", None) or {}
        if "cl" in listed:
            paid = Sum("cents", filter=Q(status="SUCCESS"), default=0)
            rows = listed["cl"].queryset.order_by().values("kind")
            sums = rows.annotate(count=Count("pk"), total=Sum("cents"), paid=paid).order_by("kind")
            money = ("total", "paid")
            listed["sums"] = [row | {name: f"{Decimal(row[name]) / 100:,.2f}" for name in money} for row in sums]
        return response

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: Any = None
    ) -> HttpResponse:
        """Show a payment, with a button for each action."""
        buttons = {"buttons": self._labels(request).items()}
        return super().change_view(request, object_id, form_url, buttons | (extra_context or {}))

    def _labels(self, request: HttpRequest) -> dict[str, str]:
        """Return the actions that the user may run, with their labels."""
        return {name: label for name, label in self.get_action_choices(request) if name in _ACTIONS}

    @admin.action(description="Read again from the service", permissions=["read_again"])
    def read_again(self, request: HttpRequest, queryset: QuerySet[Any]) -> HttpResponse | None:
        """Read payments from the service, record them, and send the signal for what ended."""
        payments = list(queryset[: _AT_ONCE + 1])
        if len(payments) > _AT_ONCE:
            return self._refuse(request, f"Read at most {_AT_ONCE} payments at once.")
        text = "The service is asked how these payments stand, and the shop learns of what ended. No money moves."
        return self._act(request, "read_again", payments, text, lambda: ", ".join(map(_read_again, payments)))

    @admin.action(description="Refund", permissions=["refund"])
    def refund(self, request: HttpRequest, queryset: QuerySet[Any]) -> HttpResponse | None:
        """Pay a collection back, or a part."""
        payments = list(queryset[:2])
        if len(payments) != 1 or payments[0].kind != "COLLECTION":
            return self._refuse(request, "Only a collection can be refunded, one at a time.")
        of = payments[0].reference
        refundable = load("journal.journal.parts_of")(the_journal()).store.refundable(of)
        if not refundable.left and "confirmed" not in request.POST:  # sent twice, it shows the refund again
            return self._refuse(request, f"Nothing of {of} can be refunded. If it was paid meanwhile, read it again.")
        initial = {"reference": refundable.free_reference(), "amount": refundable.by_default}
        form = RefundForm(request.POST if "confirmed" in request.POST else None, initial=initial)
        text = f"KES {refundable.paid:,.2f} was paid. KES {refundable.left:,.2f} of it can be refunded, to the payer."

        def pay() -> str:
            paid = _hurried().payouts.refund(of=of, **form.cleaned_data)
            return f"Refund {paid.reference}: KES {paid.amount:,.2f}, {paid.status}"

        return self._act(request, "refund", payments, text, pay, form)

    @admin.action(description="Release", permissions=["release"])
    def release(self, request: HttpRequest, queryset: QuerySet[Any]) -> HttpResponse | None:
        """Allow that a payment whose outcome is unknown is sent again."""
        payments = list(queryset[:2])
        if len(payments) != 1:
            return self._refuse(request, "Choose one payment.")
        chosen = {"reference": payments[0].reference, "kind": payments[0].kind}
        initial = {"by": request.user.get_username()}
        form = ReleaseForm(request.POST if "confirmed" in request.POST else None, initial=initial)
        text = (
            "Release only what was certainly not paid: it may be sent again then. Look into the account console first."
            " The service's list is searched now, and again ten minutes later. The release is refused while the list"
            " shows the payment, if it was accepted, and until a minute after its last attempt."
        )

        def release() -> str:
            entry = _hurried().payouts.release(**chosen, **form.cleaned_data)
            return f"{entry.reference} is {entry.state}: it may be sent"

        return self._act(request, "release", payments, text, release, form)

    def _refuse(self, request: HttpRequest, why: str) -> HttpResponse | None:
        self.message_user(request, why, messages.WARNING)
        return None  # which leads back to the list

    def _act(
        self,
        request: HttpRequest,
        action: str,
        payments: list[Payment],
        text: str,
        work: Callable[[], str],
        form: forms.Form | None = None,
    ) -> HttpResponse:
        """Show the page that asks; once it was confirmed, act, say how it went, and write that into the admin's log."""
        if "confirmed" not in request.POST or (form is not None and not form.is_valid()):
            context = {"title": self._labels(request)[action], "opts": self.opts, "action": action, "text": text}
            context |= {"payments": payments, "form": form, "action_checkbox_name": helpers.ACTION_CHECKBOX_NAME}
            context |= self.admin_site.each_context(request)
            return TemplateResponse(request, "admin/momopay/payment/ask.html", context)
        try:
            done, level = work(), messages.SUCCESS
        except RequestValidationError as error:
            done, level = "; ".join(_problems(error, payments)), messages.ERROR
        except (MomoPayError, ValueError) as error:
            done, level = str(error), messages.ERROR
        self.message_user(request, done, level)
        for payment in payments:
            self.log_change(request, payment, done)
        if len(payments) == 1:
            return redirect("admin:momopay_payment_change", quote(payments[0].pk))
        return redirect("admin:momopay_payment_changelist")


def _problems(error: RequestValidationError, payments: list[Payment]) -> Iterator[str]:
    """Yield what is wrong, with the payment in place of the name of the argument that names it."""
    for name, problem in error.fields.items():
        yield f"{payments[0].reference if name in {'of', 'reference'} else name} {problem}"


def _hurried() -> Any:
    # A person waits: for a slot of the rate budget, and for the call as a whole.
    return client.with_options(max_wait=10.0, deadline=40.0)


def _read_again(payment: Payment) -> str:
    """Search for a payment if it is unresolved, and read what may have changed; return how it stands."""
    journal: Any = the_journal()
    hurried = _hurried()
    entry = journal.get(payment.reference, payment.kind)
    before = {each.transaction_id: each.status for each in entry.transactions}
    if entry.state == "UNKNOWN":
        journal.reconcile_all(hurried)
        entry = journal.get(payment.reference, payment.kind)
    for transaction_id in entry.transaction_ids:
        if before.get(transaction_id) == "SUCCESS":
            continue
        read = hurried.transactions.get(transaction_id)  # of a prompt that ended, too: it may have been paid late
        settled = journal.settle(read)
        if settled is None or before.get(transaction_id) == read.status:
            continue
        if load("models.enums.has_settled")(entry.kind.transaction_type, read.status):
            # Another process may be handling it. If a receiver raises, the next sweep delivers the end again.
            with suppress(CallbackError), journal.handling(read) as is_first:
                if is_first:
                    load("integrations.django.views.send_end")(read)
        entry = settled
    return f"{entry.reference} is {entry.status or entry.state}"
