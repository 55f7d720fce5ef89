"""The account's service wallet and payment channels. Nothing here moves money."""

from __future__ import annotations

from momopay.cli.options import ServiceOptions

_CHANNELS = {
    "Channel": "name id",
    "Default": "is_default",
    "Type": "type",
    "Shortcode": "shortcode",
    "Account": "account_number",
}


def balance(options: ServiceOptions) -> None:
    """Show the service wallet, from which fees are paid.

    The B2C wallet, from which payouts are paid, cannot be read over the API: see the account console.

    Examples:
        momopay balance
    """
    with options.client() as client:
        wallet = client.wallet.balance()
    options.output.record(wallet)


def channels(options: ServiceOptions) -> None:
    """List the payment channels, the default one first.

    Examples:
        momopay channels --json
    """
    with options.client() as client:
        found = client.channels.list()
    if found or options.as_json:
        shown = options.output.table(found, _CHANNELS)
        options.output.result({"items": found}, shown)
    else:
        options.output.result(None, "This account has no payment channel: an STK prompt would be refused.")
