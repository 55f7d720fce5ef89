"""The SQL that is made from the rules, in one file, so that a reviewer sees what the change of a rule changes.

`python -m journal.test_statements`, in tests, writes the file anew.
"""

import difflib
import re
from collections.abc import Iterator
from pathlib import Path
from runpy import run_path
from typing import Any

from sqlalchemy import Select, UpdateBase
from sqlalchemy.dialects import sqlite
from sqlalchemy.schema import CreateIndex, CreateTable

from momopay.journal import sqlite as _compiles_now  # noqa: F401  # pyright: ignore[reportUnusedImport]
from momopay.journal import statements
from momopay.journal.schema import metadata

GOLDEN = Path(__file__).with_name("statements.sql")


def made() -> str:
    """Return every statement with its name, and the tables and indexes."""
    dialect, tables = sqlite.dialect(), metadata.sorted_tables
    defined = [str(CreateTable(table).compile(dialect=dialect)).replace("\t", "  ") for table in tables]
    defined = ["\n".join(map(str.rstrip, each.strip().splitlines())) for each in defined]
    indexes = [str(CreateIndex(index).compile(dialect=dialect)) for table in tables for index in table.indexes]
    # What is read has its columns from the tables alone.
    anew = run_path(str(statements.__file__), run_name=statements.__name__)  # by the rules as they are now
    named = {name: value for name, value in anew.items() if name.isupper() and "ENTR" not in name}
    parts = [part for name, value in named.items() if name != "TAKE_LEASE" for part in _parts(name, value)]
    return "\n\n".join([*parts, *defined, *sorted(map(str.strip, indexes))]) + "\n"


def _parts(name: str, value: Any) -> Iterator[str]:
    if hasattr(value, "items"):  # a statement for each kind, state or stage
        for key, each in value.items():
            yield from _parts(f"{name} {getattr(key, 'name', key)}", each)
    elif isinstance(value, UpdateBase | Select):
        # Values in place: which states and statuses a statement allows is what the rules decide.
        compiled = value.compile(dialect=sqlite.dialect(paramstyle="named"))
        text = re.sub(r"momopay_(payments|transactions)\.", "", str(compiled))
        for parameter, bound in compiled.binds.items():
            if not bound.required:
                known = "NULL" if bound.value is None else repr(getattr(bound.value, "value", bound.value))
                text = re.sub(rf":{parameter}\b", known, text)
        text, _, condition = text.replace("\n", " ").partition(" WHERE ")
        text = re.sub(r",? *(SET |, )(?=\w+=)", lambda part: ",\n  " if part[1] == ", " else "\nSET ", text)
        yield f"-- {name}\n{text}" + ("\nWHERE " + condition.replace(" AND ", "\n  AND ") if condition else "")


def test_the_statements_are_those_that_were_reviewed() -> None:
    difference = difflib.unified_diff(GOLDEN.read_text().splitlines(), made().splitlines(), lineterm="", n=0)
    assert "\n".join(difference) == "", "review it, then run python -m journal.test_statements in tests"


if __name__ == "__main__":
    GOLDEN.write_text(made())
