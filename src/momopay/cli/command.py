"""What all commands share: an error ends them with an exit status and a remedy, and shows no traceback or secret."""

from __future__ import annotations

import errno
import json
import os
import sys
import traceback
from inspect import cleandoc
from pathlib import Path
from typing import Any

from rich.text import Text
from typer import Abort, Exit
from typer.core import TyperCommand, TyperGroup

from momopay._redaction import redact
from momopay.cli.exit_codes import CommandError, ExitCode, exit_code_of, missing_extra, remedy_of
from momopay.cli.output import plain, stderr
from momopay.errors import APIError, MomoPayError, OutcomeUnknownError

# Where the context keeps whether tracebacks are wanted.
DEBUG = "momopay.debug"
# Where the context keeps whether ``--json`` was given before the command.
JSON = "momopay.json"


class Group(TyperGroup):
    """All the commands."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters, flags without a type beside them."""
        return _without_flag_types(super().get_params(ctx))


class Command(TyperCommand):
    """A command that reports errors as momopay does."""

    def __init__(self, name: str | None, *, help: str | None = None, **settings: Any) -> None:  # noqa: A002  typer's name
        # Typer keeps the line breaks of a docstring; the terminal is to wrap its paragraphs.
        paragraphs = cleandoc(help or "").split("\n\n")
        super().__init__(name, help="\n\n".join(each.replace("\n", " ") for each in paragraphs), **settings)

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters, flags without a type beside them."""
        return _without_flag_types(super().get_params(ctx))

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """Parse the arguments; mask keys and phones in what is said of wrong ones."""
        try:
            context = super().make_context(info_name, args, parent, **extra)
        except Exception as error:
            # Somebody who gives a key as an argument must not find it in a log of this program's output.
            for name in ("message", "param_hint"):
                text = getattr(error, name, None)
                if isinstance(text, str):
                    setattr(error, name, redact(text))
            raise
        # The option before the command belongs to the group, so the command learns of it here.
        if context.find_root().meta.get(JSON):
            context.params["as_json"] = True
        return context

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except Exit:
            raise
        except (Abort, KeyboardInterrupt):  # Abort is an interrupt at a question
            sys.stderr.write("Interrupted.\n")
            raise Exit(ExitCode.INTERRUPTED) from None
        except Exception as error:
            if isinstance(error, OSError) and error.errno == errno.EPIPE:
                # Nobody reads the output any more. Python flushes stdout once more at exit, which must not fail too.
                sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115  open until the process ends
                raise Exit(ExitCode.INTERRUPTED) from None
            if ctx.find_root().meta.get(DEBUG):
                sys.stderr.write(redact("".join(traceback.format_exception(error))))
            reported = _as_reported(error)
            _report(reported, as_json=bool(ctx.params.get("as_json")))
            raise Exit(exit_code_of(reported)) from error


def _without_flag_types(params: list[Any]) -> list[Any]:
    for param in params:
        if getattr(param, "is_flag", False):
            param.metavar = ""
    return params


def _as_reported(error: Exception) -> MomoPayError:
    if isinstance(error, MomoPayError):
        return error
    # An extra that is not installed is the one import error that the user can fix.
    known = missing_extra(error) if isinstance(error, ModuleNotFoundError) else None
    return known or CommandError(
        f"{type(error).__name__}: {error}",
        remedy="this should not happen: `momopay --debug ...` shows where it did. If it was about to pay, look into"
        " the account console before you pay again",
        code=ExitCode.BUG,
    )


def _report(error: MomoPayError, *, as_json: bool) -> None:
    """Write an error and its remedy to stderr."""
    if as_json:
        # Documented in the guide: programs read these names.
        fields: dict[str, object] = {
            "error": type(error).__name__,
            "code": error.code if isinstance(error, APIError) else None,
            "message": str(error),
            "remedy": remedy_of(error),
            "may_have_executed": error.may_have_executed,
            "request_id": error.request_id if isinstance(error, APIError) else None,
            "exit_code": exit_code_of(error),
        }
        if isinstance(error, OutcomeUnknownError):
            fields["matches"] = [each.transaction_id for each in error.matches]
            fields["near_matches"] = [each.transaction_id for each in error.near_matches]
        sys.stderr.write(json.dumps(fields) + "\n")
        return
    console = stderr()
    console.print(Text.assemble(("Error: ", "bold red"), plain(error)), soft_wrap=True)
    console.print(Text.assemble(("What to do: ", "bold"), plain(remedy_of(error))), soft_wrap=True)
