"""Scores what an answer takes, against the task's reference: CPU time and memory over the hidden cases.

Both run the same cases in the same sandbox, one after the other in turns, and of each the median of several rounds
counts, so that what else the machine does falls on both. A case that the answer gets wrong earns it nothing, however
fast it is. As good as the reference, within a tenth, is 1; twice as much is half.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean, median
from typing import ClassVar, Self

from ratchet.service.errors import ScorerError, one_line
from schemas.messages.reward import SampleScore, ScorerIdentity
from services.scorer.ground import OnGround, OwnFault
from services.scorer.hidden_tests.answer import NoFiles
from services.scorer.hidden_tests.plan import Case, Plan, plan_of
from services.scorer.hidden_tests.running import (
    Built,
    DoesNotBuild,
    build_answer,
    fault_of,
    job,
    judged_files,
    missing_tool,
)
from services.scorer.settings import ScorerSettings
from services.scorer.strategies.hidden_tests import place_of
from services.scorer.strategies.strategy import Answer, NothingToOpen, ScoringRequest, failure, no_score
from workbench.sandbox.job import SandboxError
from workbench.trees import Tree
from workbench.workspaces.errors import PatchRefused

REVISION = "1"


class Cost(NothingToOpen):
    """`half`: what earns a half. An anchor that is scored again took nothing anew, and has it whole."""

    name: ClassVar[str]
    unit: ClassVar[str]
    one_by_one = True
    grades_references = True
    """One that took nothing has it whole."""

    def __init__(self, half: float) -> None:
        self._half = half
        self._identity = ScorerIdentity(id=f"{self.name}:{half:g}", revision=REVISION)

    @classmethod
    def build(cls, argument: str, settings: ScorerSettings) -> Self:
        try:
            half = float(argument)
        except ValueError:
            half = math.nan
        if not 0 < half < math.inf:
            raise ScorerError(f"`{cls.name}` needs the {cls.unit} that earn a half, but was given {argument!r}")
        return cls(half)

    @property
    def identity(self) -> ScorerIdentity:
        return self._identity

    async def score(self, request: ScoringRequest) -> list[SampleScore]:
        return [self._score_answer(answer, again=request.fresh) for answer in request.answers]

    def _score_answer(self, answer: Answer, *, again: bool) -> SampleScore:
        taken = self.cost_of(answer)
        if again:
            return SampleScore(score=1.0, reason="scored again: what it took is not")
        if taken is None:
            return SampleScore(score=None, status="unscorable", reason=f"nobody said how many {self.unit} it took")
        return SampleScore(score=self._half / (self._half + taken), reason=f"{taken:,.6g} {self.unit}")

    def cost_of(self, answer: Answer) -> float | None:
        raise NotImplementedError


class Tokens(Cost):
    name = "tokens"
    unit = "tokens"

    def cost_of(self, answer: Answer) -> float | None:
        return answer.spent.tokens


class Time(Cost):
    """Wall-clock: it moves with what else the machine does, so give it little weight."""

    name = "time"
    unit = "seconds"

    def cost_of(self, answer: Answer) -> float | None:
        return answer.spent.seconds


ROUNDS = 5
MOST_CASES = 10
"""The first ones of a task are measured."""
TOLERANCE = 1.1
MEASURED_S = 0.2
"""Seconds of a run whose memory counts.

Without a cgroup memory is sampled every twentieth of a second: of a shorter run only its start would be seen.
"""
MIB = 1024 * 1024


@dataclass(slots=True)
class Taken:
    """Costs of the rounds: CPU seconds, and most memory in bytes of those that were long enough to see it."""

    cpu_s: list[float] = field(default_factory=list)
    peak_bytes: list[int] = field(default_factory=list)


class Efficiency(OnGround):
    name = "efficiency"
    revision = "4"

    @classmethod
    def build(cls, argument: str, settings: ScorerSettings) -> Self:
        if argument:
            raise ScorerError(f"`efficiency` takes no argument, but was given {argument!r}")
        return cls(settings)

    async def score(self, request: ScoringRequest) -> list[SampleScore]:
        count = len(request.answers)
        try:
            plan = plan_of(request.criteria)
        except ScorerError as error:
            return no_score(count, str(error))
        if request.reference is None or not plan.cases:
            return no_score(count, "nothing to measure by: the task has no reference, or no hidden cases")
        if (missing := missing_tool(plan, has_proc=self._ground.has_proc)) is not None:
            return failure(count, missing)
        reference = Answer(request.reference)

        async def judge(before: Tree, after: Tree) -> SampleScore:
            try:
                standard = await self._ground.with_answer(before, reference, place_of(plan, request))
                ready = await build_answer(plan, judged_files(plan, before.files, standard.files), self._ground.run)
            except (DoesNotBuild, NoFiles, OwnFault, PatchRefused) as error:
                raise SandboxError(f"the task's reference can't be run: {error}") from error
            try:
                own = await build_answer(plan, judged_files(plan, before.files, after.files), self._ground.run)
            except DoesNotBuild as error:
                raise OwnFault(str(error)) from error
            return await self._compare(plan, own, ready)

        return await self._ground.score_answers(request, place_of(plan, request), judge)

    async def _compare(self, plan: Plan, own: Built, reference: Built) -> SampleScore:
        cases = plan.cases[:MOST_CASES]
        taken, standard = [Taken() for _ in cases], [Taken() for _ in cases]
        for number, case in enumerate(cases):
            for _ in range(ROUNDS):
                await self._measure(plan, case, reference, standard[number], "the task's reference")
                await self._measure(plan, case, own, taken[number], None)
        return verdict(taken, standard)

    async def _measure(self, plan: Plan, case: Case, ready: Built, taken: Taken, whose: str | None) -> None:
        result = await self._ground.run(job(plan, case, ready))
        if (said := fault_of(case, result)) is not None:
            if whose is not None:
                raise SandboxError(f"{whose} does not pass a case: {said}")
            raise OwnFault(f"not measured, for it does not pass a case: {said}")
        taken.cpu_s.append(result.cpu_s)
        if result.peak_bytes and result.wall_s >= MEASURED_S:
            taken.peak_bytes.append(result.peak_bytes)


def verdict(taken: Sequence[Taken], standard: Sequence[Taken]) -> SampleScore:
    """Pure. Memory counts where it was seen of both, in the cases where it was."""
    own, reference = (sum(median(one.cpu_s) for one in side) for side in (taken, standard))
    parts, said = [_ratio(reference, own)], [f"{own:.3f} s of CPU, the reference {reference:.3f} s"]
    seen = [(a.peak_bytes, b.peak_bytes) for a, b in zip(taken, standard, strict=True) if a.peak_bytes and b.peak_bytes]
    if seen:
        own_bytes, its_bytes = max(median(one) for one, _ in seen), max(median(other) for _, other in seen)
        parts.append(_ratio(its_bytes, own_bytes))
        said.append(f"{own_bytes / MIB:.0f} MiB, the reference {its_bytes / MIB:.0f} MiB")
    return SampleScore(score=fmean(parts), reason=one_line("; ".join(said)))


def _ratio(reference: float, own: float) -> float:
    return min(1.0, TOLERANCE * reference / own) if own > 0 else 1.0
