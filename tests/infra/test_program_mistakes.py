"""The checks that a person runs before `pulumi up` find mistakes in the program, not only in what it renders."""

from __future__ import annotations

import random

import pytest

from bench.infra_mutants.mutating import mutants
from bench.infra_mutants.reasons import reason_for
from bench.infra_mutants.stacks import configurations
from bench.infra_mutants.trying import Trial, Verdict
from infra.checks import findings, selectors
from infra.render.manifests import manifests
from infra.render.recording import record
from services.orchestrator.api import tasks
from tests.infra.program_mistakes import PROGRAM_MISTAKES, ProgramMistake

SAMPLE, SEED = 4, 33
"""Each takes about a second of CPU. CI tries 300 more, `python -m bench.infra_mutants` all."""


@pytest.mark.parametrize("mistake", PROGRAM_MISTAKES, ids=lambda mistake: mistake.text)
def test_a_mistake_in_the_program_is_found(mistake: ProgramMistake) -> None:
    assert mistake.faults()


@pytest.mark.parametrize("stack", configurations())
def test_the_program_without_a_mistake_has_no_fault(stack: str) -> None:
    found = manifests(record("prod", configurations()[stack]))

    assert [str(finding) for finding in findings(found)] == []


def test_the_way_in_lets_a_call_wait_as_long_as_the_api_does() -> None:
    assert selectors.LONGEST_WAIT_S == tasks.LONGEST_WAIT_S


def test_small_mistakes_drawn_at_random_are_found_or_harmless() -> None:
    trial = Trial()

    tried = [trial.run(mutant) for mutant in random.Random(SEED).sample(mutants(), SAMPLE)]

    survivors = [one for one in tried if one.verdict is Verdict.SURVIVED]
    assert [(str(one.mutant), one.changed[:3]) for one in survivors if not reason_for(one)] == []
