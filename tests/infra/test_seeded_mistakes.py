"""The checks bite: each mistake is found by the check that is for it, and every check has its mistake."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from infra.checks import CHECKS
from infra.render.manifests import Manifests
from tests.infra.program_mistakes import PROGRAM_MISTAKES
from tests.infra.seeded_mistakes import MISTAKES, PAGE, Mistake, found_by, summary


@pytest.fixture(scope="module")
def verdicts(prod: Manifests, dev: Manifests, programs: Manifests, jobs: Manifests) -> Mapping[str, set[str]]:
    return found_by({"prod": prod, "dev": dev, "programs": programs, "jobs": jobs})


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.text)
def test_a_mistake_is_found(mistake: Mistake, verdicts: Mapping[str, set[str]]) -> None:
    assert mistake.found_by in verdicts[mistake.text]


def test_every_check_has_its_mistake() -> None:
    in_manifests, in_the_program = ({one.found_by for one in table} for table in (MISTAKES, PROGRAM_MISTAKES))

    assert {check.__name__ for check in CHECKS} <= in_manifests | in_the_program


def test_the_summary_in_the_docs_is_current(verdicts: Mapping[str, set[str]]) -> None:
    assert summary(verdicts) in PAGE.read_text("utf-8"), "python -m tests.infra.seeded_mistakes"
