"""A second verdict on served answers, simulated (`python -m bench.decision --only served`).

Each task has 8 answers in either arm. A noisy judge scores them, the best-scored one is served, and the judge is asked
once more about that one, as the product does in a canary of a fleet without an auditor. Printed are the true effects,
how often the candidate is promoted with the second verdict and without, with 95 % intervals (Wilson), and units until
then. The twin adds to `bench.decision.twin` what `ExperimentPlan.served` asks for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bench.decision.equality import TOLERANCE, VERDICTS
from bench.decision.simulate import POLICY, UNCHANGED, quantiles, wilson
from bench.decision.streams import Floats
from bench.decision.twin import PROMOTE, ROLL_BACK, Means, Twin, Units, Wealth
from ratchet.experiments.assignment import Assignment
from ratchet.experiments.effect import CAUTION
from ratchet.experiments.experiment import Experiment
from ratchet.experiments.lifetime import limit_plan
from ratchet.experiments.metrics import SERVED_WEIGHT
from ratchet.experiments.unit import Audit, Enrolment, Outcome
from schemas.records.evidence import ExperimentPlan, Verdict

ANSWERS = 8
CHUNK = 250
LEVELS = np.array([0.3, 0.4, 0.5, 0.6])
"""Mean worth of an answer, of each of the four task types."""
SPREAD, NOISE = 0.15, 0.1
"""Standard deviations of the worth of a task's answers, and of the judge's scores of one of them."""


@dataclass(frozen=True)
class World:
    """The differences between candidate and primary."""

    name: str
    single: float = 0.0
    spread: float = SPREAD
    noise: float = NOISE
    metric: str = "single"
    units: int = 3000


NULLS = (
    World("single +0.03, best of 8 −0.036", single=0.03, spread=0.107),
    World("single +0.05, served −0.02: the margin", single=0.05, spread=0.1046),
    World("on served: the judge is noisier, truly −0.026", noise=0.148, metric="served"),
    World("on served: equal", metric="served"),
)
POWER = (
    World("single +0.05, served −0.01", single=0.05, spread=0.1115, units=5000),
    World("single +0.05, served +0.01", single=0.05, spread=0.1243, units=5000),
    World("single +0.05, served +0.05", single=0.05, units=5000),
    World("single +0.10, served +0.10", single=0.1),
    World("on served: +0.05", single=0.05, metric="served", units=5000),
)


@dataclass(frozen=True)
class Tasks:
    """Values of one arm, [runs, units]: mean score, both scores of the served answer, and its true worth."""

    single: Floats
    served: Floats
    again: Floats
    worth: Floats


def tasks_of(level: Floats, spread: float, noise: float, rng: np.random.Generator) -> Tasks:
    worth = np.clip(level[..., None] + spread * rng.standard_normal((*level.shape, ANSWERS), dtype=np.float32), 0, 1)
    scores = np.clip(worth + noise * rng.standard_normal(worth.shape, dtype=np.float32), 0, 1)
    best = scores.argmax(axis=-1)[..., None]
    served = np.take_along_axis(worth, best, axis=-1)[..., 0]
    again = np.clip(served + noise * rng.standard_normal(served.shape), 0, 1)
    return Tasks(
        scores.mean(axis=-1, dtype=float),
        np.take_along_axis(scores, best, axis=-1)[..., 0].astype(float),
        again.astype(float),
        served,
    )


class ServedTwin(Twin):
    """The twin with the tests of `ratchet.experiments.metrics.AuditTest` on the second verdicts, which all come."""

    def __init__(self, plans: Sequence[ExperimentPlan], strata: int) -> None:
        super().__init__(plans, strata)
        runs = len(plans)
        self._again = Means(runs, strata, 0.5)
        self._again_gain, self._again_harm = Wealth(1, runs), Wealth(1, runs)

    @property
    def gain(self) -> Floats:
        return np.concatenate([super().gain, self._again_gain.e]) if self.plan.served else super().gain

    @property
    def harm(self) -> Floats:
        judged = super().harm
        return (1 - SERVED_WEIGHT) * judged + SERVED_WEIGHT * self._again_harm.e[0] if self.plan.served else judged

    def observe_both(self, units: Units, again: Floats) -> None:
        if (rule := self.plan.served) is not None:
            p, m, (low, high) = units.share, self._again.mean(units.stratum), self._again.extremes
            caution = 1 + CAUTION / self._again.count
            x = np.where(units.candidate, (again - m) / p, -(again - m) / (1 - p))
            self._again_gain.bet(x + rule.margin, (np.maximum(high / p, (1 - low) / (1 - p)) - rule.margin) * caution)
            self._again_harm.bet(
                -x - rule.tolerance, (np.maximum((1 - low) / p, high / (1 - p)) + rule.tolerance) * caution
            )
            self._again.add(units.stratum, again, np.ones_like(again))
        self.observe(units)


def plan_for(world: World, *, is_judged_again: bool = True) -> ExperimentPlan:
    """Return the plan of a default fleet's first candidate, without a least age."""
    changed: dict[str, object] = {
        "experiment_id": "served",
        "metric": world.metric,
        "max_units": world.units + 1,
        "min_age_s": 0.0,
    }
    changed |= {} if is_judged_again else {"served": None}
    return limit_plan(POLICY.canary.model_copy(update=changed), nth=1, since_base=UNCHANGED)


@dataclass(frozen=True)
class Stream:
    draws: Floats
    stratum: NDArray[np.int64]
    arms: tuple[Tasks, Tasks]
    """Tasks of the primary, then those of the candidate."""
    sizes: Floats

    def at(self, index: int, candidate: NDArray[np.bool_], share: Floats, plan: ExperimentPlan) -> tuple[Units, Floats]:
        """Return one unit of each run as the experiment sees it, and its second verdicts."""

        def of(name: str) -> Floats:
            primary, treated = (getattr(arm, name)[:, index] for arm in self.arms)
            return np.where(candidate, treated, primary)

        on_single = "single" if plan.metric == "single" else "again" if plan.served else "served"
        ones, size = np.ones_like(share), self.sizes[:, index]
        units = Units(
            candidate, share, self.stratum[:, index], of(on_single), ones, size, size / 50, 0 * ones, ones, ones == 0
        )
        return units, of("again")


def stream_of(world: World, runs: int, rng: np.random.Generator) -> Stream:
    shape = (runs, world.units)
    stratum = rng.integers(0, len(LEVELS), shape)
    arms = (
        tasks_of(LEVELS[stratum], SPREAD, NOISE, rng),
        tasks_of(LEVELS[stratum] + world.single, world.spread, world.noise, rng),
    )
    return Stream(rng.random(shape), stratum, arms, rng.gamma(4, 15, shape))


@dataclass(frozen=True)
class Found:
    single: float
    served: float
    """The true effects."""
    promoted: tuple[float, float, float]
    """The share, and its 95 % interval."""
    rolled_back: float
    units: tuple[float, float]
    """Units until promoted: median and 90 % over all runs, those never promoted at the end of the stream."""


def found_in(world: World, runs: int, seed: int, *, is_judged_again: bool) -> Found:
    rng, twins, truths = np.random.default_rng(seed), [], []
    plan = plan_for(world, is_judged_again=is_judged_again)
    for start in range(0, runs, CHUNK):
        stream = stream_of(world, min(CHUNK, runs - start), rng)
        primary, candidate = stream.arms
        truths.append((candidate.single.mean() - primary.single.mean(), candidate.worth.mean() - primary.worth.mean()))
        twin = ServedTwin([plan] * stream.draws.shape[0], len(LEVELS))
        for index in range(world.units):
            drawn = stream.draws[:, index] < twin.share
            twin.observe_both(*stream.at(index, drawn, twin.share, plan))
            if (twin.verdict != 0).all():
                break
        twins.append(twin)
    verdict = np.concatenate([twin.verdict for twin in twins])
    units = np.concatenate([twin.units_at_verdict for twin in twins])
    single, served = np.mean(truths, axis=0)
    promoted = verdict == PROMOTE
    return Found(
        float(single),
        float(served),
        (float(promoted.mean()), *wilson(float(promoted.mean()), runs)),
        float((verdict == ROLL_BACK).mean()),
        quantiles(np.where(promoted, units, world.units)),
    )


def assert_served_twin_equals_product(runs: int = 2, units: int = 400) -> int:
    """Returns how many units were compared. Raises AssertionError naming the first difference."""
    compared = 0
    for metric in ("single", "served"):
        world = World("equality", single=0.03, spread=0.107, noise=0.12, metric=metric, units=units)
        plan, stream = plan_for(world), stream_of(world, runs, np.random.default_rng(7))
        twin, products = ServedTwin([plan] * runs, len(LEVELS)), [Experiment(plan) for _ in range(runs)]
        for index in range(units):
            share, drawn = twin.share, stream.draws[:, index] < twin.share
            twin.observe_both(*stream.at(index, drawn, share, plan))
            for run, product in enumerate(products):
                if product.final is None:
                    feed(product, stream, index, run, is_candidate=bool(drawn[run]))
                    same(product, twin, index, run)
                    compared += 1
    return compared


def feed(product: Experiment, stream: Stream, index: int, run: int, *, is_candidate: bool) -> None:
    share, tasks, size = product.share, stream.arms[is_candidate], float(stream.sizes[run, index])
    arm = Assignment(is_candidate=is_candidate, propensity=share if is_candidate else 1 - share)
    product.enrol(Enrolment(index, str(index), False, arm, str(stream.stratum[run, index]), float(index)))
    outcome = Outcome(
        succeeded=True,
        score=float(tasks.single[run, index]),
        served=float(tasks.served[run, index]),
        is_choice=True,
        length=size,
        latency_s=size / 50,
        refused=0.0,
    )
    product.observe(index, outcome)
    product.audit(index, Audit(0.0, 0.0, served=float(tasks.again[run, index])))


def same(product: Experiment, twin: ServedTwin, index: int, run: int) -> None:
    evidence = product.evidence
    pairs = {
        "gain in score": (evidence.gain_score, twin.gain[0, run]),
        "no loss in what is served": (evidence.gain_served or 0.0, twin.gain[-1, run]),
        "harm": (evidence.harm, twin.harm[run]),
    }
    for name, (ours, theirs) in pairs.items():
        assert abs(ours - theirs) <= TOLERANCE * max(ours, 1e-300), f"{name}: {ours} and {theirs}, unit {index}"
    final = product.final.verdict if product.final else Verdict.CONTINUE
    assert final is VERDICTS[int(twin.verdict[run])], f"{final} and {twin.verdict[run]} at unit {index} of run {run}"


def report(runs: int, seed: int) -> tuple[dict[str, Found], dict[str, bool]]:
    """Print the rows; return what was found in each world, and the bar with whether it is met."""
    print(f"\ntwin of the second verdicts equals product on {assert_served_twin_equals_product()} units")
    print(f"{'':46}{'single':>8}{'served':>8}  without  promoted (95 %)        rolled back  units (median, 90 %)")
    least, figures = 0.0, {}
    for world in (*NULLS, *POWER):
        without, one = (found_in(world, runs, seed, is_judged_again=again) for again in (False, True))
        figures[world.name] = one
        share, low, high = one.promoted
        least = max(least, low) if world in NULLS else least
        units = f"{one.units[0]:.0f}, {one.units[1]:.0f}" if share > 0.5 else "–"
        print(
            f"{world.name:46}{one.single:+8.3f}{one.served:+8.3f}{without.promoted[0]:9.1%}{share:9.1%}"
            f" ({low:.1%} to {high:.1%}){one.rolled_back:12.1%}   {units}",
            flush=True,
        )
    return figures, {f"promotions of what serves users worse at worst from {least:.2%}, at most 5 %": least <= 0.05}
