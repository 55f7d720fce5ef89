"""What all commands share: how options are declared, and how errors are reported.

A command is a function whose first parameter is a dataclass of `momopay.cli.options`. `command` turns the fields of the
dataclass into options, beside the function's own. An error ends a command with an exit status and a remedy.
"""

from __future__ import annotations

import errno
import inspect
import json
import os
import re
import signal
import sys
import traceback
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from copy import copy
from dataclasses import fields
from functools import wraps
from inspect import cleandoc
from pathlib import Path
from textwrap import wrap
from types import FrameType
from typing import Any, Final, NoReturn, TypeVar, cast

import typer
from rich.text import Text
from typer.core import TyperCommand, TyperGroup

from momopay._redaction import redact
from momopay.cli.exit_codes import MISSING_EXTRA, CommandError, ExitCode, exit_code_of, remedy_of
from momopay.cli.output import TABLES_FROM, plain, stderr, stdout
from momopay.errors import APIError, MomoPayError, OutcomeUnknownError, RequestValidationError

DEBUG: Final = "momopay.debug"  # the key in the context's `meta` for whether --debug was given
FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])


# What did not happen if the command is interrupted now; "" if that is not known, or goes without saying.
_UNTOUCHED: Final[ContextVar[str]] = ContextVar("untouched", default="")


def consented() -> None:
    """Note that somebody agreed: from now on, an interrupted command may have done what it asked about."""
    _UNTOUCHED.set("")


def command(
    app: typer.Typer, name: str | None = None, *, untouched: str = "", **settings: Any
) -> Callable[[FunctionT], FunctionT]:
    """Return a decorator that registers a command of `app`. The function returns the exit status; None means 0.

    `untouched` is what an interrupt says until `consented` is called, such as "Nothing was sent."
    """

    def register(function: FunctionT) -> FunctionT:
        signature = inspect.signature(function, eval_str=True)
        first, *own = signature.parameters.values()
        shared = inspect.signature(first.annotation, eval_str=True).parameters.values()
        names = [each.name for each in fields(first.annotation)]

        @wraps(function)
        def run(**given: Any) -> None:
            _UNTOUCHED.set(untouched)
            if code := function(first.annotation(**{each: given.pop(each) for each in names}), **given):
                raise typer.Exit(code)

        parameters = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in (*own, *shared)]
        vars(run)["__signature__"] = signature.replace(parameters=parameters)
        run.__annotations__ = {each.name: each.annotation for each in parameters}
        app.command(name, cls=Command, **settings)(run)
        return function

    return register


class _FlagsWithoutType:
    """A mixin that keeps the help from showing a type beside each flag."""

    def get_params(self, ctx: Any) -> Any:
        params = cast("Any", super()).get_params(ctx)
        for param in params:
            if getattr(param, "is_flag", False):
                param.metavar = ""
        return params


class Group(_FlagsWithoutType, TyperGroup):
    """A group of commands."""


class App(Group):
    """The program. It reports wrong arguments in the way that `Command` reports other errors."""

    def main(self, args: Any = None, prog_name: str | None = None, *_: Any, **extra: Any) -> NoReturn:
        """Run the command that the arguments name, and exit."""
        given = [*(sys.argv[1:] if args is None else args)]
        extra["standalone_mode"] = False
        if hasattr(sys.stdout, "reconfigure"):  # else a character that its encoding lacks would break a command off
            cast("Any", sys.stdout).reconfigure(errors="backslashreplace")
        try:
            code = super().main(given, prog_name, **extra)
        except typer.Abort:
            code = _interrupted()
        except CommandError as error:  # several faults of a command line
            _report(error, as_json="--json" in given)
            code = error.code
        except Exception as error:
            if _reader_is_gone(error):
                sys.exit(ExitCode.INTERRUPTED)
            format_message = getattr(error, "format_message", None)
            if format_message is None:
                raise
            if type(error).__name__ == "NoArgsIsHelpError":  # typer exports no name for it
                typer.echo(format_message())
                sys.exit(ExitCode.USAGE)
            refused = _refused_by_parser(error)
            _report(refused, as_json="--json" in given)
            code = refused.code
        sys.exit(code or ExitCode.OK)


class Command(_FlagsWithoutType, TyperCommand):
    """A command that reports every error with a remedy and an exit status."""

    def __init__(self, name: str | None, **settings: Any) -> None:
        settings["help"] = _paragraphs(cleandoc(settings.get("help") or ""))
        super().__init__(name, **settings)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help; on a narrow terminal without boxes, in which the names of options would be cut."""
        shown = copy(self)
        if stdout().width < TABLES_FROM:
            shown.rich_markup_mode = None
            shown.help = _for_narrow(self.help or "", stdout().width)
        super(Command, shown).format_help(ctx, formatter)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the command line; raise one error that names all of its faults."""
        try:
            return super().parse_args(ctx, [*args])
        except typer.BadParameter as error:
            given, _, _ = self.make_parser(ctx).parse_args(args=[*args])
            faults = list[typer.BadParameter]()
            for param in self.get_params(ctx):
                try:
                    param.handle_parse_result(ctx, given, [])
                except typer.BadParameter as fault:
                    faults.append(fault)
            if len(faults) <= 1:
                raise
            refused = [_refused_by_parser(fault) for fault in faults]
            text = "; ".join(each.message.rstrip(".") for each in refused)
            raise CommandError(text, remedy=refused[0].remedy) from error

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except typer.Exit:
            raise
        except (typer.Abort, KeyboardInterrupt):  # typer raises Abort for Ctrl-C at a prompt
            raise typer.Exit(_interrupted()) from None
        except Exception as error:
            if _reader_is_gone(error):
                raise typer.Exit(ExitCode.INTERRUPTED) from None
            if ctx.find_root().meta.get(DEBUG):
                typer.echo(redact("".join(traceback.format_exception(error))), err=True, nl=False)
            reported = _as_reported(error, self.params)
            _report(reported, as_json=bool(ctx.params.get("as_json")))
            raise typer.Exit(exit_code_of(reported)) from error


@contextmanager
def on_signals(handle: Callable[[int, FrameType | None], None], *numbers: int) -> Generator[None]:
    """Call `handle` for these signals inside the context, then restore the handlers that were there before."""
    before = {number: signal.signal(number, handle) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _reader_is_gone(error: Exception) -> bool:
    """Return whether nobody reads what is printed any more, as after ``| head``. If so, print no more."""
    if not isinstance(error, OSError) or error.errno not in {errno.EPIPE, errno.EINVAL}:
        return False
    if error.errno == errno.EINVAL:  # all that Windows says, and not only about a pipe: so try once more
        try:
            print(flush=True)  # noqa: T201
        except OSError:
            pass
        else:
            return False
    # Python flushes both again at exit, which must not fail, too.
    sys.stdout = sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115  open until the process ends
    return True


def _interrupted() -> ExitCode:
    typer.echo(f"Interrupted. {_UNTOUCHED.get()}".rstrip(), err=True)
    return ExitCode.INTERRUPTED


def _paragraphs(docstring: str) -> str:
    """Return a docstring as help text: one line for each paragraph, so that the terminal wraps it, and the examples."""
    text, _, examples = docstring.partition("\n\nExamples:\n")
    parts = [part.replace("\n", " ") for part in text.split("\n\n")]
    if examples:
        lines = [f"  {line.strip()}" for line in examples.splitlines()]
        parts.append("\n".join(["Example:" if len(lines) == 1 else "Examples:", *lines]))
    return "\n\n".join(parts)


def _for_narrow(text: str, width: int) -> str:
    """Return a help text whose examples go on in the next line, as a shell reads it."""
    sentences, _, examples = re.sub("\n\n(Examples?:\n)", "\n\n\b\n\\1", text).partition("\b")  # keeps lines apart
    lines = [wrap(line, width - 6, break_long_words=False, break_on_hyphens=False) for line in examples.splitlines()]
    return f"{sentences}\b" + "\n".join(" \\\n      ".join(parts) for parts in lines) if examples else text


def _refused_by_parser(error: Any) -> CommandError:
    """Return the error for arguments that the parser refused; CommandError masks keys and phones."""
    # Typer's text would begin with "Invalid value for '--amount'". A missing option has no message of its own.
    param = getattr(error, "param", None)
    # An argument has no option, so it is named by its placeholder, as in the help.
    names = [each for each in getattr(param, "opts", ()) if each.startswith("--")]
    name = names[0] if names else getattr(param, "metavar", None)
    message = str(getattr(error, "message", "")).removeprefix("Value error, ")
    is_value = isinstance(error, typer.BadParameter) and name and message
    path = getattr(getattr(error, "ctx", None), "command_path", "momopay")
    return CommandError(
        f"{name}: {message}" if is_value else str(error.format_message()),
        remedy=f"`{path} --help` shows how it is used",
    )


def _as_reported(error: Exception, params: list[Any]) -> MomoPayError:
    if isinstance(error, RequestValidationError):
        return _with_option_names(error, params)
    if isinstance(error, MomoPayError):
        return error
    if isinstance(error, ModuleNotFoundError):
        return CommandError(str(error), remedy=MISSING_EXTRA, code=ExitCode.CONFIGURATION)
    what, code = "this should not happen: `momopay --debug ...` shows where it did", ExitCode.BUG
    if isinstance(error, OSError) and error.errno:  # from the operating system
        what, code = "check the disk, and the files that it reads and writes", ExitCode.CONFIGURATION
    return CommandError(
        f"{type(error).__name__}: {error}",
        remedy=f"{what}. If it was about to pay, look into the account console before you pay again",
        code=code,
    )


def _with_option_names(error: RequestValidationError, params: list[Any]) -> RequestValidationError:
    """Return the error with the names of options, such as ``--amount``, in place of the library's arguments."""
    known = {option for param in params for option in param.opts}
    options = {name: f"--{name.strip('_').replace('_', '-')}" for name in error.fields}
    named = {options[name] if options[name] in known else name: problem for name, problem in error.fields.items()}
    return RequestValidationError(named)


def _report(error: MomoPayError, *, as_json: bool) -> None:
    """Write an error and its remedy to stderr."""
    if not as_json:
        console = stderr()
        console.show(Text.assemble(("Error: ", "bold red"), plain(error)))
        console.show(Text.assemble(("What to do: ", "bold"), plain(remedy_of(error))))
        return
    # Programs read these names, which the guide documents.
    document: dict[str, object] = {
        "error": type(error).__name__,
        "code": error.code if isinstance(error, APIError) else None,
        "message": str(error),
        "remedy": remedy_of(error),
        "may_have_executed": error.may_have_executed,
        "request_id": error.request_id if isinstance(error, APIError) else None,
        "exit_code": exit_code_of(error),
    }
    if isinstance(error, OutcomeUnknownError):
        document["matches"] = [each.transaction_id for each in error.matches]
        document["near_matches"] = [each.transaction_id for each in error.near_matches]
    typer.echo(json.dumps(document), err=True)
