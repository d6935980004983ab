"""Who gives a reference that nobody looks at is told once, and nobody else is."""

from __future__ import annotations

import pytest

from services.cli.fleet.folder import FleetRecord
from services.cli.fleet.options import FleetOptions
from services.cli.fleet.own_fleet import noting_references
from services.cli.submit import new_task
from tests.services.cli.started import started


def fleet(**options: object) -> FleetRecord:
    return started(FleetOptions(**options), {})  # type: ignore[arg-type]


def notes_about(record: FleetRecord | None, capsys: pytest.CaptureFixture[str], *references: str | None) -> list[str]:
    tasks = [new_task({"input": "sort: ba", "reference": reference}) for reference in references]
    assert list(noting_references(iter(tasks), record)) == tasks
    return capsys.readouterr().err.splitlines()


def test_a_reference_that_no_scorer_looks_at_is_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    said = "note: scorer `likelihood` does not look at the reference; `ratchet up --scorer verifier:exact` does"

    assert notes_about(fleet(), capsys, None, "ab", "ab") == [said]
    assert notes_about(fleet(), capsys, None) == []
    for record in (
        None,
        fleet(scorer="verifier:exact"),
        fleet(auditor="verifier:exact"),
        fleet(no_scorer=True),
    ):
        assert notes_about(record, capsys, "ab") == []
