"""Tables that are too wide for a phone carry what a phone needs to show them as blocks."""

from __future__ import annotations

import stacked

TABLE = """\
<table>
<thead>
<tr>
<th>what &amp; <code>why</code></th>
<th style="text-align: right;">seen</th>
<th></th>
</tr>
</thead>
<tbody>
<tr>
<td>a</td>
<td style="text-align: right;">1</td>
<td>x</td>
</tr>
</tbody>
</table>"""


def test_cells_have_the_heading_of_their_column_and_every_part_its_role() -> None:
    labelled = stacked.labelled(TABLE)
    assert '<table role="table">' in labelled
    assert labelled.count('role="rowgroup"') == 2
    assert labelled.count('role="row"') == 2
    assert '<th role="columnheader" style="text-align: right;">seen</th>' in labelled
    assert '<td role="cell" data-label="what &amp; why">a</td>' in labelled
    assert '<td role="cell" data-label="seen" style="text-align: right;">1</td>' in labelled
    assert '<td role="cell" data-label="">x</td>' in labelled


def test_a_long_name_makes_a_table_of_two_columns_wide() -> None:
    table = (
        "<table><tr><th>error</th><th>do</th></tr><tr><td>InsufficientServiceBalanceError</td><td>x</td></tr></table>"
    )
    assert '<td role="cell" data-label="do">x</td>' in stacked.labelled(table)


def test_a_table_of_two_columns_is_left_alone() -> None:
    narrow = "<table><tr><th>a</th><th>b</th></tr><tr><td>1</td><td>2</td></tr></table>"
    assert stacked.labelled(narrow) == narrow
