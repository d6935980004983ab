"""The real demo from its first held-out task to its report, on a fleet of echoes: what it measures is theirs."""

from __future__ import annotations

import io
from collections.abc import Callable

import pytest
from rich.console import Console

from demos.demo import Sizes
from demos.performance import Performance, time_left
from demos.real.demo import Figures, RealDemo
from demos.real.page import RESULT
from services.cli.fleet.own_fleet import FleetPlace
from services.cli.narrator import Narrator
from tests.acceptance.fleet import Fleet
from tests.acceptance.foreign_trainer import foreign_trainer
from tests.acceptance.loops import access_to
from tests.acceptance.scoring import scored

pytestmark = [pytest.mark.broker, pytest.mark.timeout(300)]


@pytest.fixture
def fleet(start_fleet: Callable[..., Fleet]) -> Fleet:
    return start_fleet(
        environment=scored({"v1.0.0": 0.3, "v1.0.1": 0.6})
        | {
            "RATCHET_GOLDEN_FROM_TRAFFIC": "false",
            "RATCHET_EXPERIMENT_MIN_UNITS_PER_ARM": "10",
            "RATCHET_WATCH_SHARE": "0",
        }
    )


def test_the_same_held_out_tasks_are_measured_by_the_hidden_verifier_alone(fleet: Fleet) -> None:
    sizes = Sizes(tasks=6, samples=2, turns=1, groups=20, no_turn_after=600.0, timeout=60.0)
    demo, told = RealDemo(sizes=sizes, answers=2), io.StringIO()
    left = time_left(demo)
    assert left is not None
    narrator = Narrator(Console(file=told, width=200), left=left.seconds)
    place = FleetPlace(fleet.folder)

    with foreign_trainer(fleet) as requests:
        story = Performance(access_to(fleet), place, demo, narrator, left).perform()

    assert [(turn.version, turn.state) for turn in story.turns] == [("v1.0.1", "stable")], told.getvalue()
    assert story.primary == "v1.0.1"
    assert (story.books.lost, story.books.failed, story.books.logged_twice, story.dead_letters) == (0, 0, 0, 0)
    figures = story.figures
    assert isinstance(figures, Figures)
    everything = figures.gains["all"]
    assert (everything.before.mean, everything.after.mean, everything.before.tasks) == (0.0, 0.0, 6)
    assert [fault[:19] for fault in story.faults] == ["the hidden verifier", "0.00 of the held-ou"]
    assert {example.label: example.answers[0] for example in figures.examples} == {
        example.label: example.label for example in figures.examples
    }
    assert len(requests) == 1
    assert "min left" in told.getvalue() or "a minute left" in told.getvalue()
    assert "v1.0.1" in (place.root / RESULT).read_text()
    assert (place.root / RESULT).with_suffix(".svg").read_text().startswith("<svg")
    assert place.report.exists()
