from __future__ import annotations

import logging
from datetime import UTC, datetime
from pathlib import Path

import pytest

from integrations.telemetry import Telemetry
from journal.kit import put
from momopay import Journal, JournalState
from momopay.events import SweepEnded
from momopay.integrations._otel_journal import JournalGauges

OPEN, UNRESOLVED = "momopay.journal.open", "momopay.journal.unresolved"


def swept(opened: int, unknown: int) -> SweepEnded:
    return SweepEnded(
        operation="transactions.sweep",
        call_id=1,
        at=1000.0,
        settled=0,
        open=opened,
        unknown=unknown,
        handled=0,
        failed=0,
    )


def test_without_a_journal_the_counts_are_those_of_the_latest_sweep(telemetry: Telemetry) -> None:
    gauges = JournalGauges(telemetry.meters.get_meter("test"), None)
    assert not telemetry.values(OPEN) | telemetry.values(UNRESOLVED)
    gauges.remember(swept(7, 2))
    gauges.remember(swept(5, 1))
    assert (telemetry.values(OPEN), telemetry.values(UNRESOLVED)) == ({(): 5}, {(): 1})
    assert not telemetry.values(f"{OPEN}.age")


def test_a_journal_is_asked_at_each_collection(
    telemetry: Telemetry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("momopay.integrations._otel_journal._FRESH", 0.0)
    with Journal(f"sqlite:///{tmp_path / 'payouts.db'}") as journal:
        gauges = JournalGauges(telemetry.meters.get_meter("test"), journal)
        assert (telemetry.values(OPEN), telemetry.values(UNRESOLVED)) == ({(): 0}, {(): 0})
        assert telemetry.values(f"{OPEN}.age") == telemetry.values(f"{UNRESOLVED}.age") == {(): 0}
        before = datetime.now(UTC)
        for number in range(3):
            put(journal, f"open-{number}", JournalState.ACCEPTED)
        put(journal, "in doubt", JournalState.UNKNOWN)
        put(journal, "refused", JournalState.REFUSED)
        gauges.remember(swept(100, 100))  # of another journal, perhaps, or older
        assert (telemetry.values(OPEN), telemetry.values(UNRESOLVED)) == ({(): 3}, {(): 1})
        longest = (datetime.now(UTC) - before).total_seconds()
        assert 0 < telemetry.values(f"{OPEN}.age")[()] <= longest + 1
        assert 0 < telemetry.values(f"{UNRESOLVED}.age")[()] <= longest + 1


def test_one_collection_asks_once(telemetry: Telemetry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("momopay.integrations._otel_journal._FRESH", 3600.0)
    with Journal(f"sqlite:///{tmp_path / 'payouts.db'}") as journal:
        JournalGauges(telemetry.meters.get_meter("test"), journal)
        assert telemetry.values(OPEN) == {(): 0}
        put(journal, "open", JournalState.ACCEPTED)
        assert telemetry.values(OPEN) == {(): 0}


@pytest.mark.parametrize("database", ["missing", "closed"])
def test_gauges_of_a_journal_that_fails_end_and_the_others_go_on(
    telemetry: Telemetry, tmp_path: Path, caplog: pytest.LogCaptureFixture, database: str
) -> None:
    meter = telemetry.meters.get_meter("test")
    meter.create_counter("something.else").add(1)
    with Journal(f"sqlite:///{tmp_path / 'payouts.db'}", create=database != "missing") as journal:
        if database == "closed":
            assert journal.open() == []
            journal.close()
        JournalGauges(meter, journal)
        with caplog.at_level(logging.WARNING, "momopay"):
            assert {name for name, _ in telemetry.points()} == {"something.else"}
    assert caplog.text.count("the journal's gauges are missing") == 1
