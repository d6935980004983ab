"""Scores answers that are programs, or changes of a workspace, by hidden cases: the share of them that is passed.

What is expected never enters the sandbox: a case is told its input, and what it writes is compared here, in value and
type. A program that exits early, patches the comparison or prints that all is well has answered nothing. A scorer whose
sandbox does not hold does not start. What a suite of tests is worth, which does run beside what it tests, is said in
docs/workspaces.md.
"""

from __future__ import annotations

from typing import Self

from ratchet.service.errors import ScorerError, one_line
from schemas.messages.reward import SampleScore
from services.scorer.ground import OnGround, OwnFault
from services.scorer.hidden_tests.plan import Plan, plan_of
from services.scorer.hidden_tests.running import DoesNotBuild, missing_tool, worth
from services.scorer.settings import ScorerSettings
from services.scorer.strategies.strategy import ScoringRequest, failure, no_score
from workbench.trees import Tree


class HiddenTests(OnGround):
    """`build_strategy` makes it, `start` opens its sandbox."""

    name = "tests"
    revision = "5"
    """Raise it with every change here, in `hidden_tests`, in workspaces or in the sandbox that changes a score."""

    @classmethod
    def build(cls, argument: str, settings: ScorerSettings) -> Self:
        if argument:
            raise ScorerError(f"`tests` takes no argument, but was given {argument!r}: the cases are in the criteria")
        return cls(settings)

    async def score(self, request: ScoringRequest) -> list[SampleScore]:
        try:
            plan = plan_of(request.criteria)
        except ScorerError as error:
            return no_score(len(request.answers), str(error))
        if (missing := missing_tool(plan, has_proc=self._ground.has_proc)) is not None:
            return failure(len(request.answers), missing)

        async def judge(before: Tree, after: Tree) -> SampleScore:
            try:
                found = await worth(plan, before.files, after.files, self._ground.run)
            except DoesNotBuild as error:
                raise OwnFault(str(error)) from error
            return SampleScore(score=found.score, reason=one_line(found.reason))

        return await self._ground.score_answers(request, place_of(plan, request), judge)


def place_of(plan: Plan, request: ScoringRequest) -> str | None:
    """Return where an answer that is one text goes; in a workspace only where the plan says so."""
    return plan.place if request.workspace is None else plan.file or None
