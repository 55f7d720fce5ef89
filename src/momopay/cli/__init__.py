"""The command line (extra ``cli``). Each command calls the library and shows the result; it has no rules of its own.

The modules use ``momopay.Client`` after ``import momopay`` instead of importing the name. The package loads each name
on first use, so ``momopay --help`` loads no library that it does not need.
"""

from __future__ import annotations

import sys

_OUR_EXTRA = frozenset({"rich", "typer"})
_CONFIGURATION = 3  # ExitCode.CONFIGURATION, written out because an import may be what failed


def main() -> int:
    """Run the command line and return its exit status, for ``momopay`` and ``python -m momopay``."""
    try:
        from momopay.cli.app import app
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in _OUR_EXTRA:
            raise
        sys.stderr.write('momopay: the command line is an extra: pip install "momopay[cli]"\n')
        return _CONFIGURATION
    except KeyboardInterrupt:
        sys.stderr.write("Interrupted. Nothing was sent.\n")
        return 130  # ExitCode.INTERRUPTED, as above
    app(prog_name="momopay")
    return 0
