"""What `Payouts.pay_all` takes and yields, and its limits. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from decimal import Decimal
from typing import Any, Final, Literal, Protocol, Self, TypeGuard

from momopay._redaction import mask_phone, redact, redacted_repr
from momopay.durable.payment import Payment
from momopay.errors import MomoPayError, RequestValidationError
from momopay.journal.entries import JournalState
from momopay.models.arguments import ChannelRef
from momopay.money import format_amount, parse_amount

__all__ = ["PayoutItem", "PayoutOutcome"]

# References above `max_each` that an error names.
_NAMED: Final = 5


@dataclass(frozen=True, kw_only=True, repr=False)
class PayoutItem:
    """One payout for `Payouts.pay_all`, with the arguments of `Payouts.pay_once`. It is checked when it is paid.

    Attributes:
        reference: Your own reference for this payout; it belongs to this amount and phone forever.
        amount: KES, at least 10, no more than two decimals.
        phone: The recipient's number, in any form that `normalise_phone` takes. The repr masks it.
        description: A short purpose.
        currency: KES, the only one.
        channel_id: A payment channel, or its id.
        callback_url: Public HTTPS address that receives the result.
        metadata: A JSON object of your own, kept in the journal's entry and never sent.
    """

    reference: str
    amount: int | Decimal
    phone: str
    description: str | None = None
    currency: Literal["KES"] = "KES"
    channel_id: ChannelRef | None = None
    callback_url: str | None = None
    metadata: Mapping[str, object] | None = field(default=None, hash=False)

    def __repr__(self) -> str:
        shown = f"reference={self.reference!r}, amount={self.amount!r}, phone={mask_phone(str(self.phone))!r}"
        return redact(f"PayoutItem({shown}, description={self.description!r})")


@dataclass(frozen=True, repr=False)
class PayoutOutcome:
    """What happened to one payout of `Payouts.pay_all`.

    Attributes:
        reference: The caller's reference.
        state: What the journal says of it. ACCEPTED is not paid yet: the service may still reverse it. NOT_SENT also
            where the arguments were refused here, and REFUSED where the reference is that of another payout.
        payment: The payment, None if it was not accepted. One that the journal has as accepted is as the journal has
            it, without a request: its status is the last that the service reported.
        error: Why it was not accepted, or is not known to be; None if all went well.
        stops: Whether the run ends here, because every other payout would meet this error too. Fix the reason, then
            run again.
    """

    reference: str
    state: JournalState
    payment: Payment | None = None
    error: MomoPayError | None = None
    stops: bool = False

    def __repr__(self) -> str:
        # The payment masks its own phone, and its id must stay whole.
        shown = f"reference={redacted_repr(self.reference)}, state={self.state.value!r}, payment={self.payment!r}"
        return f"PayoutOutcome({shown}, error={self.error!r}, stops={self.stops})"


_NAMES: Final = [each.name for each in fields(PayoutItem)]
_REQUIRED: Final = [each.name for each in fields(PayoutItem) if each.default is MISSING]


def is_mapping(given: object) -> TypeGuard[Mapping[object, Any]]:
    """Return whether it is a mapping."""
    return isinstance(given, Mapping)


def item_of(given: object) -> PayoutItem:
    """Return an item as given, or made from a mapping.

    Raises:
        RequestValidationError: It is neither, or a name in the mapping is missing or unknown.
    """
    if isinstance(given, PayoutItem):
        return given
    if not is_mapping(given):
        raise RequestValidationError({"payouts": "must be PayoutItems, or mappings of the arguments of pay_once"})
    problems = {name: "is missing" for name in _REQUIRED if name not in given}
    problems |= {redact(str(name)): "is not an argument of a payout" for name in given if name not in _NAMES}
    if problems:
        raise RequestValidationError(problems)
    return PayoutItem(**{name: given[name] for name in _NAMES if name in given})


def reference_in(given: object) -> str:
    """Return the reference of an item that cannot be paid, to report it under; "" if it has none."""
    found = given.get("reference") if is_mapping(given) else getattr(given, "reference", None)
    return found if isinstance(found, str) else ""


class HasAmount(Protocol):
    """A payout whose arguments were checked."""

    @property
    def reference(self) -> str:
        """The caller's reference."""
        ...

    @property
    def amount(self) -> Decimal:
        """KES."""
        ...


class HasPayee(HasAmount, Protocol):
    """A payout whose arguments were checked, with whom it goes to."""

    @property
    def phone(self) -> str:
        """``254XXXXXXXXX``."""
        ...


@dataclass(frozen=True)
class PayoutLimits:
    """The most that a run may pay, KES; None is without a limit."""

    total: Decimal | None
    each: Decimal | None

    @classmethod
    def checked(cls, max_total: object, max_each: object) -> Self:
        """Return the limits; raise RequestValidationError if one is not an amount."""
        amounts: list[Decimal | None] = []
        for name, value in (("max_total", max_total), ("max_each", max_each)):
            try:
                amounts.append(None if value is None else parse_amount(value, 0))
            except ValueError as error:
                raise RequestValidationError({name: str(error)}) from error
        return cls(*amounts)

    @property
    def are_set(self) -> bool:
        """Whether there is a limit."""
        return self.total is not None or self.each is not None

    def check(self, payouts: Sequence[HasAmount]) -> None:
        """Raise RequestValidationError that names what exceeds a limit."""
        problems: dict[str, str] = {}
        total = sum((each.amount for each in payouts), Decimal(0))
        if self.total is not None and total > self.total:
            limit = f"more than KES {format_amount(self.total)}"
            problems["max_total"] = f"{len(payouts)} payouts come to KES {format_amount(total)}, {limit}"
        above = [each for each in payouts if self.each is not None and each.amount > self.each]
        if self.each is not None and above:
            named = [f"{redacted_repr(each.reference)} (KES {format_amount(each.amount)})" for each in above[:_NAMED]]
            named += [f"{len(above) - _NAMED} others"] if len(above) > _NAMED else []
            problems["max_each"] = f"more than KES {format_amount(self.each)}: {', '.join(named)}"
        if problems:
            raise RequestValidationError(problems)
