"""Refund a collection."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated

import typer

from momopay.cli.credentials import api_key, open_client, open_journal
from momopay.cli.options import BaseUrl, ConfirmLive, JournalAccount, JournalAt, Json, ShowPhones, Utc, amount
from momopay.cli.output import Output, kes, plain
from momopay.cli.prompts import Confirmation
from momopay.cli.transactions import show


def refund(
    of: Annotated[str, typer.Argument(metavar="REFERENCE", help="Of the collection, as in the journal.")],
    journal: JournalAt,
    amount_: Annotated[
        Decimal | None,
        typer.Option("--amount", metavar="KES", parser=amount, help="By default all that is left to refund."),
    ] = None,
    reference: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Of the refund; by default REFERENCE-R1.")
    ] = None,
    description: Annotated[str | None, typer.Option(metavar="TEXT", help="A short purpose.")] = None,
    yes: Annotated[bool, typer.Option("--yes", help="With a test key: do not ask.")] = False,
    confirm_live: ConfirmLive = None,
    account: JournalAccount = "default",
    base_url: BaseUrl = None,
    show_phones: ShowPhones = False,
    _utc: Utc = False,
    as_json: Json = False,
) -> None:
    """Pay back to the payer what was paid of a collection, or a part. Asks first.

    Run it again after any failure: one reference is paid once. All refunds of a collection together never exceed what
    was paid. Of an order that was paid twice, the default is what was paid too often. A second refund of the same
    collection needs a --reference of its own.

    Examples:
        momopay payouts refund INV-43 --journal shop.db
        momopay payouts refund INV-43 --amount 40 --journal shop.db
    """
    from momopay.journal.reports import refunds_of  # with the first journal, not with --help
    from momopay.resources.refund import default_reference

    output = Output(as_json, show_phones)
    key = api_key()
    with open_client(base_url, key=key) as client, open_journal(journal, account) as opened:
        name = default_reference(of) if reference is None else reference
        due, phone = refunds_of(opened, of).plan(name, amount_)
        confirmation = Confirmation(key, may_move=Decimal(due), yes=yes, confirm_live=confirm_live)
        question = f"Pay KES {kes(Decimal(due))} back to {plain(output.phone(phone))}, as {plain(output.text(name))}?"
        confirmation.ask(question, to_type="yes")
        # The amount that was agreed to, and no other, whatever others refund meanwhile.
        made = client.payouts.refund(journal=opened, of=of, amount=due, reference=name, description=description)
        show(output, made)
