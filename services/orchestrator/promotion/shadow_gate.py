"""Asks a candidate what users asked before, and the versions that it is held against; what is proved ends the asking.

A candidate adapter answers the golden set of its agent, and logged prompts that no training of it saw. The primary has
answered these already, so its logged scores are the other side of the comparison. v1.0.0 answers them too, where it is
not the primary: the limits for life are measured beside it. Where programs answer the agent's tasks, and for a program
that is to be tried, nothing is replayed from the log: a program acts anew each time it is asked, and its tools may
reach outside of the sandbox. There both sides answer the golden set or, without one, the first tasks of the agent's
users; so they do where few prompts are left.

Proof of harm refuses a candidate. Beside logged scores it may be the world that changed, so the primary answers the
same prompts anew first: only what is worse than these answers as well is refused. No user gets an answer.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from datetime import datetime
from itertools import islice
from pathlib import Path
from random import Random

from ratchet.adapters.taught_logs import GOLDEN
from ratchet.experiments.logged import NO_TYPE, outcome_of
from ratchet.experiments.shadow import Pair, ShadowReplay, ShadowRule
from ratchet.experiments.unit import Outcome
from ratchet.logs.names import GOLDEN_TASKS, REPLAY_TASKS, VALIDATION
from ratchet.service.errors import AdapterError, NotJudged
from schemas.messages.base import DecodeError
from schemas.messages.task import Task
from schemas.messages.work import BASE_VERSION, Arm, Work
from schemas.records.decision import ProgramArms, ProgramRevision
from schemas.records.evidence import ReplayRecord
from schemas.records.interaction import Interaction
from schemas.records.registry import AdapterEntry
from services.orchestrator.promotion.arms import Arms, names_its_own
from services.orchestrator.promotion.experiment_transitions import shadow_rule
from services.orchestrator.promotion.own_tasks import ANSWERS_AT_ONCE, Ask, Asked, OwnTasks
from services.orchestrator.promotion.unseen_prompts import LoggedPrompt, UnseenPrompts, lessons_of, unseen_prompts
from services.orchestrator.settings import OrchestratorSettings

FEW = 16
"""Logged prompts below which the first tasks of users are asked as well."""
AHEAD = 2 * ANSWERS_AT_ONCE
"""Prompts that are under way or wait for their turn; the others are not read from the log yet."""
NAMED = 40
"""Characters of a program's name in the ids of its tasks."""

Logged = tuple[Work, Sequence[Interaction]]
ReadLogged = Callable[[str], Awaitable[Logged | None]]
"""A task's Work and lines, by its id; None where the logs have them no more."""


@dataclass(frozen=True, slots=True)
class GateVerdict:
    passed: bool
    reason: str
    evidence: dict[str, object]
    replayed: ReplayRecord | None = None
    """Kept for the live test; None where no prompt of the log was asked."""

    def with_note(self, note: str) -> GateVerdict:
        return replace(self, reason=f"{self.reason}; {note}")


@dataclass(frozen=True, slots=True)
class Prompt:
    """One thing to ask: a task, or one in the log, which is read when its turn comes. `number` ends the ids it gets."""

    number: str
    task: Task | None = None
    logged: LoggedPrompt | None = None


@dataclass(frozen=True, slots=True)
class Sides:
    """The versions that are asked. `other`: the primary, asked what is not in the log; `base`: v1.0.0, where it is not
    the primary.
    """

    candidate: Asked
    other: Asked
    base: Asked | None = None


@dataclass(eq=False)
class ShadowGate:
    """One agent's. What it raises is not the candidate's fault: BusError, JournalError and NotJudged.

    `first_tasks`: the first that users asked.
    """

    arms: Arms
    ask: Ask
    own_tasks: OwnTasks
    settings: OrchestratorSettings
    read_logged: ReadLogged
    _: KW_ONLY
    first_tasks: Callable[[], Sequence[Task]]
    revision: Callable[[], int]
    clock: Callable[[], datetime]
    seconds: Callable[[], float]

    def __post_init__(self) -> None:
        self._policy = self.settings.experiments
        self._golden = self.settings.adapters_dir / self.arms.first.agent_id / GOLDEN
        self._random = Random()

    # --- who is judged ---------------------------------------------------------------------------------------------

    async def judge(self, entry: AdapterEntry, *, by_programs: bool) -> GateVerdict:
        """`by_programs`: they answer the agent's tasks. Raises AdapterError for a golden set that can't be read."""
        primary, replays = self.arms.adapters.primary, self.settings.golden_from_traffic and not by_programs
        unseen = await asyncio.to_thread(self._unseen, entry.version, primary) if replays else UnseenPrompts()
        drawn, again = unseen.draw(self.settings.replay_prompts, self._random)
        tasks = await self._tasks(few=len(drawn) < FEW)
        if not tasks and not drawn:
            reason = f"it loads and answers everywhere; there is no golden set to ask ({self._golden})"
            return GateVerdict(True, reason, {})
        run = f"{entry.version}-{self.revision()}"
        versions = dict.fromkeys([entry.version, primary, BASE_VERSION])
        arms = {version: self._arm_of_version(version, run, version == entry.version) for version in versions}
        rule = replace(shadow_rule(self.arms.adapters, self._policy), types=UnseenPrompts.types_of(drawn))
        prompts = [*tasks, *(Prompt(str(one.sequence), logged=one) for one in drawn)]
        verdict = await self._verdict(rule, prompts, run, arms, primary)
        if replays and len(drawn) < FEW:
            verdict = verdict.with_note(
                f"{len(drawn)} logged prompts are left that no training saw, so live traffic decides"
            )
        if unseen.taught:
            verdict = verdict.with_note(
                f"{unseen.taught} logged tasks are left out, whose prompts or the same words a training was taught"
            )
        return verdict.with_note("all of its logged prompts judged an earlier candidate") if again else verdict

    async def judge_program(self, programs: ProgramArms) -> GateVerdict:
        """Both are asked, with the primary adapter."""
        try:
            prompts = await self._tasks(few=True)
        except AdapterError as error:
            return GateVerdict(False, str(error), {})
        if not prompts:
            return GateVerdict(True, f"there is no golden set to ask ({self._golden})", {})
        run = f"{programs.treatment.name[:NAMED]}-{self.revision()}"
        arms = {
            f"new-{programs.treatment.name[:NAMED]}": self._arm_of_program(programs.treatment, run, is_new=True),
            f"present-{programs.control.name[:NAMED]}": self._arm_of_program(programs.control, run, is_new=False),
        }
        rule = shadow_rule(self.arms.adapters, self._policy, of_program=True)
        return await self._verdict(rule, [_by_arm(one) for one in prompts], run, arms, self.arms.adapters.primary)

    def _arm_of_version(self, version: str, run: str, is_candidate: bool) -> Callable[[int], Arm]:
        return lambda sequence: self.arms.arm_as_played(
            version,
            sequence,
            experiment_id=f"{VALIDATION}{self.arms.agent_id}-{run}",
            is_candidate=is_candidate,
            propensity=0.5,
        )

    def _arm_of_program(self, program: ProgramRevision, run: str, *, is_new: bool) -> Callable[[int], Arm]:
        named = {"program": program.name, "program_revision": program.revision}
        arm = self._arm_of_version(self.arms.adapters.primary, run, is_new)
        return lambda sequence: arm(sequence).model_copy(update=named)

    # --- what is asked ---------------------------------------------------------------------------------------------

    def _unseen(self, version: str, primary: str) -> UnseenPrompts:
        agent_id, settings = self.arms.agent_id, self.settings
        lessons = lessons_of(settings.adapters_dir, agent_id, self.arms.adapters, version)
        return unseen_prompts(settings.logs_dir, agent_id, primary, lessons, self._random)

    async def _tasks(self, *, few: bool) -> list[Prompt]:
        """The golden set; without one the first tasks of users, where few others are asked."""
        tasks = await asyncio.to_thread(read_golden_tasks, self._golden)
        if not tasks and few and self.settings.golden_from_traffic:
            tasks = list(self.first_tasks())
        return [Prompt(str(number), task=task) for number, task in enumerate(tasks)]

    def _sides(self, prompts: Sequence[Prompt], arms: Mapping[str, Callable[[int], Arm]]) -> Sides:
        until = self.seconds() + self.settings.golden_deadline_s
        samples = max((one.task and one.task.samples) or self.settings.samples for one in prompts)
        return Sides(
            *(
                Asked(
                    name,
                    arm,
                    self.own_tasks,
                    self.ask,
                    agent_id=self.arms.first.agent_id,
                    samples=samples,
                    until=until,
                    clock=self.clock,
                    seconds=self.seconds,
                )
                for name, arm in arms.items()
            )
        )

    # --- how it is judged ------------------------------------------------------------------------------------------

    async def _verdict(
        self,
        rule: ShadowRule,
        prompts: Sequence[Prompt],
        run: str,
        arms: Mapping[str, Callable[[int], Arm]],
        primary: str,
    ) -> GateVerdict:
        """`arms`: the candidate's, the other's, and v1.0.0's where it is neither. `primary`: of now; another may come
        meanwhile."""
        replay = ShadowReplay(rule)
        pairs = await self._replay(replay, prompts, run, self._sides(prompts, arms))
        if not replay.prompts or not (replay.ours_scored or replay.others_scored):
            raise NotJudged(
                f"none of the {len(prompts)} prompts got a scored answer in time (RATCHET_GOLDEN_DEADLINE_S): see that "
                f"agent and scorer work, that their queues are short, and that the scorer can score these tasks"
            )
        evidence = replay.evidence
        if not (replay.is_harmful or replay.is_broken):
            record = ReplayRecord(against=primary, evidence=replay.replayed, since_base=replay.since_base)
            return GateVerdict(True, f"no harm is proved: {replay.sentence}", evidence, record if replay.seen else None)
        if any(prompt.logged for prompt, _ in pairs):
            anew = await self._asked_anew(rule, pairs, run, self._sides(prompts, arms))
            evidence |= {"asked_anew": anew.evidence}
            if not (anew.is_broken or anew.harm >= math.sqrt(1.0 / rule.alpha)):
                raise NotJudged(
                    f"its answers are worse than those that the primary had in the log ({replay.sentence}), but the "
                    f"primary does no better now ({anew.sentence}): see that agent and scorer work as they did"
                )
        return GateVerdict(False, f"harm, most of all in {replay.worst}: {replay.sentence}", evidence)

    async def _replay(
        self, replay: ShadowReplay, prompts: Sequence[Prompt], run: str, sides: Sides
    ) -> list[tuple[Prompt, Pair]]:
        """Ask until the end, or until enough is proved. Returns the pairs, which count in the order in which their
        prompts were drawn.
        """
        pairs = list[tuple[Prompt, Pair]]()
        rest, asked = iter(prompts), deque[tuple[Prompt, asyncio.Task[Pair | None]]]()
        try:
            while True:
                for prompt in islice(rest, AHEAD - len(asked)):
                    asked.append((prompt, asyncio.create_task(self._pair(prompt, run, sides))))
                if not asked or replay.is_over:
                    return pairs
                prompt, waiting = asked.popleft()
                if (pair := await waiting) is not None:
                    replay.observe(pair)
                    pairs.append((prompt, pair))
        finally:
            for _, waiting in asked:
                waiting.cancel()
            await asyncio.gather(*(waiting for _, waiting in asked), return_exceptions=True)

    async def _pair(self, prompt: Prompt, run: str, sides: Sides) -> Pair | None:
        """Return None where it has left the log, or the time was up before it was answered by both."""
        if prompt.logged is None:
            assert prompt.task is not None
            ours, other, base = await self._answers(prompt, prompt.task, run, sides, sides.other)
            is_traffic = False
        elif (found := await self._read_logged(prompt.logged)) is None:
            return None
        else:
            work, lines = found
            ours, _, base = await self._answers(prompt, _as_asked(work), run, sides, None)
            other, is_traffic = lines, True
        if not ours or not other or (sides.base and not base) or (not is_traffic and _is_unanswered(other)):
            return None
        outcome, others = self._outcome(ours), self._outcome(other)
        if outcome.scorer and others.scorer and outcome.scorer != others.scorer:
            raise NotJudged(
                f"the scorer changed from {others.scorer} to {outcome.scorer}: their scores can't be compared"
            )
        return Pair(
            task_type=prompt.logged.task_type if prompt.logged else NO_TYPE,
            candidate=outcome,
            other=others,
            base=self._outcome(base) if base else None,
            extra=prompt.logged is not None and prompt.logged.extra,
            is_traffic=is_traffic,
        )

    async def _answers(
        self, prompt: Prompt, task: Task, run: str, sides: Sides, other: Asked | None
    ) -> list[Sequence[Interaction]]:
        """Ask the candidate, the other and v1.0.0; none of whom is not asked."""
        prefix = f"{REPLAY_TASKS if prompt.logged else GOLDEN_TASKS}{self.arms.agent_id}/{run}"
        asked = (sides.candidate, other, sides.base)
        return list(await asyncio.gather(*(_answer(one, task, prefix, prompt.number) for one in asked)))

    async def _asked_anew(
        self, rule: ShadowRule, pairs: Sequence[tuple[Prompt, Pair]], run: str, sides: Sides
    ) -> ShadowReplay:
        """The same candidate beside what the primary answers now, where it was held against the log."""
        anew = ShadowReplay(rule)

        async def renew_pair(prompt: Prompt, pair: Pair) -> Pair | None:
            if prompt.logged is None or (found := await self._read_logged(prompt.logged)) is None:
                return pair
            prefix = f"{REPLAY_TASKS}{self.arms.agent_id}/{run}"
            lines = await sides.other.answer(_as_asked(found[0]), prefix, prompt.number)
            return replace(pair, other=self._outcome(lines)) if lines else None

        for pair in await asyncio.gather(*(renew_pair(*one) for one in pairs)):
            if pair is not None:
                anew.observe(pair)
        return anew

    async def _read_logged(self, prompt: LoggedPrompt) -> Logged | None:
        """Return what there is to compare with; None where the logs have it no more, or its asker named programs."""
        found = await self.read_logged(prompt.task_id)
        return found if found and found[1] and not names_its_own(found[0]) else None

    def _outcome(self, lines: Sequence[Interaction]) -> Outcome:
        return outcome_of(lines).by(self._policy.canary.metric)


async def _answer(asked: Asked | None, task: Task, prefix: str, number: str) -> Sequence[Interaction]:
    return await asked.answer(task, prefix, number) if asked is not None else ()


def _is_unanswered(lines: Sequence[Interaction]) -> bool:
    return all(line.status in ("expired", "cancelled") for line in lines)


def _by_arm(prompt: Prompt) -> Prompt:
    """Answered by the program that its arm names, whichever it asks for."""
    assert prompt.task is not None
    return replace(prompt, task=prompt.task.model_copy(update={"programs": None}))


def _as_asked(work: Work) -> Task:
    """The same task with the group and the sampling that it had."""
    task = Task.model_construct(**{name: getattr(work, name) for name in Task.model_fields})
    sampling = work.sampling
    given = {
        "samples": sampling.n,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "max_tokens": sampling.max_tokens,
        "adapter_version": None,
        "session_id": None,
        "work_to": None,
    }
    return task.model_copy(update=given)


def read_golden_tasks(path: Path) -> list[Task]:
    """One Task a line; none where there is no file. Raises AdapterError naming a line that is not one."""
    if not path.exists():
        return []
    tasks = []
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        if line.strip():
            try:
                tasks.append(Task.decode(line))
            except DecodeError as error:
                raise AdapterError(f"{path}, line {number}: {error.reason}; mend the golden set") from None
    return tasks
