"""The jobs of bench.own: what is held out shares nothing with what is trained on."""

from __future__ import annotations

import pytest

from bench.own.families import FAMILIES, Family, with_wrong_references
from bench.own.world import scores_of
from ratchet.adapters.taught_logs import WORD


@pytest.mark.parametrize("family", FAMILIES.values(), ids=lambda family: family.name)
def test_held_out_tasks_ask_other_things_in_other_words_and_references_pass(family: Family) -> None:
    trained, held_out = family.tasks(64, 0), family.tasks(16, 0, held_out=True)

    assert not {task.input[-1].content for task in trained} & {task.input[-1].content for task in held_out}
    assert len(set(family.templates)) == len(family.templates)
    assert scores_of(family, trained, [[task.reference] for task in trained]) == [[1.0]] * 64


def test_wrong_references_are_as_many_as_asked_and_of_other_tasks() -> None:
    tasks = FAMILIES["dates"].tasks(40, 0)

    changed, wrong = with_wrong_references(tasks, 0.1, 0)

    assert len(wrong) == 4
    assert {n for n, (one, other) in enumerate(zip(tasks, changed, strict=True)) if one != other} == wrong


@pytest.mark.parametrize(("name", "share"), [("units", 1.0), ("topics", 0.59), ("dates", 0.41), ("tickets", 0.06)])
def test_in_short_prompts_many_tasks_differ_from_a_taught_one_in_one_word(name: str, share: float) -> None:
    """So the shadow replay can't leave such prompts out as nearly the same (docs/experiments.md)."""
    words = [frozenset(WORD.findall(task.input[-1].content.casefold())) for task in FAMILIES[name].tasks(320, 0)]
    taught, fresh = words[:256], words[256:]

    near = sum(any(len(one - other) <= 1 and len(other - one) <= 1 for other in taught) for one in fresh)

    assert near / len(fresh) == pytest.approx(share, abs=0.01)
