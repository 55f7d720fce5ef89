"""The ``momopay`` program: its commands and its global options."""

from __future__ import annotations

import logging
import sys
from typing import Annotated

import typer
from typer import Option

from momopay import __version__
from momopay.cli import development, doctor, journal, mcp, payouts, probe, report, transactions
from momopay.cli.command import DEBUG, App, Command, command
from momopay.cli.exit_codes import ExitCode

_EPILOG = "\n".join(
    [
        "Settings: MOMOPAY_API_KEY (the key is never an argument), MOMOPAY_BASE_URL and MOMOPAY_JOURNAL.\n",
        "Exit codes:",
        *(f"{code.value:>3}  {code.meaning}" for code in ExitCode),
    ]
)

app: typer.Typer = typer.Typer(
    name="momopay",
    cls=App,
    no_args_is_help=True,
    pretty_exceptions_enable=False,  # they show local variables, which hold keys and phones
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=_EPILOG,
)
_PAYMENTS, _RECORDS, _DEVELOPMENT = "Payments", "Records", "Development"
command(app, untouched="Nothing was sent.", rich_help_panel=_PAYMENTS)(transactions.collect)
app.add_typer(payouts.app, name="payouts", rich_help_panel=_PAYMENTS)
app.add_typer(transactions.app, name="transactions", rich_help_panel=_PAYMENTS)
command(app, rich_help_panel=_PAYMENTS)(transactions.balance)
command(app, rich_help_panel=_PAYMENTS)(transactions.channels)
command(app, rich_help_panel=_RECORDS)(journal.sweep)
command(app, rich_help_panel=_RECORDS)(journal.reconcile)
command(app, rich_help_panel=_RECORDS)(report.report)
command(app, rich_help_panel=_RECORDS)(mcp.mcp)
app.add_typer(journal.app, name="journal", rich_help_panel=_RECORDS)
app.command(
    cls=Command,
    rich_help_panel=_DEVELOPMENT,
    # The sandbox's own parser reads the arguments, --help among them.
    add_help_option=False,
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
)(development.sandbox)
command(app, rich_help_panel=_DEVELOPMENT)(development.listen)
app.add_typer(development.app, name="callback", rich_help_panel=_DEVELOPMENT)
command(app, rich_help_panel=_DEVELOPMENT)(doctor.doctor)
command(app, rich_help_panel=_DEVELOPMENT)(probe.probe)


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
        Option("--debug", envvar="MOMOPAY_DEBUG", help="Show the traceback of an error, and the library's log."),
    ] = False,
    _version: Annotated[
        bool, Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Collect payments, pay out, and read transactions, from a terminal."""
    ctx.find_root().meta[DEBUG] = debug
    handler = logging.StreamHandler(sys.stderr)
    # Errors are shown without --debug too, since they report payments of unknown outcome.
    shown = {"momopay.cli", "momopay.reconcile"}
    handler.addFilter(lambda log: debug or log.levelno >= logging.ERROR or log.name in shown)
    logger = logging.getLogger("momopay")
    logger.addHandler(handler)
    # Otherwise a process that runs several commands, such as a test, would log each line several times.
    ctx.call_on_close(lambda: logger.removeHandler(handler))
