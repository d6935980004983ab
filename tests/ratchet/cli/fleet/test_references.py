"""Who gives a reference that nobody looks at is told once, and nobody else is."""

from __future__ import annotations

from pathlib import Path

import pytest

from ratchet.cli.fleet.folder import FleetRecord
from ratchet.cli.fleet.options import FleetOptions
from ratchet.cli.fleet.references import noting_references
from ratchet.cli.submit.command import new_task


def started(**options: object) -> FleetRecord:
    return FleetRecord(
        supervisor_pid=1,
        supervisor_started=1.0,
        stop_timeout_s=1.0,
        amqp_url="amqp://127.0.0.1/",
        namespace="",
        own_broker=False,
        logs_dir=Path("logs"),
        options=FleetOptions(**options),  # type: ignore[arg-type]
        programs=(),
    )


def told(record: FleetRecord | None, capsys: pytest.CaptureFixture[str], *references: str | None) -> list[str]:
    tasks = [new_task({"input": "sort: ba", "reference": reference}) for reference in references]
    assert list(noting_references(iter(tasks), record)) == tasks
    return capsys.readouterr().err.splitlines()


def test_a_reference_that_no_scorer_looks_at_is_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    said = "note: scorer `likelihood` does not look at the reference; `ratchet up --scorer verifier:exact` does"

    assert told(started(), capsys, None, "ab", "ab") == [said]
    assert told(started(), capsys, None) == []
    for record in (
        None,
        started(scorer="verifier:exact"),
        started(auditor="verifier:exact"),
        started(no_scorer=True),
    ):
        assert told(record, capsys, "ab") == []
