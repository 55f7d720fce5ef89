"""`python -m momopay`: the command line."""

import sys

from momopay.cli import main

if __name__ == "__main__":
    sys.exit(main())
