"""The program: its commands, and the options that come before them."""

from __future__ import annotations

import logging
import sys
from typing import Annotated

import typer

from momopay import __version__
from momopay.cli import (
    account,
    callback,
    collect,
    doctor,
    journal,
    listen,
    payouts,
    probe,
    records,
    sandbox,
    transactions,
)
from momopay.cli.command import DEBUG, JSON, App, Command, command
from momopay.cli.exit_codes import ExitCode

_EPILOG = "\n".join(
    [
        "[bold]Settings.[/bold] MOMOPAY_API_KEY (the key is never an argument), MOMOPAY_BASE_URL and MOMOPAY_JOURNAL.\n",
        "[bold]Exit codes[/bold]",
        *(f"{code.value:>3}  {code.meaning}" for code in ExitCode),
    ]
)

app: typer.Typer = typer.Typer(
    name="momopay",
    cls=App,
    no_args_is_help=True,
    pretty_exceptions_enable=False,  # they would show the locals of frames, with keys and phones
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=_EPILOG,
)
_PAYMENTS, _RECORDS, _DEVELOPMENT = ({"rich_help_panel": name} for name in ("Payments", "Records", "Development"))
command(app, **_PAYMENTS)(collect.collect)
app.add_typer(payouts.app, name="payouts", **_PAYMENTS)
app.add_typer(transactions.app, name="transactions", **_PAYMENTS)
command(app, **_PAYMENTS)(account.balance)
command(app, **_PAYMENTS)(account.channels)
command(app, **_RECORDS)(records.sweep)
command(app, **_RECORDS)(records.reconcile)
app.add_typer(journal.app, name="journal", **_RECORDS)
app.command(cls=Command, **_DEVELOPMENT)(sandbox.sandbox)
command(app, **_DEVELOPMENT)(listen.listen)
app.add_typer(callback.app, name="callback", **_DEVELOPMENT)
command(app, **_DEVELOPMENT)(doctor.doctor)
app.command(cls=Command, **_DEVELOPMENT)(probe.probe)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"momopay {__version__}")
        raise typer.Exit


@app.callback()
def options(
    ctx: typer.Context,
    *,
    debug: Annotated[
        bool,
        typer.Option("--debug", envvar="MOMOPAY_DEBUG", help="Show the traceback of an error, and the library's log."),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="The same as --json after the command.")] = False,
    _version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Collect payments, pay out, and read transactions, from a terminal."""
    ctx.find_root().meta[DEBUG] = debug
    ctx.find_root().meta[JSON] = as_json
    handler = logging.StreamHandler(sys.stderr)
    # Without --debug too: a wait for the rate budget, and a payment whose outcome is unknown, must not be silent.
    handler.setLevel(logging.DEBUG if debug else logging.WARNING)
    logger = logging.getLogger("momopay")
    logger.addHandler(handler)
    # A process that runs several commands, such as a test, would otherwise log each line several times.
    ctx.call_on_close(lambda: logger.removeHandler(handler))
