"""Wrong arguments, named as they are typed: ``--amount``, not the argument of the library."""

from __future__ import annotations

from typing import Any, Final

import typer

from momopay.cli.exit_codes import CommandError
from momopay.errors import RequestValidationError

# Arguments of the library whose option has another name.
_OPTIONS: Final = {
    "account_reference": "--reference",
    "amount_max": "--max",
    "amount_min": "--min",
    "channel_id": "--channel",
    "transaction_desc": "--description",
}


def as_command_error(error: Exception, command: str) -> CommandError | None:
    """Return what the parser of arguments refused; None if this is another error. The error masks keys and phones."""
    format_message = getattr(error, "format_message", None)
    if format_message is None:
        return None
    # Typer says "Invalid value for '--amount': ..."; of a missing option it has a sentence only.
    name, message = _name_of(getattr(error, "param", None)), getattr(error, "message", "").removeprefix("Value error, ")
    is_value = isinstance(error, typer.BadParameter) and name and message
    text = f"{name}: {message}" if is_value else str(format_message())
    return CommandError(text, remedy=f"`{command} --help` shows how it is used")


def _name_of(param: Any) -> str | None:
    names: list[str] = [*getattr(param, "opts", ())]
    # An argument has no option; its placeholder is what the help shows.
    return next((name for name in names if name.startswith("--")), getattr(param, "metavar", None))


def with_option_names(error: RequestValidationError, params: list[Any]) -> RequestValidationError:
    """Return the error with the name of the option for each argument that has one."""
    known = {option for param in params for option in param.opts}
    # An argument has no option; its placeholder is what the help shows.
    placeholders = {param.name: param.metavar for param in params if param.metavar and param.name in param.opts}

    def option(name: str) -> str:
        made = _OPTIONS.get(name, f"--{name.strip('_').replace('_', '-')}")
        return made if made in known else placeholders.get(name, name)

    return RequestValidationError({option(name): problem for name, problem in error.fields.items()})
