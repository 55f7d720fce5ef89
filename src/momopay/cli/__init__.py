"""The command line, extra ``cli``: each command calls the library and shows what came back. It has no rules of its own.

The modules write ``momopay.Client`` after ``import momopay``, rather than importing the name: the package loads a name
at its first use, so that ``momopay --help`` waits for no library that it does not need.
"""

from __future__ import annotations

import sys

_OUR_EXTRA = frozenset({"rich", "typer"})
_CONFIGURATION = 3  # ExitCode.CONFIGURATION, which is in a module that may not be importable here


def main() -> int:
    """Run the command line; the installed ``momopay`` and ``python -m momopay`` are this.

    Returns:
        The exit status; ``momopay --help`` lists them.
    """
    try:
        from momopay.cli.app import app
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in _OUR_EXTRA:
            raise
        sys.stderr.write("momopay: the command line is an extra: pip install 'momopay[cli]'\n")
        return _CONFIGURATION
    except KeyboardInterrupt:
        return 130  # ExitCode.INTERRUPTED, as above
    app(prog_name="momopay")
    return 0
