"""All rows, in the order in which a profile has them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from momopay.probe.fact_rows import FACTS
from momopay.probe.rows import Row
from momopay.probe.switch_rows import SWITCHES

ROWS: Final[tuple[Row, ...]] = (*SWITCHES, *FACTS)
BY_NAME: Final[Mapping[str, Row]] = {row.name: row for row in ROWS}
