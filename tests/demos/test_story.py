"""A demo is as promised only if nothing was lost, something was promoted, the bad one went, and the gain is proved."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from demos.books import Account
from demos.sort.demo import Figures, Saved
from demos.story import DemoTraining, DemoTurn, Sabotage, Story
from demos.story_view import render_story
from ratchet.experiments.gain import Estimate, Gain
from ratchet.logs.rows import AnswerRow
from schemas.records.adapter_card import DataWindow
from schemas.records.decision import Decision
from tests.ratchet.adapters.making_adapters import NOON, card

PROVED = Gain(Estimate(0.4, 0.35, 0.45, 100), Estimate(0.8, 0.75, 0.85, 100), Estimate(0.4, 0.33, 0.47, 100))
NOTHING = replace(PROVED, difference=Estimate(0.01, -0.02, 0.04, 100))
TURN = DemoTurn("v1.0.1", "v1.0.0", DemoTraining(64, 512, 6.5, 8, 0.1, 0.4), "stable", 300, 0.2, 30.0)
BAD = Sabotage("v1.0.2", "rolled_back", tasks=5, samples=40, traffic=150, seconds=9.0)
PROMOTION = Decision.model_validate(
    {
        "agent_id": "small",
        "move": {"kind": "promote", "version": "v1.0.1", "experiment_id": "x"},
        "who": "orchestrator",
        "at": NOON,
        "reason": "better in score: e-value 3252",
        "sequence": 4,
        "previous_sha256": "0" * 64,
        "sha256": "1" * 64,
    }
)
FIGURES = Figures(
    verifier=PROVED,
    judge=PROVED,
    served=PROVED,
    saved=Saved(8, 2, Estimate(0.01, -0.01, 0.03, 100)),
)
STORY = Story(
    turns=(TURN,),
    rollback=True,
    sabotage=BAD,
    primary="v1.0.1",
    figures=FIGURES,
    decisions=(PROMOTION,),
    books=Account(1827, 0, 0, 0),
    dead_letters=0,
    seconds=132.0,
    page="report.html",
)


def test_all_as_promised() -> None:
    assert STORY.faults == ()
    assert STORY.as_dict()["sound"]


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"books": Account(10, 1, 0, 0)}, "1 were lost"),
        ({"books": Account(10, 0, 2, 0)}, "2 failed"),
        ({"books": Account(10, 0, 0, 3)}, "3 samples were logged twice"),
        ({"dead_letters": 4}, "4 dead letters"),
        ({"turns": (replace(TURN, state="rolled_back"), replace(TURN, state="inconclusive"))}, "promoted"),
        ({"turns": ()}, "promoted"),
        ({"sabotage": replace(BAD, state="stable")}, "not rolled back"),
        ({"sabotage": None}, "not rolled back"),
        ({"figures": replace(FIGURES, verifier=NOTHING)}, "verifier does not confirm"),
    ],
)
def test_each_broken_promise_is_a_sentence(change: dict[str, object], fault: str) -> None:
    story = replace(STORY, **change)  # type: ignore[arg-type]

    assert len(story.faults) == 1
    assert fault in story.faults[0]
    assert fault in " ".join(shown(story).split())


def test_a_gain_that_only_the_judge_sees_is_not_a_gain() -> None:
    assert replace(STORY, figures=replace(FIGURES, verifier=NOTHING)).faults
    assert not replace(STORY, figures=replace(FIGURES, judge=NOTHING)).faults


def test_the_tables_say_what_happened_in_eighty_columns() -> None:
    text = shown(STORY)

    assert "0.400 [0.350, 0.450]" in text
    assert "+0.400 [+0.330, +0.470]" in text
    assert "promote v1.0.1" in text
    assert "best of 2 of v1.0.1 is proved as good as v1.0.0's best of 8" in " ".join(text.split())
    assert "+0.010 [-0.010, +0.030], margin 0.02): 6 of 8 samples saved" in " ".join(text.split())
    assert "better in score: e-value 3252" in text
    assert "rolled back by itself after 5 of its tasks (40 samples)" in " ".join(text.split())
    assert "All as promised, in 132 s." in text


def test_a_training_is_read_from_the_adapter_s_card_whatever_it_tells() -> None:
    told = card(data=DataWindow(groups=64, samples=512), metrics={"seconds": 6.5, "steps": 8, "last_loss": 0.1})

    assert DemoTraining.of(told) == DemoTraining(64, 512, 6.5, 8, 0.1, None)
    assert DemoTraining.of(card(metrics={"seconds": "long"})) == DemoTraining(0, 0, None, None, None, None)


def rows(tasks: Mapping[str, Any], right: int, wrong: str) -> list[AnswerRow]:
    """Two answers a task: those of the first `right` tasks are right, and the others' second one is."""
    return [
        AnswerRow(
            task_id=name,
            sample=sample,
            group_size=2,
            response=task.answer if position < right or sample == 1 else wrong,
        )
        for position, (name, task) in enumerate(tasks.items())
        for sample in range(2)
    ]


def shown(story: Story) -> str:
    console = Console(width=80, record=True)
    console.print(render_story(story), soft_wrap=False)
    return console.export_text()
