"""What all commands have in common: errors end them with a status and a remedy, never with a traceback or a secret."""

from __future__ import annotations

import errno
import json
import os
import sys
import traceback
from inspect import cleandoc
from pathlib import Path
from typing import Any

from typer import Abort, Exit
from typer.core import TyperCommand, TyperGroup

from momopay._redaction import redact
from momopay.cli.exit_codes import (
    CommandError,
    ExitCode,
    exit_code_of,
    missing_extra,
    remedy_of,
    request_id_of,
)
from momopay.errors import APIError, MomoPayError

DEBUG = "momopay.debug"
"""Where the context keeps whether tracebacks are wanted."""
JSON = "momopay.json"
"""Where the context keeps whether ``--json`` was given before the command."""


class Group(TyperGroup):
    """All the commands."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Give the parameters; a flag needs no type beside it."""
        return _bare_flags(super().get_params(ctx))


class Command(TyperCommand):
    """A command whose errors are told as momopay tells them."""

    def __init__(self, name: str | None, *, help: str | None = None, **settings: Any) -> None:  # noqa: A002  typer's name
        paragraphs = cleandoc(help or "").split("\n\n")
        super().__init__(name, help="\n\n".join(each.replace("\n", " ") for each in paragraphs), **settings)

    def get_params(self, ctx: Any) -> list[Any]:
        """Give the parameters; a flag needs no type beside it."""
        return _bare_flags(super().get_params(ctx))

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """Read the arguments; whatever is wrong with them is told without keys and phones."""
        try:
            made = super().make_context(info_name, args, parent, **extra)
        except Exception as error:
            for name in ("message", "param_hint"):
                text = getattr(error, name, None)
                if isinstance(text, str):
                    setattr(error, name, redact(text))
            raise
        if made.find_root().meta.get(JSON):
            made.params["as_json"] = True
        return made

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except Exit:
            raise
        except (Abort, KeyboardInterrupt):  # the first is an interrupt at a question
            sys.stderr.write("Interrupted.\n")
            raise Exit(ExitCode.INTERRUPTED) from None
        except MomoPayError as error:
            raise _end(ctx, error, error) from None
        except Exception as error:  # noqa: BLE001  whatever it is, it is told without secrets
            if isinstance(error, OSError) and error.errno == errno.EPIPE:
                sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115  whoever read it has gone; it ends with the process
                raise Exit(ExitCode.INTERRUPTED) from None
            known = missing_extra(error) if isinstance(error, ModuleNotFoundError) else None
            raise _end(ctx, error, known or _bug(error)) from None


def _bare_flags(params: list[Any]) -> list[Any]:
    for param in params:
        if getattr(param, "is_flag", False):
            param.metavar = ""
    return params


def _bug(error: Exception) -> CommandError:
    return CommandError(
        f"{type(error).__name__}: {error}",
        remedy="this should not happen: `momopay --debug ...` shows where it did. If it was about to pay, look into"
        " the account console before you pay again",
        code=ExitCode.BUG,
    )


def _end(ctx: Any, cause: Exception, error: MomoPayError) -> Exit:
    if ctx.find_root().meta.get(DEBUG):
        sys.stderr.write(redact("".join(traceback.format_exception(cause))))
    tell(error, as_json=bool(ctx.params.get("as_json")))
    return Exit(exit_code_of(error))


def tell(error: MomoPayError, *, as_json: bool) -> None:
    """Write an error and its remedy to stderr."""
    message, remedy = str(error), remedy_of(error)
    if as_json:
        told = {
            "error": type(error).__name__,
            "code": error.code if isinstance(error, APIError) else None,
            "message": message,
            "remedy": remedy,
            "may_have_executed": error.may_have_executed,
            "request_id": request_id_of(error),
            "exit_code": exit_code_of(error),
        }
        sys.stderr.write(json.dumps(told) + "\n")
        return
    from rich.text import Text

    from momopay.cli.output import plain, stderr

    console = stderr()
    console.print(Text.assemble(("Error: ", "bold red"), plain(message)), soft_wrap=True)
    if remedy:
        console.print(Text.assemble(("What to do: ", "bold"), plain(remedy)), soft_wrap=True)
