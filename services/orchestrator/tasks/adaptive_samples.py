"""The size of the groups of tasks that do not say: smaller, once fewer are proved as good as the whole group.

Proved is: the best of k answers of the primary is worth at most a margin less than the best of its whole group. Both
are read off the same whole groups, so neither the tasks nor the time differ. The proof is a bet that may be looked at
after every task (ratchet/experiments/e_process.py); k is asked from the whole group down and ends where it is not
proved, so that the number of tests costs nothing. It is forgotten with every new primary, and under a new measure.

A tenth of the tasks goes on getting the whole group, drawn by chance. If these prove that k has come to lose more than
the margin (a detector of changes, ratchet/experiments/drift.py), all tasks get the whole group until it is proved anew.
While the scorer drifts nothing is proved. Knows no clock and no queue.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from ratchet.experiments.drift import Detector
from ratchet.experiments.e_process import BettingProcess
from ratchet.experiments.served import best_of
from ratchet.logs.best_answer import is_best
from ratchet.logs.names import is_own
from ratchet.service.telemetry import Log
from schemas.api.status import SamplesFigures
from schemas.messages.work import Work
from schemas.records.interaction import Interaction
from services.orchestrator import metrics
from services.orchestrator.promotion.arms import Arms

log = Log("samples")

ENOUGH = math.log(1 / 0.025)
"""A k that loses more than the margin is ever taken for enough with at most this probability."""
CHANGED = math.log(10_000.0)
"""A k that stays within the margin is given up once in as many whole groups, on average, or less often."""
WHOLE_SHARE = 0.1
"""Share of the tasks while fewer are sampled; simulated in bench/decision/samples.py."""
LARGEST_STAKE = 0.1
"""The loss beyond the margin is bet on as a multiple of this: larger bets find a change later."""

LEAST_TO_LEARN = 4
"""Samples of a group where a training is asked for: with fewer, most groups are all alike, and teach nothing."""


@dataclass(frozen=True, slots=True)
class SamplesPolicy:
    """`usual`: the whole group. `least`: the fewest the user allows, 0 for never fewer. `trains`: groups must teach."""

    usual: int
    least: int = 0
    margin: float = 0.02
    trains: bool = False

    @property
    def floor(self) -> int:
        """No group is smaller; the whole group where nothing is to be adapted."""
        least = max(self.least, LEAST_TO_LEARN) if self.trains else self.least
        return min(self.usual, least) if self.least else self.usual

    @property
    def adapts(self) -> bool:
        return self.floor < self.usual


@dataclass(slots=True)
class SamplesState:
    """State of one agent, as kept in the index."""

    usual: int = 0
    """The whole group."""
    anchored: int = 0
    """The decision by which the scorer's scores became the measure of all below; 0: from the start."""
    version: str = ""
    """The primary that is measured, and its program where one answers by default."""
    samples: int = 0
    """Proved to be enough; 0: none but the whole group."""
    enough: dict[int, BettingProcess] = field(default_factory=dict)
    """Samples → the bet that so many lose at most the margin."""
    change: Detector = field(default_factory=Detector)
    """Evidence that `samples` answers lose more by now."""
    saved_samples: int = 0
    saved_tokens: float = 0.0


class AdaptiveSamples:
    """One agent's. Give it every task closed."""

    def __init__(self, arms: Arms, policy: SamplesPolicy, chance: random.Random | None = None) -> None:
        self._arms = arms
        self._policy = policy
        self._chance = chance or random.Random()
        self._state = SamplesState(policy.usual)

    def draw(self) -> int:
        """Samples of the next task that does not say."""
        count = self.count()
        return self._policy.usual if self._chance.random() < WHOLE_SHARE else count

    def count(self) -> int:
        """Samples of most tasks that do not say. The whole group while an experiment runs that needs it."""
        adapters, proved = self._arms.adapters, self._state.samples
        if not proved:
            return self._policy.usual
        needs_all = adapters.experiment is not None or any(
            experiment.plan.metric == "served" for _, experiment in self._arms.judged_here
        )
        is_of_now = self._state.version == self._primary and self._state.anchored == adapters.anchored
        if needs_all or not is_of_now or adapters.distrusted is not None:
            return self._policy.usual
        return min(self._policy.usual, max(proved, self._policy.floor))

    def observe(self, work: Work, lines: Sequence[Interaction]) -> None:
        """A task has these lines in the log. One that failed, or asked for its samples itself, tells nothing here."""
        if not self._policy.adapts or is_own(work.arm.experiment_id) or lines[0].sample is None:
            return
        self._count_saved(work, lines)
        if work.samples is None and is_best(work.select) and self._arms.adapters.distrusted is None:
            self._observe(lines)
            self._decide()

    def note(self) -> bytes:
        return msgspec.json.encode(self._state)

    def take_up(self, note: bytes | None) -> None:
        """Take up the `note` of before a restart. Without it whole groups are sampled until fewer are proved anew."""
        state = msgspec.json.decode(note, type=SamplesState) if note else SamplesState()
        if state.usual == self._policy.usual:
            self._state = state

    def figures(self) -> SamplesFigures:
        state = self._state
        return SamplesFigures(
            now=self.count(),
            usual=self._policy.usual,
            least=self._policy.floor,
            saved_samples=state.saved_samples,
            saved_tokens=round(state.saved_tokens),
        )

    @property
    def _primary(self) -> str:
        adapters = self._arms.adapters
        return _answerer(adapters.primary, adapters.programs.primary)

    def _count_saved(self, work: Work, lines: Sequence[Interaction]) -> None:
        whole = work.sampling.lowered_from
        if whole is None:
            return
        tokens = sum(line.sampled_tokens or 0 for line in lines) / len(lines)
        saved = whole - work.sampling.n
        self._state.saved_samples += saved
        self._state.saved_tokens += saved * tokens
        metrics.samples_saved.labels(work.agent_id).inc(saved)
        metrics.tokens_saved.labels(work.agent_id).inc(saved * tokens)

    def _observe(self, lines: Sequence[Interaction]) -> None:
        """Whole groups of the primary only. An answer without a score counts 0."""
        state, usual, margin = self._state, self._policy.usual, self._policy.margin
        if state.anchored != (anchored := self._arms.adapters.anchored):
            state.anchored = anchored
            self._forget(self._primary, "the scorer's scores are a new measure")
        if state.version != self._primary:
            self._forget(self._primary, f"{self._primary} is the primary now")
        if _answerer(lines[0].adapter_version, lines[0].arm.program) != state.version or len(lines) < usual:
            return
        scores = [line.score or 0.0 for line in lines[:usual]]
        for count in range(self._policy.floor, usual):
            loss = max(scores) - best_of(scores, count)
            state.enough.setdefault(count, BettingProcess()).bet(margin - loss, 1.0 - margin)
            if count == state.samples:
                state.change.observe([(loss - margin) / max(margin, LARGEST_STAKE)])

    def _decide(self) -> None:
        state, usual = self._state, self._policy.usual
        if state.samples and state.change.log_e >= CHANGED:
            self._forget(state.version, f"the best of {state.samples} answers has come to lose more than the margin")
            return
        fewest = self._fewest()
        if fewest != state.samples:
            reason = (
                f"the best of {fewest} answers of {state.version} is proved to lose at most {self._policy.margin:g} "
                f"against the best of {usual}"
            )
            log.info("samples-lowered", reason, agent_id=self._arms.agent_id, samples=fewest, usual=usual)
            state.samples, state.change = fewest, Detector()

    def _fewest(self) -> int:
        """Return the smallest proved group, searched downwards; 0 if not even one less than the whole is proved."""
        fewest = self._state.samples
        for count in range((fewest or self._policy.usual) - 1, self._policy.floor - 1, -1):
            if count not in self._state.enough or self._state.enough[count].log_e < ENOUGH:
                break
            fewest = count
        return fewest

    def _forget(self, version: str, reason: str) -> None:
        if self._state.samples:
            usual = self._policy.usual
            log.info("samples-raised", reason, agent_id=self._arms.agent_id, samples=usual, usual=usual)
        self._state.version, self._state.samples, self._state.enough = version, 0, {}


def _answerer(version: str, program: str | None) -> str:
    return version if program is None else f"{version} by {program}"
