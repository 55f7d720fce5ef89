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
from momopay.cli.narrow_help import write_help
from momopay.cli.output import plain, stderr
from momopay.cli.usage import as_command_error, with_option_names
from momopay.errors import APIError, MomoPayError, OutcomeUnknownError, RequestValidationError

# Where the context keeps whether tracebacks are wanted.
DEBUG = "momopay.debug"
# Where the context keeps whether ``--json`` was given before the command.
JSON = "momopay.json"


class Group(TyperGroup):
    """Several commands. It reports a command or an option that does not exist as a command does."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters, flags without a type beside them."""
        return _without_flag_types(super().get_params(ctx))

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help, without columns on a narrow terminal."""
        write_help(self, ctx, formatter, super().format_help)

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """Parse the options before the command."""
        given = [*args]  # the parser takes them out
        try:
            return super().make_context(info_name, args, parent, **extra)
        except Exception as error:
            # Without arguments, the help is shown by an error too.
            if given and not extra.get("resilient_parsing"):
                _report_refused(error, _path(info_name, parent), as_json=_wants_json(given, parent))
            raise

    def invoke(self, ctx: Any) -> Any:
        """Run the command that the first of the arguments names."""
        given = [*ctx.args]
        try:
            return super().invoke(ctx)
        except Exception as error:
            # A group below this one shows its help by an error too.
            if getattr(error, "ctx", None) == ctx:
                as_json = bool(ctx.params.get("as_json")) or _wants_json(given, ctx)
                _report_refused(error, ctx.command_path, as_json=as_json)
            raise


class Command(TyperCommand):
    """A command that reports errors as momopay does."""

    def __init__(self, name: str | None, *, help: str | None = None, **settings: Any) -> None:  # noqa: A002  typer's name
        super().__init__(name, help=_paragraphs(cleandoc(help or "")), **settings)

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters, flags without a type beside them."""
        return _without_flag_types(super().get_params(ctx))

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help, without columns on a narrow terminal."""
        write_help(self, ctx, formatter, super().format_help)

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """Parse the arguments; report wrong ones as any other error, with keys and phones masked."""
        given = [*args]  # the parser takes them out
        try:
            context = super().make_context(info_name, args, parent, **extra)
        except Exception as error:
            if not extra.get("resilient_parsing"):
                _report_refused(error, _path(info_name, parent), as_json=_wants_json(given, parent))
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
            reported = _as_reported(error, self.params)
            _report(reported, as_json=bool(ctx.params.get("as_json")))
            raise Exit(exit_code_of(reported)) from error


def _path(name: str | None, parent: Any) -> str:
    """Return a command as it is typed."""
    return " ".join(filter(None, (parent.command_path if parent is not None else "", name)))


def _wants_json(given: list[str], parent: Any) -> bool:
    """Return whether ``--json`` was given, here or before the command."""
    return "--json" in given or (parent is not None and bool(parent.find_root().meta.get(JSON)))


def _paragraphs(docstring: str) -> str:
    """Return a docstring whose paragraphs the terminal wraps, and whose examples keep their lines."""
    text, _, examples = docstring.partition("\n\nExamples:\n")
    parts = [part.replace("\n", " ") for part in text.split("\n\n")]
    if examples:
        lines = [f"  {line.strip()}" for line in examples.splitlines()]
        parts.append("\n".join(["Example:" if len(lines) == 1 else "Examples:", *lines]))
    return "\n\n".join(parts)


def _without_flag_types(params: list[Any]) -> list[Any]:
    for param in params:
        if getattr(param, "is_flag", False):
            param.metavar = ""
    return params


def _as_reported(error: Exception, params: list[Any]) -> MomoPayError:
    if isinstance(error, RequestValidationError):
        return with_option_names(error, params)
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


def _report_refused(error: Exception, command: str, *, as_json: bool) -> None:
    """Report what the parser of arguments refused, and raise Exit; return if this is another error."""
    refused = as_command_error(error, command)
    if refused is not None:
        _report(refused, as_json=as_json)
        raise Exit(refused.code) from error


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
