"""``manage.py momopay_sweep``: finds the ends of payments that no callback reported."""

from __future__ import annotations

from argparse import ArgumentParser
from contextlib import nullcontext, suppress
from math import ceil
from threading import Event
from typing import Any, Literal

from django.core.management.base import BaseCommand, CommandError
from django.db import close_old_connections

from momopay import ConfigurationError, InvalidApiKeyError, MomoPayError
from momopay.integrations.django.clients import client
from momopay.integrations.django.views import send_end


class Command(BaseCommand):
    """The command. It is safe to run several at once."""

    # Cron runs it every minute, and mails what a command prints.
    requires_system_checks: list[str] | tuple[str, ...] | Literal["__all__"] = ()
    help = "Follow the payments that have not ended; send payment_ended for each end. Run it every minute."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add the option."""
        parser.add_argument("--every", type=float, metavar="SECONDS", help="Sweep again and again, until Ctrl-C.")

    def handle(self, *_args: Any, verbosity: int = 1, every: float | None = None, **_options: Any) -> None:
        """Sweep once, or until the process ends."""
        if every is not None and not 1 <= every <= 86_400:  # noqa: PLR2004  a day
            raise CommandError("--every must be from 1 to 86400 seconds")
        with suppress(KeyboardInterrupt) if every else nullcontext():
            while True:
                try:
                    report = client.transactions.sweep(handler=send_end)
                    if verbosity:
                        self.stdout.write(", ".join(f"{number} {name}" for name, number in vars(report).items()))
                except MomoPayError as error:
                    if every is None or isinstance(error, ConfigurationError | InvalidApiKeyError):
                        raise CommandError(str(error)) from error
                    self.stderr.write(f"the next sweep goes on: {error}")
                if every is None:
                    return
                close_old_connections()
                turns = ceil(every)
                for _ in range(turns):  # Windows notices Ctrl-C only between two waits
                    Event().wait(every / turns)
