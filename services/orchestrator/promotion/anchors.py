"""Anchors: fixed answers that are scored again from time to time. Their scores move only if the scorer does.

So a fall of the fleet's scores while those of the anchors stay is the model's; a move of the anchors is the scorer's,
and nothing is learnt by it until it is back, or an operator says that its scores are the new measure. The anchors of an
agent are `adapters/<agent>/anchors.jsonl`: the first answers of its first version and of the two newest since, so that
a scorer that comes to like how a candidate writes is found too. What their scores say is ratchet/experiments/drift.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import InitVar, dataclass
from pathlib import Path
from statistics import fmean, pstdev
from typing import Protocol

import msgspec

from ratchet.adapters.manifest import version_key
from ratchet.adapters.taught_logs import ANCHORS
from ratchet.experiments.drift import REFERENCE_ROUNDS, ROUNDS_AT_ONCE, Drift, DriftWatch, Rescored, noise_of
from ratchet.experiments.logged import scorer_of
from ratchet.files.atomic_file import replace_file
from ratchet.logs.names import ANCHOR_TASKS, VALIDATION, is_own
from ratchet.service.errors import JournalError
from ratchet.service.telemetry import Log
from schemas.messages.task import Task
from schemas.messages.work import BASE_VERSION, Arm
from schemas.records.interaction import Interaction
from services.orchestrator import metrics
from services.orchestrator.promotion.arms import Arms
from services.orchestrator.promotion.own_tasks import OwnTasks

log = Log("anchors")

COUNT = 16
"""Anchors of each version."""
VERSIONS = 3

Rescore = Callable[[Task, str, Callable[[int], Arm]], Awaitable[None]]
"""Have the fleet's scorer score a given answer to a task of our own."""


class Anchor(msgspec.Struct, frozen=True):
    """An answer, and the score it had at first; then the mean of `scores`, its reference once there are enough.

    `anchored`: the decision by which the scorer's scores became the measure; 0: they were from the start.
    """

    task: bytes
    answer: str
    score: float
    scorer: str
    version: str = BASE_VERSION
    scores: tuple[float, ...] = ()
    anchored: int = 0

    @property
    def has_reference(self) -> bool:
        return len(self.scores) >= REFERENCE_ROUNDS

    def with_score(self, score: float, scorer: str) -> Anchor:
        """Return the anchor with one more score; by another scorer than before, with that one alone."""
        scores = (*self.scores, score) if scorer == self.scorer else (score,)
        return msgspec.structs.replace(self, score=fmean(scores), scores=scores, scorer=scorer)


class Trust(Protocol):
    """The one that decides what follows, for the agent with these arms. Both raise RegistryError."""

    arms: Arms

    async def distrust(self, reason: str) -> None:
        """The scorer moved: what is judged by it ends, and nothing is learnt."""

    async def trust(self, reason: str) -> None:
        """It is back, or another one."""


_encoder = msgspec.json.Encoder()


@dataclass(eq=False)
class Anchors:
    """One agent's."""

    adapters_dir: InitVar[Path]
    rescore: Rescore
    own_tasks: OwnTasks
    trust: Trust
    tolerance: float

    def __post_init__(self, adapters_dir: Path) -> None:
        self._arms = self.trust.arms
        self._agent_id = self._arms.agent_id
        self._path = adapters_dir / self._agent_id / ANCHORS
        self._anchors: list[Anchor] = []
        self._fresh: dict[str, list[Anchor]] = {}
        self._unsaved = False
        self._runs = 0
        self._begin_anew()

    def start(self) -> None:
        if self._path.exists():
            self._anchors = [msgspec.json.decode(line, type=Anchor) for line in self._path.read_bytes().splitlines()]

    @property
    def tasks(self) -> list[Task]:
        """The users' tasks that the first ones answer; none until there are enough."""
        return [Task.decode(anchor.task) for anchor in self._anchors[:COUNT]]

    def take_closed(self, lines: Sequence[Interaction], task: Task) -> None:
        """Take the first answer to a task of the fleet as an anchor while its version has too few.

        Raises nothing for a disk that fails: that is no fault of the task, and the next one tries again.
        """
        self._collect(lines[0], task)
        if self._unsaved:
            self._save()

    def _collect(self, line: Interaction, task: Task) -> None:
        if self._has_anchors_of(line.adapter_version):
            return
        scorer = scorer_of(line)
        if is_own(line.arm.experiment_id) or line.response is None or scorer is None or self._arms.adapters.distrusted:
            return
        if task.kept_apart or task.workspace is not None:
            return  # the gate may ask it; and an answer that is a patch is no text to be scored again
        assert line.score is not None
        plain = Task(
            task_id=task.task_id,
            input=task.input,
            tools=task.tools,
            reference=task.reference,
            criteria=task.criteria,
            task_type=task.task_type,
        )
        fresh = self._fresh.setdefault(line.adapter_version, [])
        fresh.append(Anchor(plain.encode(), line.response, line.score, scorer, line.adapter_version))
        if len(fresh) == COUNT:
            self._take(self._fresh.pop(line.adapter_version))

    def _has_anchors_of(self, version: str) -> bool:
        """Tell whether there are anchors of this version or a newer one; the newest are last, and asked for most."""
        if not self._anchors or self._anchors[-1].version == version:
            return bool(self._anchors)
        return version_key(version) <= max(version_key(one.version) for one in self._anchors)

    def _take(self, fresh: list[Anchor]) -> None:
        """Keep the anchors of the first version and those of the newest ones."""
        versions = list(dict.fromkeys(one.version for one in self._anchors))
        gone = set(versions[1 : len(versions) - VERSIONS + 2])
        self._anchors = [*(one for one in self._anchors if one.version not in gone), *fresh]
        self._unsaved = True

    async def check(self) -> None:
        """Score all of them again, and at once again while that may tell. Raises RegistryError."""
        if not self._anchors:
            return
        self._forget_old_measure()
        if self._distrusted is None or not any(one.has_reference for one in self._anchors):
            await self._take_references()
        for _ in range(ROUNDS_AT_ONCE):
            if not await self._round():
                return

    @property
    def _distrusted(self) -> str | None:
        distrusted = self._arms.adapters.distrusted
        return distrusted.reason if distrusted else None

    def _forget_old_measure(self) -> None:
        """Forget the old measure, once an operator took the scorer's scores as the new one."""
        anchored = self._arms.adapters.anchored
        if any(one.anchored != anchored for one in self._anchors):
            self._anchors = [msgspec.structs.replace(one, scores=(), anchored=anchored) for one in self._anchors]
            self._begin_anew()

    def _begin_anew(self) -> None:
        self._watch = DriftWatch(self.tolerance)
        self._returning = DriftWatch(self.tolerance, for_return=True)

    async def _take_references(self) -> None:
        for _ in range(REFERENCE_ROUNDS):
            missing = [one for one in self._anchors if not one.has_reference]
            if not missing:
                return
            again = dict(zip(missing, await self._again(missing), strict=True))
            self._anchors = [again.get(one) or one for one in self._anchors]
            self._save()

    async def _round(self) -> bool:
        """True if another one at once may tell more."""
        anchors = [one for one in self._anchors if one.has_reference]
        again = [(old, new) for old, new in zip(anchors, await self._again(anchors), strict=True) if new is not None]
        if 2 * len(again) <= len(anchors):
            if anchors:
                log.warning("anchors-unscored", f"{len(anchors) - len(again)} of {len(anchors)} got no score")
            return False
        if any(old.scorer != new.scorer for old, new in again):
            await self._renew(again[0][1].scorer)
            return False
        rescored = [Rescored(old.version, old.scores, new.scores[-1]) for old, new in again]
        metrics.judge_drift.labels(self._agent_id).set(fmean(one.change for one in rescored))
        metrics.judge_noise.labels(self._agent_id).set(pstdev(one.change for one in rescored))
        noise = noise_of([one.scores for one in anchors])
        return await (self._look_for_return(rescored, noise) if self._distrusted else self._look(rescored, noise))

    async def _renew(self, scorer: str) -> None:
        """Under another scorer than before, its scores are the measure."""
        log.info("anchors-renewed", f"the scorer is now {scorer}: its scores are the new measure")
        self._anchors = [msgspec.structs.replace(one, scores=(), scorer=scorer) for one in self._anchors]
        self._begin_anew()
        await self._take_references()
        if self._distrusted:
            await self.trust.trust(f"the scorer is now {scorer}: its scores are the new measure")

    async def _look(self, rescored: Sequence[Rescored], noise: float) -> bool:
        self._watch.observe(rescored, noise)
        if (drift := self._watch.drift) is not None:
            sentence = describe_drift(drift, rescored)
            log.error("judge-drift", sentence, agent_id=self._agent_id, kind=drift.kind, drift=drift.size)
            self._begin_anew()
            await self.trust.distrust(sentence)
        return self._watch.is_undecided

    async def _look_for_return(self, rescored: Sequence[Rescored], noise: float) -> bool:
        self._returning.observe(rescored, noise)
        if self._returning.is_back:
            sentence = f"the scorer is back: the same {len(rescored)} answers score as they did at first (anchors)"
            log.info("judge-back", sentence, agent_id=self._agent_id)
            self._begin_anew()
            await self.trust.trust(sentence)
        return self._returning.is_undecided

    async def _again(self, anchors: Sequence[Anchor]) -> list[Anchor | None]:
        """Each with one more score, or None where it got none."""
        self._runs += 1
        return list(await asyncio.gather(*(self._score_again(number, one) for number, one in enumerate(anchors))))

    async def _score_again(self, number: int, anchor: Anchor) -> Anchor | None:
        first = anchor.has_reference and anchor.version == self._anchors[0].version
        run = f"{VALIDATION}{self._agent_id}-{'anchors' if first else 'rescored'}-{self._runs}"
        task = Task.decode(anchor.task)
        asked = task.model_copy(
            update={"task_id": f"{ANCHOR_TASKS}{run}/{number}/{id(self):x}", "agent_id": self._agent_id, "samples": 1}
        )

        async def ask(task: Task, arm: Callable[[int], Arm]) -> None:
            await self.rescore(task, anchor.answer, arm)

        (line,) = await self.own_tasks.answer(
            ask, asked, lambda sequence: self._arms.arm(self._arms.adapters.primary, sequence, experiment_id=run)
        )
        scorer = scorer_of(line)
        return None if scorer is None or line.score is None else anchor.with_score(line.score, scorer)

    def _save(self) -> None:
        """Kept in memory where the disk fails, and saved with the next answer."""
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            replace_file(self._path, b"".join(_encoder.encode(anchor) + b"\n" for anchor in self._anchors))
        except (OSError, JournalError) as error:
            self._unsaved = True
            log.warning("anchors-unsaved", f"kept in memory until {self._path} can be written: {error}")
        else:
            self._unsaved = False


def describe_drift(drift: Drift, rescored: Sequence[Rescored]) -> str:
    """Say what has moved, and by how much, in a sentence for an operator."""
    of_version = [one for one in rescored if drift.version in ("", one.version)]
    whose = f"answers of {drift.version}" if drift.version else "answers"
    if drift.kind in ("up", "down"):
        moved = fmean(one.change for one in of_version)
        return f"the scorer drifted: the same {len(of_version)} {whose} score {moved:+.3f} on average (anchors)"
    if drift.kind == "polarised":
        return f"the scorer polarised: good answers score higher and bad ones lower than before, by {drift.size:.3f}"
    return f"the scorer tells less: good answers score lower and bad ones higher than before, by {drift.size:.3f}"
