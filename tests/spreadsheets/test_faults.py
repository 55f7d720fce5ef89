"""One error for all that is wrong with a file: bounded, masked, and whole in its attribute."""

import pickle

from momopay import RequestValidationError
from momopay.spreadsheets.faults import FaultyFileError, FileFault, of_file


def test_it_names_place_value_and_remedy() -> None:
    fault = FileFault(5, "amount", "is no amount", "write digits", "SAL-1", "4x")
    error = of_file("pay.csv", [fault, FileFault(2, "", "is short")])
    assert isinstance(error, RequestValidationError)
    assert error.fields == {
        "file": "pay.csv: 2 fault(s); nothing was sent",
        "line 2": "is short",
        "line 5, SAL-1, amount": "'4x' is no amount: write digits",
    }
    assert [each.line for each in error.faults] == [2, 5]
    assert (error.summary, error.may_have_executed) == ("pay.csv: 2 fault(s); nothing was sent", False)


def test_it_names_twenty_and_how_many_there_are() -> None:
    error = of_file("pay.csv", [FileFault(line, "amount", "is no amount") for line in range(2, 55)])
    assert len(error.faults) == 53
    assert (str(error).count("is no amount"), error.fields["and"]) == (20, "33 more faults")
    assert "53 fault(s)" in str(error)
    assert "more" not in str(of_file("pay.csv", error.faults[:20]))


def test_two_faults_of_one_place_are_both_named() -> None:
    error = of_file("pay.csv", [FileFault(2, "a", "is one"), FileFault(2, "a", "is two")])
    assert error.fields["line 2, a"] == "is one; is two"


def test_it_shows_no_whole_phone_and_no_control_character() -> None:
    faults = [
        FileFault(2, "phone", "is no phone", value="07123456789"),
        FileFault(3, "", "is short", value="A,0712345678,1\nB"),
        FileFault(4, "phone", "is no phone", value="0712"),
    ]
    error = of_file("pay.csv", faults)
    text = str(error) + repr(error.faults)
    assert ("07123456789" in text, "0712345678" in text, "\n" in text) == (False, False, False)
    assert "'0712' is no phone" in text, "a few digits identify nobody"
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.faults, again.summary) == (str(error), error.faults, error.summary)


def test_its_remedy_may_be_another() -> None:
    assert "correct the lines" in of_file("a", []).remedy
    assert FaultyFileError("a", [], remedy="look").remedy == "look"
