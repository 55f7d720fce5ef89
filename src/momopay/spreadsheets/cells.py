"""What one cell is: an amount, a phone, a reference; or what a spreadsheet did to it, and what to write. Pure.

A problem is a sentence about the value, and its remedy says what to do. Neither shows the value.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from typing import Final, TypeAlias

from momopay.models.arguments import is_hidden
from momopay.phones import describe_character

Problem: TypeAlias = tuple[str, str]
"""What is wrong with a value, and what to do about it."""

AS_TEXT: Final = "format the column as text, then type it again"
MADE_A_DATE: Final[Problem] = ("was made a date by a spreadsheet", AS_TEXT)
ERROR_OF_SPREADSHEET: Final[Problem] = ("is an error of the spreadsheet", "correct the formula, or write the value")
_SHORTENED: Final[Problem] = ("was shortened by a spreadsheet, and has lost its last digits", AS_TEXT)
_PLAIN_AMOUNT: Final = re.compile(r"[0-9]+(?:\.[0-9]{1,2})?")
_WITH_THOUSANDS: Final = re.compile(r"[1-9][0-9]{0,2}(?:,[0-9]{3})+(?:\.[0-9]{1,2})?")
_HOW_TO_WRITE: Final = "write digits alone, such as 2500 or 2500.50, or 2,500 in a cell of its own"
_SHORT_FORM: Final = re.compile(r"[+-]?[0-9](?:[.,][0-9]+)?[Ee][+-]?[0-9]{1,3}")
# A reference such as 1E5 may be meant. One with several decimals is a long number that lost its last digits.
_LOST_DIGITS: Final = re.compile(r"[0-9][.,][0-9]{2,}[Ee]\+[0-9]{2,3}")
_LOST_ZERO: Final = re.compile(r"[17][0-9]{8}")
_WITH_DECIMALS: Final = re.compile(r"\+?[0-9]{9,12}[.,]0+")
_MONTH: Final = "(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]{0,6}"
_DATE: Final = re.compile(
    r"(?i)[0-9]{4}[-/.][0-9]{1,2}[-/.][0-9]{1,2}(?:[ T][0-9:.]+)?|[0-9]{1,2}[-/][0-9]{1,2}(?:[-/][0-9]{2,4})?"
    rf"|[0-9]{{1,2}}\.[0-9]{{1,2}}\.[0-9]{{4}}|[0-9]{{1,2}}[-/ ]{_MONTH}(?:[-/ ][0-9]{{2,4}})?"
    rf"|{_MONTH}[-/ ][0-9]{{2,4}}"
)
_DATE_AND_TIME: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}[ T]00:00(?::00)?(?:\.0+)?")
# #REF!, #VALEUR!, #¿NOMBRE? and the like of any language, those without a mark at their end, and LibreOffice's.
_ERROR: Final = re.compile(
    r"#[¡¿]?[^\W_][\w/ .]*[!?]|#(?:N/A|NV|N/D|ND|N/B|I/T|YOK|\u041d/\u0414|SAKNAS|PUUTTUU|HIÁNYZIK|GETTING_DATA)"
    r"|#{2,}|(?:ERR|FEHLER|ERREUR|ERRORE):[0-9]{3}"
)
_NO_VALUE: Final = frozenset({"NAN", "NULL", "NONE", "N/A", "<NA>", "UNDEFINED"})
_COMMA_DECIMALS: Final = re.compile(r"([0-9]+|[0-9]{1,3}(?:\.[0-9]{3})+),([0-9]{1,2})")
_DOT_THOUSANDS: Final = re.compile(r"[0-9]{1,3}(?:\.[0-9]{3})+")
_OTHER_GROUPS: Final = re.compile(r"[0-9]+(?:[_ '\u00a0\u2009\u202f\u2019,][0-9]+)+(?:\.[0-9]{1,2})?")
_CURRENCY: Final = re.compile(r"(?i)(?:kes|kshs?|sh|/=|/-|\$|€|£)")


@dataclass(frozen=True, slots=True)
class Cell:
    """The text of a cell.

    Attributes:
        text: Without spaces around it.
        problem: Why the value cannot be taken, as a spreadsheet has it.
        is_fraction: Whether it is a number with a fraction, and not a text.
        is_merged: Whether it is in merged cells, whose value another one has.
    """

    text: str = ""
    problem: Problem | None = None
    is_fraction: bool = False
    is_merged: bool = False

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing in it."""
        return not self.text and (self.problem is None or self.is_merged)


def column_name(text: str) -> str:
    """Return the name of a column, which has any case and spaces in a file."""
    return " ".join(text.split()).casefold()


def amount_in(text: str) -> Decimal | Problem:
    """Return the amount that a text is, or why it is none. Whether it is large enough is checked elsewhere."""
    if _PLAIN_AMOUNT.fullmatch(text):
        return Decimal(text)
    if _WITH_THOUSANDS.fullmatch(text):
        return Decimal(text.replace(",", ""))
    return _spoiled(text) or _no_amount(text)


def _no_amount(text: str) -> Problem:  # noqa: PLR0911  one for each form
    if not text:
        return "is missing", "write the amount in KES"
    if _SHORT_FORM.fullmatch(text):
        return "was shortened by a spreadsheet", "format the column as a number, and write all digits"
    if found := _COMMA_DECIMALS.fullmatch(text):
        whole = found[1].replace(".", "")
        cents = found[2].ljust(2, "0")
        return "has a comma before its cents", f"write {whole}.{cents}" if int(cents) else f"write {whole}"
    if _DOT_THOUSANDS.fullmatch(text):
        first, _, rest = text.partition(".")
        other = f", or {first}.{rest[:2]} with cents" if "." not in rest else ""
        return "may have thousands or decimals after its dot", f"write {text.replace('.', '')}{other}"
    if _OTHER_GROUPS.fullmatch(text):
        return "is not grouped by commas in threes", f"write {re.sub('[^0-9.]', '', text)} if it is that"
    if _DATE.fullmatch(text):
        return "was made a date by a spreadsheet", "format the column as a number, then type it again"
    if any(each.isdigit() and not each.isascii() for each in text):
        return "has digits that are not 0 to 9", "write it with the digits 0 to 9"
    if _CURRENCY.search(text):
        return "has a currency", "write the number alone; all amounts are in KES"
    return "is no amount", _HOW_TO_WRITE


def phone_problem(text: str) -> Problem | None:
    """Return what a spreadsheet did to a phone; None if it did nothing that is known."""
    if _SHORT_FORM.fullmatch(text):
        return _SHORTENED
    if _WITH_DECIMALS.fullmatch(text):
        return "was made a number with decimals by a spreadsheet", f"write {re.split('[.,]', text)[0]}: {AS_TEXT}"
    if _LOST_ZERO.fullmatch(re.sub("[ ()-]", "", text)):
        return "is without its leading 0", f"write it with the 0: {AS_TEXT}"
    if _DATE.fullmatch(text):
        return MADE_A_DATE
    return _spoiled(_trimmed(text))


def reference_problem(text: str) -> Problem | None:
    """Return what a spreadsheet did to a reference; None if it did nothing that is known."""
    if _LOST_DIGITS.fullmatch(text):
        return _SHORTENED
    if _DATE_AND_TIME.fullmatch(text):
        return MADE_A_DATE
    if text.upper() in _NO_VALUE:
        return "stands for no value", "write the reference"
    return _spoiled(text)


def text_problem(text: str) -> Problem | None:
    """Return why a description is none: an error of the spreadsheet."""
    return _error_word(text)


def word_problem(text: str) -> Problem | None:
    """Return what is wrong with a word beside being unknown."""
    return _spoiled(text)


def hidden_in(text: str) -> str | None:
    """Return the first character that cannot be seen, described; None if there is none."""
    return next((describe_character(each) for each in text if is_hidden(each)), None)


def _spoiled(text: str) -> Problem | None:
    if found := _error_word(text):
        return found
    if any(each in text for each in "\r\n"):
        return "has a line break", "remove it; a quotation mark that is not closed takes in the lines that follow"
    if hidden := hidden_in(text):
        return f"has {hidden}, which cannot be seen", "delete the cell and type it again"
    if text.startswith("="):
        return "is a formula", "write its value"
    return None


def _error_word(text: str) -> Problem | None:
    return ERROR_OF_SPREADSHEET if _ERROR.fullmatch(text.upper()) else None


def _trimmed(text: str) -> str:
    """Return a phone without invisible characters at its ends, which are ignored there."""
    seen = [place for place, each in enumerate(text) if not is_hidden(each)]
    return text[seen[0] : seen[-1] + 1] if seen else ""
