"""The start of a fleet where there is no terminal: a line per change."""

from __future__ import annotations

from rich.console import Console

from services.cli.fleet.readiness import ReadinessView


def shown(*looks: dict[str, str]) -> list[str]:
    console = Console(record=True, width=100, force_terminal=False)
    with ReadinessView(console).open() as view:
        for look in looks:
            view.show(look)
    return console.export_text().splitlines()


def test_what_did_not_change_is_not_said_again() -> None:
    assert shown({"agent": "loading"}, {"agent": "loading"}, {"agent": "ready"}) == ["agent: loading", "agent: ready"]


def test_a_reason_that_only_counts_the_seconds_is_the_same_reason() -> None:
    assert shown({"agent": "no broker since 3 s"}, {"agent": "no broker since 4 s"}) == ["agent: no broker since 3 s"]


def test_on_a_terminal_there_is_a_table() -> None:
    console = Console(record=True, width=100, force_terminal=True)
    with ReadinessView(console).open() as view:
        view.show({"agent": "loading the model", "scorer": "ready"})

    assert "loading the model" in console.export_text()
