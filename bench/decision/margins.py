"""`python -m bench.decision --only margins`: what the margin of what users are served costs.

The test of second verdicts alone (`ratchet.experiments.metrics.AuditTest`), on half and half, for each margin that a
served answer may lose, each share of the units that get a second verdict, and each true effect: how often no loss
beyond the margin is proved within 5,000 units, and after how many. At the margin itself that is wrong, in 5 % at most.
The scorer's second verdicts differ by 0.15 within a task type. The auditor says right or wrong. Of the answers 60 %
are right. It is mistaken about one in ten, so it sees four fifths of an effect. One task type, no ramp, no replay.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np

from bench.decision.simulate import quantiles
from bench.decision.streams import Floats
from ratchet.experiments.e_process import FRACTIONS, WEIGHTS
from ratchet.experiments.effect import CAUTION
from ratchet.experiments.lifetime import alpha_of
from ratchet.experiments.metrics import AuditTest
from ratchet.experiments.unit import Audit
from schemas.records.evidence import ServedRule
from services.orchestrator.settings import OrchestratorSettings

UNITS, CHUNK = 5000, 250
LEVEL, NOISE, MISTAKEN = 0.6, 0.15, 0.1
ALPHA = OrchestratorSettings().experiment_alpha
MARGINS = (0.01, 0.02, 0.03)
EFFECTS = (-0.02, -0.01, 0.0, 0.02, 0.05, 0.1)
CANDIDATES = (1, 5)


@dataclass(frozen=True)
class Judge:
    name: str
    says_right_or_wrong: bool
    share: float
    """Of the units, that get a second verdict."""

    @property
    def sees(self) -> float:
        """Part of an effect that is left in its verdicts."""
        return 1 - 2 * MISTAKEN if self.says_right_or_wrong else 1.0


JUDGES = (
    Judge("the scorer, all units", says_right_or_wrong=False, share=1.0),
    Judge("an auditor, half of the units", says_right_or_wrong=True, share=0.5),
    Judge("an auditor, all units", says_right_or_wrong=True, share=1.0),
)


@dataclass(frozen=True)
class Verdicts:
    """[runs, units]: the arm, whether there is a second verdict, and that."""

    candidate: Floats
    judged: Floats
    score: Floats


@dataclass(frozen=True)
class Proved:
    """Share of the runs, and units until then: median and 90 % of all runs, those without a proof at 5,000."""

    share: float
    units: tuple[float, float]


def verdicts(judge: Judge, effect: float, runs: int, rng: np.random.Generator) -> Verdicts:
    shape = (runs, UNITS)
    candidate = rng.random(shape) < 0.5
    worth = LEVEL + effect * candidate
    if judge.says_right_or_wrong:
        score = (rng.random(shape) < MISTAKEN + judge.sees * worth).astype(float)
    else:
        score = np.clip(worth + NOISE * rng.standard_normal(shape), 0, 1)
    return Verdicts(candidate.astype(float), (rng.random(shape) < judge.share).astype(float), score)


def e_values(of: Verdicts, margin: float) -> Floats:
    """The e-value of "no loss beyond the margin" after each unit, as AuditTest has it."""
    count = 1 + np.cumsum(of.judged, axis=1) - of.judged
    overall = (0.5 + np.cumsum(of.judged * of.score, axis=1) - of.judged * of.score) / count
    mean = overall + (overall - 0.5) / count  # the one type's, which begins at the mean of all in the prior's place
    low, high = np.minimum(mean, overall), np.maximum(mean, overall)
    payoff = 2 * np.where(of.candidate > 0, of.score - mean, mean - of.score) + margin
    bound = (2 * np.maximum(high, 1 - low) - margin) * (1 + CAUTION / count)
    e = np.zeros_like(mean)
    for fraction, weight in zip(FRACTIONS, WEIGHTS, strict=True):
        e += weight * np.exp(np.minimum(np.cumsum(np.log1p(fraction * of.judged * payoff / bound), axis=1), 600.0))
    return e


def proved(judge: Judge, margin: float, effect: float, nth: int, runs: int, seed: int) -> Proved:
    rng, at = np.random.default_rng(seed), 1 / alpha_of(ALPHA, nth)
    parts = []
    for start in range(0, runs, CHUNK):
        reached = e_values(verdicts(judge, effect, min(CHUNK, runs - start), rng), margin) >= at
        parts.append(np.where(reached.any(axis=1), reached.argmax(axis=1) + 1.0, np.inf))
    units = np.concatenate(parts)
    return Proved(float(np.isfinite(units).mean()), quantiles(np.minimum(units, UNITS)))


def assert_equals_product(units: int = 400) -> int:
    """Compare one run of each judge unit by unit. Returns how many units were compared."""
    for judge in JUDGES:
        of = verdicts(judge, 0.02, 1, np.random.default_rng(5))
        ours, test = e_values(of, 0.02)[0], AuditTest(ServedRule(share=1.0, margin=0.02), pooled=True)
        for unit in range(units):
            if of.judged[0, unit]:
                audit = Audit(known=float(of.score[0, unit]), scored=1.0)
                test.observe(audit, is_candidate=bool(of.candidate[0, unit]), share=0.5, stratum="one")
            assert abs(test.gain - ours[unit]) <= 1e-9 * test.gain, f"{test.gain} and {ours[unit]} at unit {unit}"
    return units * len(JUDGES)


def report(runs: int, seed: int) -> tuple[dict[str, object], dict[str, bool]]:
    """Print the rows; return them, and the bar with whether it is met."""
    print(f"\nsecond verdicts equal the product's on {assert_equals_product()} units")
    print("No loss beyond the margin is proved: share of the runs; units until then (median), by the true effect")
    print(f"{'':58}{'the margin':>12}" + "".join(f"{effect:+14.2f}" for effect in EFFECTS))
    rows, worst = dict[str, object](), 0.0
    for judge in JUDGES:
        for margin in MARGINS:
            for nth in CANDIDATES:
                found = {effect: proved(judge, margin, effect, nth, runs, seed) for effect in EFFECTS}
                edge = proved(judge, margin, -margin / judge.sees, nth, runs, seed)
                worst = max(worst, edge.share)
                name = f"{judge.name}, margin {margin:g}, candidate {nth}"
                rows[name] = {"at the margin": asdict(edge)} | {f"{one:+g}": asdict(of) for one, of in found.items()}
                cells = "".join(f"{f'{one.share:.0%}; {one.units[0]:,.0f}':>14}" for one in found.values())
                print(f"{name:58}{edge.share:12.1%}{cells}", flush=True)
    return rows, {f"a loss of the margin taken for none {worst:.1%}, at most 5 %": worst <= 0.05 + 2 * _error(runs)}


def _error(runs: int) -> float:
    """The standard error of a share of 5 % of the runs."""
    return float(np.sqrt(0.05 * 0.95 / runs))
