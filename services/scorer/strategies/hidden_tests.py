"""Scores answers that are programs by hidden cases: the share of them that is passed, each a sandboxed process.

What is expected never enters the sandbox: a case is told its input, and what it writes is compared here, in value and
type. A program that exits early, patches the comparison or prints that all is well has answered nothing. A scorer whose
sandbox does not hold does not start.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from collections import Counter
from collections.abc import Mapping
from typing import Self

from ratchet.bus.in_hand import NEVER
from ratchet.sandbox.job import Job, Result, SandboxError
from ratchet.sandbox.sandbox import Sandbox
from ratchet.service.errors import ScorerError, one_line
from ratchet.service.telemetry import Log
from schemas.messages.reward import SampleScore, ScorerIdentity
from services.scorer.hidden_tests.answer import NoFiles, files_of
from services.scorer.hidden_tests.comparing import fault
from services.scorer.hidden_tests.languages import PROGRAM, TOOLS, build, job_of
from services.scorer.hidden_tests.plan import Plan, plan_of
from services.scorer.settings import ScorerSettings
from services.scorer.strategies.strategy import ScoringRequest, failure, no_score

REVISION = "1"
"""Raise it with every change here, in `hidden_tests` or in the sandbox that changes a score."""
SHOWN_FAULTS = 5
WHERE_TOOLS_ARE = "/usr/local/bin:/usr/bin:/bin"

log = Log("tests")


class DoesNotBuild(Exception):
    """The answer's own fault, in the compiler's words."""


class HiddenTests:
    """`build_strategy` makes it, `start` opens its sandbox."""

    def __init__(self, settings: ScorerSettings) -> None:
        self._settings = settings
        self._slots = asyncio.Semaphore(settings.sandbox_runs_at_once)
        self._sandbox: Sandbox | None = None
        self._advanced_at = NEVER

    @classmethod
    def build(cls, argument: str, settings: ScorerSettings) -> Self:
        if argument:
            raise ScorerError(f"`tests` takes no argument, but was given {argument!r}: the cases are in the criteria")
        return cls(settings)

    @property
    def identity(self) -> ScorerIdentity:
        return ScorerIdentity(id="tests", revision=REVISION)

    async def start(self) -> None:
        """Raises ScorerError, with what mends it, where no sandbox holds."""
        try:
            self._sandbox = await asyncio.to_thread(Sandbox.opened, self._settings)
        except SandboxError as error:
            raise ScorerError(f"the scorer `tests` runs code and refuses to without a sandbox: {error}") from error
        log.info("sandbox-holds", self._sandbox.facts.says)

    async def stop(self) -> None:
        """Runs end with the calls that wait for them."""

    def trouble(self) -> str | None:
        return None

    def advanced_at(self) -> float:
        return self._advanced_at

    async def score(self, request: ScoringRequest) -> list[SampleScore]:
        try:
            plan = plan_of(request.criteria)
        except ScorerError as error:
            return no_score(len(request.answers), str(error))
        tool = TOOLS[plan.language]
        if shutil.which(tool, path=WHERE_TOOLS_ARE) is None:
            said = f"this scorer's machine has no {tool} for {plan.language}: sh infra/setup-toolchains.sh"
            return failure(len(request.answers), said)
        texts = [answer.text for answer in request.answers]
        asked = texts if request.fresh else list(dict.fromkeys(texts))
        scores = await asyncio.gather(*(self._scored(text, plan) for text in asked))
        if request.fresh:
            return list(scores)
        by_text = dict(zip(asked, scores, strict=True))
        return [by_text[text] for text in texts]

    async def _scored(self, text: str, plan: Plan) -> SampleScore:
        try:
            files = files_of(text, plan)
            programs = await self._built(plan, files)
            results = await asyncio.gather(
                *(self._run(job_of(plan, case, files, programs.get(case.function))) for case in plan.cases)
            )
        except (NoFiles, DoesNotBuild) as error:
            return SampleScore(score=0.0, reason=one_line(str(error)))
        except SandboxError as error:
            return failure(1, one_line(str(error)))[0]
        faults = {number: _fault(plan, number, result) for number, result in enumerate(results)}
        wrong = {plan.case_name(number): said for number, said in faults.items() if said is not None}
        return SampleScore(score=1 - len(wrong) / len(results), reason=one_line(_told(len(results), wrong)))

    async def _built(self, plan: Plan, files: Mapping[str, bytes]) -> dict[str | None, bytes]:
        """A program for each function that cases call, and one (None) for commands. Raises DoesNotBuild."""
        programs = dict[str | None, bytes]()
        for function in dict.fromkeys(case.function for case in plan.cases):
            if (job := build(plan, files, function)) is not None:
                result = await self._run(job)
                if not result.succeeded or PROGRAM not in result.files:
                    said = result.stderr.decode(errors="replace").strip().splitlines()
                    raise DoesNotBuild(f"it does not build: {result.says}; {' '.join(said[:3])}")
                programs[function] = result.files[PROGRAM]
        return programs

    async def _run(self, job: Job) -> Result:
        assert self._sandbox is not None, "start() comes first"
        async with self._slots:
            self._advanced_at = time.monotonic() + job.limits.wall_s
            return await self._sandbox.run(job)


def _fault(plan: Plan, number: int, result: Result) -> str | None:
    return fault(plan.cases[number], result.stdout) if result.succeeded else result.says


def _told(count: int, wrong: Mapping[str, str]) -> str:
    """For people and the log: it names cases and what went wrong, never what was expected."""
    said = f"{count - len(wrong)} of {count} cases"
    if not wrong:
        return said
    shown = [f"{name}: {why}" for name, why in list(wrong.items())[:SHOWN_FAULTS]]
    if (more := len(wrong) - SHOWN_FAULTS) > 0:
        reasons = Counter(list(wrong.values())[SHOWN_FAULTS:]).most_common(1)[0][0]
        shown.append(f"and {more} more, mostly {reasons}")
    return f"{said}; {'; '.join(shown)}"
