"""One account, many branches: each collects on its own till or paybill, by its own provider credentials.

    python examples/branches.py [branches.toml]

Routing is decided before the first sale: a branch whose channel is not on the account stops the program at its start,
not a customer at the counter. Then a sale names its branch and nothing else. Without MOMOPAY_* settings this runs on
the embedded sandbox and makes a few sales; with them it only shows the routing and the day's takings.
"""

from __future__ import annotations

import os
import sys
import tomllib
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import NamedTuple

from momopay import Client, PaymentChannel, PollSchedule, StkTransaction

NAIROBI = timezone(timedelta(hours=3))


class Route(NamedTuple):
    """Where a branch's money goes, and with whose credentials it is asked for."""

    channel: PaymentChannel
    credential_id: str | None


class Branches:
    """The routes of all branches, checked when they are made."""

    def __init__(self, client: Client, path: Path) -> None:
        """Match the file with the account's channels.

        Raises:
            LookupError: A branch names a shortcode that has no channel.
        """
        self._client = client
        by_shortcode = {channel.shortcode: channel for channel in client.channels.list()}
        wanted = tomllib.loads(path.read_text(encoding="utf-8"))
        missing = [name for name, branch in wanted.items() if branch["shortcode"] not in by_shortcode]
        if missing:
            raise LookupError(f"no channel on the account for: {', '.join(missing)}")
        self.routes: dict[str, Route] = {
            name: Route(by_shortcode[branch["shortcode"]], branch.get("credential_id"))
            for name, branch in wanted.items()
        }

    def sell(self, branch: str, *, amount: int | Decimal, phone: str, reference: str) -> StkTransaction:
        """Prompt for a sale. The channel is always named: the default channel would take a branch's money otherwise.

        With a credential profile, the channel's type decides between paybill and till, and its shortcode receives the
        money; the profile's own shortcode only signs the request (SPEC.md, "When credential_id is given").
        """
        route = self.routes[branch]
        return self._client.stk.initiate(
            amount=amount,
            phone=phone,
            account_reference=reference,
            transaction_desc=branch[:13],
            channel_id=route.channel,
            credential_id=route.credential_id,
        )

    def takings(self) -> Iterator[tuple[str, int, Decimal]]:
        """Give each branch's number of sales today and their sum, KES, by the service's own list."""
        midnight = datetime.now(NAIROBI).replace(hour=0, minute=0, second=0, microsecond=0)
        for name, route in self.routes.items():
            paid = self._client.transactions.iter(
                channel_id=route.channel, type="STK", status="SUCCESS", from_=midnight
            )
            amounts = [transaction.amount for transaction in paid]
            yield name, len(amounts), sum(amounts, Decimal(0))


def show(branches: Branches) -> None:
    """Print routes and takings."""
    for name, route in branches.routes.items():
        credentials = route.credential_id or "the account's own"
        print(f"{name:<12} {route.channel.type:<12} {route.channel.shortcode}  credentials: {credentials}")
    for name, sales, total in branches.takings():
        print(f"{name:<12} {sales} sales, KES {total}")


def main() -> None:
    """Show the routing on the real service, or sell on the sandbox."""
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).with_name("branches.toml")
    if "MOMOPAY_BASE_URL" in os.environ:
        with Client() as client:
            show(Branches(client, path))
        return
    from momopay.sandbox import Sandbox

    with Sandbox(speed=20) as sandbox, Client("pk_test_chain", base_url=sandbox.base_url) as client:
        try:
            Branches(client, path)
        except LookupError as refused:
            print(f"At first: {refused}")
        client.channels.create(name="Westlands till", type="TILL_NUMBER", shortcode="600201")
        client.channels.create(name="Mombasa", type="PAYBILL", shortcode="600202", account_number="MSA")
        branches = Branches(client, path)
        sales = [
            branches.sell(branch, amount=amount, phone="0712 345 678", reference=f"SALE-{number}")
            for number, (branch, amount) in enumerate([("westlands", 150), ("mombasa", 80), ("mombasa", 20)], start=1)
        ]
        for paid in client.transactions.wait_all(sales, schedule=PollSchedule(first=1, every=1, limit=60)):
            print(f"{paid.account_reference}: {paid.status}")
        show(branches)


if __name__ == "__main__":
    main()
