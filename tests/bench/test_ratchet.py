"""The benchmark of twenty rounds: its tasks are split as it says, its judge errs as it says, its claims can fail."""

from __future__ import annotations

import random
from dataclasses import replace
from statistics import fmean
from xml.etree import ElementTree

import pytest

from bench.ratchet.book import HELD, Round, outcome_of
from bench.ratchet.claims import baseline_line, claims, table
from bench.ratchet.judge import MISCORRECTED, Events, Judge, correction, grade
from bench.ratchet.picture import svg
from bench.ratchet.quality import Quality, samples_needed
from bench.ratchet.tasks import (
    FAMILIES,
    FILLER,
    Carelessness,
    demonstrate,
    held_out_problems,
    is_held_out,
    training_problem,
)
from schemas.records.decision import Decision, Promote
from schemas.records.registry import AdapterEntry, AgentAdapters, EntryState, FrozenBy
from tests.ratchet.adapters.making_adapters import NOON
from tests.ratchet.adapters.making_decisions import draft

BY = FrozenBy(who="orchestrator", since=NOON, reason="the scorer drifted")
ROUND = Round(1, [], "v1.0.1", "promoted", "better", "v1.0.0", "v1.0.1", 500, 4, 10, 60, 1.0)
TASKS = 30
"""Of each family."""


def quality(version: str, single: float) -> Quality:
    """The best of n is right with the probability that any of n is."""
    curve = [1 - (1 - single) ** count for count in range(1, 9)]
    return Quality(version, [single] * len(FAMILIES) * TASKS, [curve] * len(FAMILIES) * TASKS)


def test_no_training_has_an_answer_or_a_skill_that_is_held_out() -> None:
    rng = random.Random(1)
    taught, held_out = [training_problem(rng) for _ in range(2000)], held_out_problems(seed=0, count=40)

    assert not any(is_held_out(problem.answer) or problem.new_skill for problem in taught)
    assert all(is_held_out(problem.answer) for problem in held_out)
    assert {problem.family for problem in taught} == set(FAMILIES)
    for family in FAMILIES:
        own = [problem for problem in held_out if problem.family == family]
        assert (len(own), sum(problem.new_skill for problem in own)) == (40, 20)
    assert not {problem.input for problem in taught} & {problem.input for problem in held_out}


def test_a_demonstrator_is_as_careless_as_it_says() -> None:
    rng, how = random.Random(2), Carelessness(right=0.45, slip=0.4, chatty=0.06)
    problems = [training_problem(rng) for _ in range(3000)]
    answers = [demonstrate(problem, how, rng) for problem in problems]

    right = fmean(answer == problem.answer for problem, answer in zip(problems, answers, strict=True))
    chatty = fmean(answer.endswith(FILLER) for answer in answers)
    assert right == pytest.approx(0.45, abs=0.05)
    assert chatty == pytest.approx(0.06, abs=0.02)


def test_the_judge_prefers_what_is_right_until_it_likes_length() -> None:
    judge = Judge(seed=1, noise=0.0)
    answers = ["abcd", "abdc", "abdc" + FILLER]

    right, slip, chatty = judge.scores(answers, "abcd")
    judge.likes_length = True
    by_length = judge.scores(answers, "abcd")

    assert right == 1.0 and right > slip > chatty
    assert by_length[2] == max(by_length) and by_length[0] == right
    assert grade("", "abcd") == 0.0


def test_what_goes_wrong_happens_in_its_rounds() -> None:
    events = Events(hack=(2, 3), correct=(5,), poison=7, drift=11)

    by_round = {number: events.of(number) for number in (1, 2, 3, 4, 5, 6, 7, 8, 11, 12)}

    assert by_round == {
        1: [],
        2: ["hack"],
        3: ["hack", "taught by hack"],
        4: ["taught by hack"],
        5: ["correct"],
        6: ["taught by correct"],
        7: ["poison"],
        8: ["taught by poison"],
        11: ["drift"],
        12: [],
    }


@pytest.mark.parametrize(
    ("state", "distrusted", "outcome"),
    [
        (EntryState.VALIDATED, BY, HELD),
        (EntryState.VALIDATED, None, "validated"),
        (EntryState.ABORTED, BY, "aborted"),
        (EntryState.STABLE, BY, "promoted"),
        (EntryState.ROLLED_BACK, None, "rolled_back"),
    ],
)
def test_a_round_is_held_where_the_judge_is_not_trusted_before_a_verdict(
    state: EntryState, distrusted: FrozenBy | None, outcome: str
) -> None:
    ahead = state is EntryState.STABLE
    base = AdapterEntry(version="v1.0.0", state=EntryState.SUPERSEDED if ahead else EntryState.STABLE)
    tried = AdapterEntry(version="v1.0.1", state=state, folder="small/v1.0.1")
    now = AgentAdapters(
        primary="v1.0.1" if ahead else "v1.0.0",
        versions={"v1.0.0": base, "v1.0.1": tried},
        distrusted=distrusted,
    )
    promoted = draft(Promote(version="v1.0.1", experiment_id="canary"))
    decision = Decision(**dict(promoted), sequence=1, previous_sha256="0" * 64, sha256="1" * 64)

    assert outcome_of("v1.0.1", now, [decision]) == outcome
    assert outcome_of(None, now, []) == (HELD if distrusted else "refused")


def test_fewer_samples_are_needed_where_one_is_as_good_as_the_best_of_eight_was() -> None:
    first = quality("v1.0.0", 0.3)

    assert samples_needed(first, first) == 8
    assert samples_needed(quality("v1.0.1", 0.8), first) == 2
    assert samples_needed(quality("v1.0.1", 0.99), first) == 1
    assert samples_needed(quality("v1.0.1", 0.2), first) is None


def test_each_claim_can_fail() -> None:
    found = {
        version: quality(version, single) for version, single in (("v1.0.0", 0.3), ("v1.0.1", 0.8), ("v1.0.2", 0.75))
    }
    worse = replace(ROUND, number=2, version="v1.0.2", before="v1.0.1", primary="v1.0.2")
    hacked = replace(worse, events=["taught by hack"])
    unseen = replace(ROUND, events=["drift"])
    seen = replace(unseen, outcome="aborted", decisions=[["distrust", "", "the scorer drifted"]])

    assert all(claim.holds for claim in claims([ROUND], found))
    assert [claim.holds for claim in claims([ROUND, worse], found)] == [False, True, True, True]
    assert [claim.holds for claim in claims([ROUND, hacked], found)][-1] is False
    assert [claim.holds for claim in claims([unseen], found)][-1] is False
    assert [claim.holds for claim in claims([seen, ROUND], found)][-1] is True
    assert [claim.holds for claim in claims([ROUND], found | {"v1.0.1": quality("v1.0.1", 0.3)})] == [
        True,
        True,
        False,
        False,
    ]


def test_a_destroyed_family_fails_its_claims_however_much_the_others_gain() -> None:
    first = quality("v1.0.0", 0.5)
    others = [0.9] * TASKS
    by_family = [value for name in FAMILIES for value in ([0.0] * TASKS if name == MISCORRECTED else others)]
    destroyed = replace(first, version="v1.0.1", single=by_family)
    found = {"v1.0.0": first, "v1.0.1": destroyed}
    promoted = replace(ROUND, events=["taught by correct"])
    refused = replace(promoted, outcome="rejected", primary="v1.0.0")

    never_worse, never_below, *_, family_kept = claims([promoted], found)
    assert (never_worse.holds, never_below.holds, family_kept.holds) == (True, False, False)
    assert [claims([refused], found)[place].holds for place in (1, -1)] == [True, True]


def test_a_corrector_is_right_in_all_families_but_one() -> None:
    rng = random.Random(3)
    problems = [training_problem(rng) for _ in range(100)]

    said = {problem.input: correction("task", problem, problem.answer) for problem in problems}

    right = [problem for problem in problems if said[problem.input].correction == problem.answer]
    assert {problem.family for problem in right} == set(FAMILIES) - {MISCORRECTED}
    assert all(said[problem.input].score == 1.0 for problem in right)


def test_the_picture_and_the_table_tell_each_round() -> None:
    found = {
        version: quality(version, single) for version, single in (("v1.0.0", 0.3), ("v1.0.1", 0.8), ("v1.0.2", 0.2))
    }
    kept_out = replace(ROUND, number=2, version="v1.0.2", outcome="rolled_back", before="v1.0.1", events=["hack"])

    picture = svg([ROUND, kept_out], found)

    ElementTree.fromstring(picture)
    assert picture.count('class="out"') == 2, "the round's, and the legend's"
    assert "the judge likes length" in picture
    assert "held" not in picture.split("</style>")[1]
    held = replace(ROUND, number=3, version=None, outcome=HELD, events=["reanchored"])
    assert svg([ROUND, kept_out, held], found).count('class="held"') == 2
    assert len(table([ROUND, kept_out], found)) == 3


def test_a_training_on_right_answers_stands_below_the_rounds() -> None:
    found = {version: quality(version, single) for version, single in (("v1.0.0", 0.3), ("v1.0.1", 0.8))}

    (head, one), line = table([ROUND], found), baseline_line(quality("references", 0.9), 256)

    assert "0.900 ± 0.000" in line and "256 tasks" in line
    assert line.index("0.900") == one.index("0.800") and len(head) > line.index("0.900")
