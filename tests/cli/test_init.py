"""The program before its commands are loaded."""

import sys

import pytest

from momopay import cli


def test_an_interrupt_while_the_program_loads_says_that_nothing_was_sent(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Interrupted:
        def find_spec(self, name: str, *_: object) -> None:
            if name == "momopay.cli.app":
                raise KeyboardInterrupt

    monkeypatch.setattr(sys, "meta_path", [Interrupted(), *sys.meta_path])
    monkeypatch.delitem(sys.modules, "momopay.cli.app", raising=False)
    assert cli.main() == 130
    assert capsys.readouterr().err == "Interrupted. Nothing was sent.\n"
