"""Say which mutants no test noticed, and which of them have no reason in survivors.toml. Run it after `mutmut run`.

    python tests/mutants/survivors.py                  all that were tried
    python tests/mutants/survivors.py journal.rules    those of modules whose name has this word

Two kinds of change need no reason, since no promise rests on them: the text of a message, and a log line. The exit
status is 1 if a survivor has no reason.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from mutmut.mutation.diff_apply import get_diff_for_mutant

REASONS = Path(__file__).parent / "survivors.toml"
NOTICED = {"killed", "timeout", "caught by type check", "segfault", "suspicious"}
SURVIVED = {"survived", "no tests"}


@dataclass(frozen=True)
class Change:
    """What a mutant changes: the lines that go, and those that replace them."""

    function: str  # such as momopay.money.parse_amount
    removed: str
    added: str

    @property
    def is_a_text(self) -> bool:
        """Whether only a text that is read by people differs."""
        before, after = (_without_texts(each) for each in (self.removed, self.added))
        return before == after or bool(re.search(r"\b_?log(ger)?\.\w+\(|raise \w+\(", self.removed))


def _without_texts(code: str) -> str:
    return re.sub(r"""f?(\"[^\"]*\"|'[^']*')""", '""', code)


def tried(word: str) -> Iterator[tuple[str, str]]:
    """Yield the name and the status of each mutant that was tried."""
    command = ["mutmut", "results", "--all", "true"]
    for line in subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines():
        name, _, status = line.strip().partition(": ")
        if word in name and status in NOTICED | SURVIVED:
            yield name, status


def change(name: str) -> Change:
    module = Path("src", *name.rpartition(".x")[0].split(".")).with_suffix(".py")
    lines = get_diff_for_mutant(name, path=module).splitlines()  # `mutmut show` would load the tool anew for each
    removed, added = (
        "\n".join(line[1:].strip() for line in lines if line.startswith(sign) and not line.startswith(sign * 3))
        for sign in "-+"
    )
    function = re.sub(r"__mutmut_\d+$", "", name).replace("ǁ", ".").replace(".x.", ".").replace(".x_", ".")
    return Change(function, removed, added)


def main() -> int:
    reasons = {(each["function"], each["change"]) for each in tomllib.loads(REASONS.read_text())["survivor"]}
    statuses = dict(tried(sys.argv[1] if len(sys.argv) > 1 else ""))
    survivors = [change(name) for name, status in statuses.items() if status in SURVIVED]
    kinds: Counter[str] = Counter()
    for each in survivors:
        listed = (each.function, each.added) in reasons
        kinds["a text" if each.is_a_text else "listed" if listed else "without a reason"] += 1
        if not listed and not each.is_a_text:
            print(f"{each.function}\n- {each.removed}\n+ {each.added}\n")  # noqa: T201  a program for people
    noticed = len(statuses) - len(survivors)
    print(f"{noticed} of {len(statuses)} noticed; survivors: {dict(kinds)}")  # noqa: T201  as above
    return 1 if kinds["without a reason"] else 0


if __name__ == "__main__":
    sys.exit(main())
