"""The account at a glance: the service wallet and the payment channels. Nothing here moves money."""

from __future__ import annotations

from rich.table import Table

from momopay.cli.credentials import open_client
from momopay.cli.options import BaseUrl, Json
from momopay.cli.output import Output, kes, moment, plain, table


def balance(base_url: BaseUrl = None, as_json: Json = False) -> None:
    """Show the service wallet, from which fees are paid.

    The B2C wallet, from which payouts are paid, cannot be read over the API: see the account console.
    """
    output = Output(as_json)
    with open_client(base_url) as client:
        wallet = client.wallet.balance()
    if as_json:
        output.document(wallet)
        return
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold")
    grid.add_column(justify="right")
    grid.add_row("Available", f"{plain(wallet.currency)} {kes(wallet.available_balance)}")
    grid.add_row("Ledger", f"{plain(wallet.currency)} {kes(wallet.ledger_balance)}")
    grid.add_row("Updated", moment(wallet.updated_at))
    output.people("Service wallet", grid)


def channels(base_url: BaseUrl = None, as_json: Json = False) -> None:
    """List the payment channels, the default one first."""
    output = Output(as_json)
    with open_client(base_url) as client:
        found = client.channels.list()
    if as_json:
        output.document({"items": found})
        return
    if not found:
        output.people("This account has no payment channel: an STK prompt would be refused.")
        return
    shown = table("Channel", "Type", "Shortcode", "Account")
    for channel in found:
        name = plain(channel.name) + (" (default)" if channel.is_default else "")
        account = output.text(channel.account_number)
        shown.add_row(f"{name}\n{plain(channel.id)}", plain(channel.type), plain(channel.shortcode), account)
    output.people(shown)
