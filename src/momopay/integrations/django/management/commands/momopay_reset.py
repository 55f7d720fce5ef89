"""``manage.py momopay_reset``: removes all payments from the journal of a test key, to start over in development."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import connections

from momopay import ConfigurationError, JournalError
from momopay._core.config import Account
from momopay.integrations.django.clients import client_options, database, the_journal
from momopay.journal.journal import internals


class Command(BaseCommand):
    """The command."""

    help = "With a test key: remove all payments from the journal, to start over in development."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add the option."""
        parser.add_argument("--no-input", "--noinput", action="store_true", help="Do not ask.")

    def handle(self, *_args: Any, no_input: bool = False, **_options: Any) -> None:
        """Remove them, after a question if a person is at a terminal."""
        try:
            given = client_options()
            account = Account(given.get("api_key"), given.get("base_url"))
            store = internals(the_journal()).store
            folder = store.database.shared.folder
            where = f"the database {connections[database()].settings_dict['NAME']}"
            what = f"all payments in {where}" + (f", and their number in {folder}" if folder else "")
            if account.identity.mode != "test":
                raise CommandError(f"only with a test key; nothing was removed. It would be {what}")
            if not no_input and sys.stdin.isatty() and input(f"This removes {what}. Go on? [y/N] ").lower() != "y":
                raise CommandError("nothing was removed")
            store.watermark.remove_all()
        except (ConfigurationError, JournalError) as error:
            raise CommandError(str(error)) from error
        self.stdout.write(f"Removed {what}. Restart the programs that use it.")
