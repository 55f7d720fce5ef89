"""MOMOPAY_LOG shows the log of a program that configures none, and writes no line twice."""

import os
import subprocess
import sys

from in_turn import in_turn

PROGRAM = """
import logging
{before}
import momopay
{after}
logging.getLogger("momopay").debug("a debug line")
logging.getLogger("momopay").info("an info line")
logging.getLogger("elsewhere").info("another's line")
"""


def run(level: str | None, *, before: str = "", after: str = "") -> str:
    environ = {name: value for name, value in os.environ.items() if name != "MOMOPAY_LOG"}
    environ |= {} if level is None else {"MOMOPAY_LOG": level}
    program = PROGRAM.format(before=before, after=after)
    done = subprocess.run([sys.executable, "-c", program], env=environ, capture_output=True, text=True, check=True)
    assert done.stdout == ""
    return done.stderr


@in_turn(
    ("level", "lines"),
    [
        *((None, []), ("", []), ("info", ["INFO momopay: an info line"])),
        ("DEBUG", ["DEBUG momopay: a debug line", "INFO momopay: an info line"]),
        ("all", ["MOMOPAY_LOG must be debug or info; it is ignored"]),
    ],
)
def test_the_variable_sets_the_level(level: str | None, lines: list[str]) -> None:
    shown = run(level).splitlines()
    assert [line[-len(end) :] for line, end in zip(shown, lines, strict=True)] == lines


@in_turn("when", ["before", "after"])
def test_a_program_with_handlers_of_its_own_gets_each_line_once(when: str) -> None:
    shown = run("debug", **{when: "logging.basicConfig(level=logging.DEBUG)"})
    assert shown.splitlines() == [
        "DEBUG:momopay:a debug line",
        "INFO:momopay:an info line",
        "INFO:elsewhere:another's line",
    ]
    shown = run("debug", **{when: 'logging.getLogger("momopay").addHandler(logging.StreamHandler())'})
    assert shown.splitlines() == ["a debug line", "an info line"]
