"""Payrolls and orders from spreadsheets, CSV or .xlsx: every row as it stands, or every fault at once; and CSV out.

`table` reads a file by `csv_files` or `xlsx_files` and checks its shape. `rows` makes payouts and orders of the cells,
which `cells` judges. Nothing is guessed, because a wrong guess pays a wrong amount or a stranger.
"""
