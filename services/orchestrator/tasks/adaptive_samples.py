"""How many answers are sampled for tasks that do not say: fewer, once fewer are proved as good as v1.0.0's were served.

Proved is: the best of k answers of the present primary is not worse, by more than a margin, than the best of v1.0.0's
whole group. Both means have bounds that hold at all times (ratchet/experiments/mean_bounds.py); k is asked from the
whole group down and ends where it is not proved, so that the number of tests costs nothing. It is forgotten with every
new primary, and once the k in use no longer holds: then the whole group is sampled until it is proved anew. A scorer
that drifts proves nothing; once its scores are the new measure, v1.0.0's are to be taken again too.

The two are not measured on the same tasks, so a traffic that has become easier since v1.0.0 answered flatters the
primary. Knows no clock and no queue.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from ratchet.experiments.mean_bounds import MeanBounds
from ratchet.experiments.served import best_of
from ratchet.logs.best_answer import is_best
from ratchet.logs.names import is_own
from ratchet.service.telemetry import Log
from schemas.api.status import SamplesFigures
from schemas.messages.work import BASE_VERSION, Work
from schemas.records.interaction import Interaction
from services.orchestrator import metrics
from services.orchestrator.promotion.arms import Arms

log = Log("samples")

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
    """Of one agent, as kept in the index."""

    usual: int = 0
    """The whole group that `base` is the best of."""
    anchored: int = 0
    """The decision by which the scorer's scores became the measure of all below; 0: from the start."""
    version: str = ""
    """The primary that `present` is of, and its program where one answers by default."""
    samples: int = 0
    """Proved to be enough; 0: none but the whole group."""
    base: MeanBounds = field(default_factory=MeanBounds)
    present: dict[int, MeanBounds] = field(default_factory=dict)
    """Samples → the best of so many."""
    saved_samples: int = 0
    saved_tokens: float = 0.0


class AdaptiveSamples:
    """One agent's. Give it every task closed."""

    def __init__(self, arms: Arms, policy: SamplesPolicy) -> None:
        self._arms = arms
        self._policy = policy
        self._state = SamplesState(policy.usual)

    def count(self) -> int:
        """Samples of the next task that does not say. The whole group while an experiment runs that needs it."""
        adapters, proved = self._arms.adapters, self._state.samples
        if not proved:
            return self._policy.usual
        needs_all = adapters.experiment is not None or any(
            experiment.plan.metric == "served" for _, experiment in self._arms.trials
        )
        is_of_now = self._state.version == self._primary and self._state.anchored == adapters.anchored
        if needs_all or not is_of_now or adapters.distrusted is not None:
            return self._policy.usual
        return min(self._policy.usual, max(proved, self._policy.floor))

    def closed(self, work: Work, lines: Sequence[Interaction]) -> None:
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
        """What `note` gave before a restart. Without it the whole group is sampled until fewer are proved anew."""
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
        """An answer without a score counts 0 for the primary; for v1.0.0 a group without any is left out."""
        state, usual = self._state, self._policy.usual
        scores = [line.score or 0.0 for line in lines]
        version, primary = lines[0].adapter_version, self._primary
        if state.anchored != (anchored := self._arms.adapters.anchored):
            state.anchored, state.base = anchored, MeanBounds()
            self._forget(primary, "the scorer's scores are a new measure")
        if state.version != primary:
            self._forget(primary, f"{primary} is the primary now")
        if version == BASE_VERSION and len(lines) >= usual and any(line.score is not None for line in lines):
            state.base.observe(best_of(scores, usual))
        if _answerer(version, lines[0].arm.program) == primary:
            for count in range(self._policy.floor, min(len(lines), usual - 1) + 1):
                state.present.setdefault(count, MeanBounds()).observe(best_of(scores, count))

    def _decide(self) -> None:
        state = self._state
        if state.samples and not self._holds(state.samples):
            self._forget(state.version, f"the best of {state.samples} answers is no longer proved as good")
            return
        fewest = self._fewest()
        if fewest and fewest != state.samples:
            wanted = state.base.upper - self._policy.margin
            reason = (
                f"the best of {fewest} answers of {state.version} is worth at least {state.present[fewest].lower:.3f}, "
                f"as good as v1.0.0's best of {self._policy.usual} (at least {wanted:.3f} was to be shown)"
            )
            log.info("samples-lowered", reason, agent_id=self._arms.agent_id, samples=fewest, usual=self._policy.usual)
            state.samples = fewest

    def _fewest(self) -> int:
        """From where it stands on down: 0 where not even one less than the whole group is proved."""
        fewest = self._state.samples
        for count in range((fewest or self._policy.usual) - 1, self._policy.floor - 1, -1):
            if not self._holds(count):
                break
            fewest = count
        return fewest

    def _holds(self, count: int) -> bool:
        bounds = self._state.present.get(count)
        return bounds is not None and bounds.lower >= self._state.base.upper - self._policy.margin

    def _forget(self, version: str, reason: str) -> None:
        if self._state.samples:
            usual = self._policy.usual
            log.info("samples-raised", reason, agent_id=self._arms.agent_id, samples=usual, usual=usual)
        self._state.version, self._state.samples, self._state.present = version, 0, {}


def _answerer(version: str, program: str | None) -> str:
    return version if program is None else f"{version} by {program}"
