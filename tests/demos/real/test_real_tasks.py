"""The real demo's tasks: nothing held out is ever seen elsewhere, and every text gives its one right answer."""

from __future__ import annotations

import itertools
import json
import re
from datetime import date
from typing import get_args

import pytest

from demos.real import tasks as made
from demos.real.exact import is_exact
from demos.real.tasks import Part, RealTask, distinct_tasks, part_of, templates
from services.scorer.matching.json_grade import grade

PARTS: tuple[Part, ...] = get_args(Part)
DRAWN = {part: distinct_tasks(part, 1, 400) for part in PARTS}
EVERY = list(itertools.chain(*DRAWN.values()))
POOLS: dict[str, tuple[object, ...]] = {
    "orders": templates("order"),
    "dates": templates("date"),
    "first names": made.FIRST_NAMES,
    "surnames": made.SURNAMES,
    "kinds": made.KINDS,
    "goods": made.GOODS,
    "pieces": made.PIECES,
    "prices": made.PRICES,
    "days": made.DAYS,
}


@pytest.mark.parametrize("name", POOLS)
def test_every_sentence_and_every_value_belongs_to_one_part(name: str) -> None:
    pool = POOLS[name]
    parts = [part_of(pool, part) for part in PARTS]

    assert len(set(pool)) == len(pool)
    assert sum(map(len, parts)) == len(pool)
    assert set().union(*map(set, parts)) == set(pool)


def test_every_way_of_writing_a_date_belongs_to_one_part() -> None:
    forms = list(itertools.chain(*made.DATE_FORMS.values()))

    assert len(set(forms)) == len(forms)


@pytest.mark.parametrize(("one", "other"), list(itertools.combinations(PARTS, 2)))
def test_tasks_of_two_parts_share_neither_template_nor_value(one: Part, other: Part) -> None:
    def used(part: Part) -> set[str]:
        return {task.template for task in DRAWN[part]} | {value for task in DRAWN[part] for value in task.values}

    assert not used(one) & used(other)


def test_there_are_a_few_hundred_templates_and_each_comes() -> None:
    assert len(templates("order")) + len(templates("date")) > 200
    for part in PARTS:
        for family in made.FAMILIES:
            drawn = {task.template for task in DRAWN[part] if task.family == family}
            assert drawn == set(part_of(templates(family), part))


def test_the_reference_is_what_the_text_says() -> None:
    for task in EVERY:
        check_reference(task)


def check_reference(task: RealTask) -> None:
    wanted = json.loads(task.answer)

    if task.family == "date":
        assert wanted == {"date": date_in(task.text).isoformat()}
    else:
        assert wanted["name"] in task.text
        assert re.search(re.escape(wanted["item"][:-1]), task.text, re.IGNORECASE)
        numbers = [float(n) for n in re.findall(r"\d+(?:\.\d+)?", task.text)]
        if len(numbers) == 1:  # the pieces are in words
            assert re.search(rf"\b{made.NUMBERS[wanted['quantity'] - 2]}\b", task.text, re.IGNORECASE)
            assert numbers == [wanted["price"]]
        else:
            assert sorted(numbers) == sorted([wanted["quantity"], wanted["price"]])


@pytest.mark.parametrize("family", made.FAMILIES)
def test_no_template_leaves_a_slot_open_or_says_a_thing_twice(family: made.Family) -> None:
    for task in EVERY:
        assert not re.search(r"[{}]", task.text)
    for template in templates(family):
        slots = sorted(re.findall(r"{(\w+)}", template))
        if family == "date":
            assert slots == ["date"]
        else:
            assert slots.count("name") == slots.count("price") == 1
            assert slots.count("n") + slots.count("words") == 1
            assert slots.count("item") + slots.count("items") >= 1


def test_the_right_answer_has_the_full_mark_of_both_verifiers() -> None:
    for task in EVERY:
        assert grade(task.answer, task.answer, task.criteria).score == 1.0
        assert is_exact(task.answer, task.answer)


def test_a_seed_gives_the_same_tasks_and_another_seed_others() -> None:
    assert distinct_tasks("held_out", 5, 40) == distinct_tasks("held_out", 5, 40)
    texts = [{task.text for task in distinct_tasks("held_out", seed, 40)} for seed in (5, 6)]
    assert len(texts[0]) == len(texts[1]) == 40
    assert len(texts[0] & texts[1]) < 5


def test_the_examples_in_the_prompt_are_of_no_part() -> None:
    for examples in made.EXAMPLES.values():
        for question, answer in examples:
            assert not any(question == task.text for task in EVERY)
            values = set(" ".join(str(value) for value in json.loads(answer).values()).split())
            assert not values & {value for task in EVERY for value in task.values}


def test_a_prompt_ends_with_the_question_and_holds_no_answer_to_it() -> None:
    for task in EVERY[:50]:
        assert task.input[-1].content == task.text
        assert all(task.answer not in turn.content for turn in task.input)


def date_in(text: str) -> date:
    """Read anew, by rules that know nothing of the forms."""
    written = "|".join(f"{month}|{month[:3]}" for month in made.MONTHS)
    month = re.search(rf"\b({written})\b", text[1:], re.IGNORECASE)
    numbers = re.findall(r"\b(\d+)(?:st|nd|rd|th)?\b", text)
    (year,), (day,) = ([int(n) for n in numbers if (len(n) == 4) is long] for long in (True, False))
    assert month is not None
    return date(year, [name[:3].lower() for name in made.MONTHS].index(month[1][:3].lower()) + 1, day)
