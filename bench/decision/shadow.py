"""The shadow replay, simulated: wrong refusals, and live units after it.

For many runs at once in numpy, asserted equal to the product pair by pair.

A pair is one prompt: both answers have the noise of a live unit, of which the prompt's length and task type are shared.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from bench.decision.served import ServedTwin
from bench.decision.simulate import POLICY, plan_for, quantiles, units_at
from bench.decision.streams import LEVELS, NOISE, Floats, Scenario, streams
from bench.decision.twin import PROMOTE, Twin, Wealth
from ratchet.experiments.e_process import LARGEST
from ratchet.experiments.effect import LARGEST_SIZE
from ratchet.experiments.lifetime import after_replay
from ratchet.experiments.shadow import ENOUGH, HARM_WEIGHTS, LEAST_MEASURED, Pair, ShadowReplay, ShadowRule
from ratchet.experiments.unit import Outcome
from schemas.records.evidence import Change, ExperimentPlan, Limits, ReplayedEvidence
from schemas.records.registry import AgentAdapters
from services.orchestrator.promotion.experiment_transitions import shadow_rule
from services.orchestrator.settings import OrchestratorSettings

PROMPTS = OrchestratorSettings().replay_prompts
CHUNK = 500
USUAL_LATENCY_S = 1.0
FIRST_AT = 1 / POLICY.canary.alpha
SPREAD, OWN_SPREAD = 0.4, 0.3
"""Standard deviations of the logarithm of a length: between prompts, and of one answer's group to the same prompt."""
GAINS = (0.02, 0.05, 0.1, 0.3)
AGAIN_NOISE = 0.15
"""Standard deviation of second verdicts on served answers within a type."""
LIVE_RUNS = 500
"""The runs behind a figure of live units."""


@dataclass(frozen=True)
class World:
    """A candidate beside its primary, on logged prompts. `longer`, `primary_longer`: times v1.0.0's lengths."""

    name: str
    effect: float = 0.0
    destroyed: bool = False
    """One of the four task types scores 0."""
    noise: float = NOISE
    success: tuple[float, float] = (1.0, 1.0)
    """Mean share of the candidate's and the primary's answers that have a score."""
    refuses: float = 0.0
    longer: float = 1.0
    primary_longer: float = 1.0
    has_base: bool = False
    prompts: int = PROMPTS


@dataclass(frozen=True)
class Pairs:
    """Arrays are [runs, prompts]; of scores and so on the candidate's first, then the primary's, then v1.0.0's."""

    kind: NDArray[np.int64]
    score: Floats
    usable: Floats
    refused: Floats
    length: Floats


def pairs(world: World, runs: int, rng: np.random.Generator) -> Pairs:
    shape = (runs, world.prompts)
    kind = rng.integers(0, len(LEVELS), shape)
    level = np.array(LEVELS)[kind]
    ours = np.where(world.destroyed & (kind == 0), 0.0, level + world.effect)
    score = np.clip(np.stack([ours, level, level]) + rng.normal(0, world.noise, (3, *shape)), 0, 1)
    shares = [*world.success, world.success[1]]
    usable = np.stack([rng.binomial(8, share, shape) / 8 for share in shares])
    refused = np.stack([rng.binomial(8, share, shape) / 8 for share in (world.refuses, 0.0, 0.0)])
    usual = 60 * rng.lognormal(0, SPREAD, shape)
    times = np.array([world.longer, world.primary_longer, 1.0])[:, None, None]
    return Pairs(kind, score, usable, refused, times * usual * rng.lognormal(0, OWN_SPREAD, (3, *shape)))


class Means:
    """ratchet.experiments.shadow.SizeMeans of every run."""

    def __init__(self, runs: int, limit: float) -> None:
        self._limit = limit
        self._total, self._count = np.zeros(runs), 0
        self.kept, self.beyond = Wealth(1, runs), Wealth(1, runs)
        self._ours, self._theirs = np.zeros(runs), np.zeros(runs)

    def observe(self, ours: Floats, theirs: Floats) -> None:
        if self._count:
            clip = LARGEST_SIZE * self._total / self._count
            a, b = np.minimum(ours, clip), np.minimum(theirs, clip)
            self.kept.bet((self._limit * b - a)[None], clip[None])
            self.beyond.bet((a - self._limit * b)[None], self._limit * clip[None])
            self._ours += a
            self._theirs += b
        self._total += theirs
        self._count += 1

    @property
    def factor(self) -> Floats:
        return np.asarray(self._ours / self._theirs)


class Shares:
    """ratchet.experiments.shadow.Difference of every run."""

    def __init__(self, runs: int, margin: float, tolerance: float) -> None:
        self._margin, self._tolerance = margin, tolerance
        self.kept, self.harm = Wealth(1, runs), Wealth(1, runs)
        self._total, self._count = np.zeros(runs), 0

    def observe(self, difference: Floats, counts: Floats | None = None) -> None:
        ones = np.ones_like(difference) if counts is None else counts
        self.harm.bet((ones * (-difference - self._tolerance))[None], np.full((1, 1), 1 + self._tolerance))
        self.kept.bet((ones * (difference + self._margin))[None], np.full((1, 1), 1 - self._margin))
        self._total += ones * difference
        self._count += 1

    @property
    def mean(self) -> Floats:
        return np.asarray(self._total / self._count)


class Beside:
    """ratchet.experiments.shadow.Comparison of every run."""

    def __init__(self, runs: int, limits: Limits, success_tolerance: float, refused_tolerance: float) -> None:
        self.success = Shares(runs, limits.success, success_tolerance)
        self.refused = Shares(runs, limits.refused, refused_tolerance)
        self.length = Means(runs, limits.length)
        self.score = Shares(runs, 0.0, 0.0)

    def observe(self, of: Pairs, index: int, ours: int, theirs: int) -> None:
        self.success.observe(of.usable[ours, :, index] - of.usable[theirs, :, index])
        self.refused.observe(of.refused[theirs, :, index] - of.refused[ours, :, index])
        self.length.observe(of.length[ours, :, index], of.length[theirs, :, index])
        known = (of.usable[[ours, theirs], :, index] > 0).all(axis=0).astype(float)
        self.score.observe(of.score[ours, :, index] - of.score[theirs, :, index], known)

    @property
    def kept(self) -> Floats:
        return np.concatenate([self.success.kept.e, self.length.kept.e, self.refused.kept.e])

    @property
    def change(self) -> list[Change]:
        parts = (self.score.mean, self.success.mean, -self.refused.mean, self.length.factor)
        return [
            Change(score=score, success=success, refused=refused, length=length)
            for score, success, refused, length in zip(*(part.tolist() for part in parts), strict=True)
        ]


class ReplayTwin:
    """ratchet.experiments.shadow.ShadowReplay of every run, except that it goes on after it is over."""

    def __init__(self, rule: ShadowRule, runs: int, *, has_base: bool) -> None:
        self._rule, self._has_base = rule, has_base
        tolerances = (rule.success_tolerance, rule.refused_tolerance)
        self._score = Shares(runs, 0.0, rule.score_tolerance)
        self._bounds = Shares(runs, rule.success_margin, 0.0)
        self._primary = Beside(runs, rule.limits, *tolerances)
        self._base = Beside(runs, rule.limits, rule.limits.success, rule.limits.refused)
        self._since_base = Beside(runs, rule.limits, *tolerances)
        self._types = [Shares(runs, 0.0, rule.type_tolerance) for _ in LEVELS]
        self.prompts = 0
        self.refused_at, self.proved_at = np.full(runs, np.inf), np.full(runs, np.inf)
        self._at_end = np.ones((5, runs))
        """Kept, and the gain, as they stood when the asking ended."""

    def observe(self, of: Pairs, index: int) -> None:
        known = (of.usable[:2, :, index] > 0).all(axis=0).astype(float)
        difference = of.score[0, :, index] - of.score[1, :, index]
        for number, kind in enumerate(self._types):
            kind.observe(difference, known * (of.kind[:, index] == number))
        self._score.observe(difference, known)
        ours, theirs = (of.usable[side, :, index] * of.score[side, :, index] for side in (0, 1))
        self._bounds.observe(ours - theirs - (1 - of.usable[1, :, index]))
        self._primary.observe(of, index, 0, 1)
        if self._has_base:
            self._base.observe(of, index, 0, 2)
            self._since_base.observe(of, index, 1, 2)
        self.prompts += 1
        self._note(self.refused_at, self.harm >= 1 / self._rule.alpha)
        goes_on = np.isinf(np.minimum(self.refused_at, self.proved_at)) | (self.refused_at == self.prompts)
        self._at_end[:, goes_on] = np.concatenate([self.kept, self.gain[None]])[:, goes_on]
        least = self.kept.min(axis=0)
        self._note(self.proved_at, (self.gain >= 1 / self._rule.alpha) & (least >= ENOUGH * self._rule.promote_at))

    def _note(self, when: Floats, now: NDArray[np.bool_]) -> None:
        when[np.isinf(when) & now] = self.prompts

    @property
    def harm(self) -> Floats:
        beside, base = self._primary, self._base
        parts = {
            "score": self._score.harm.e[0],
            "success": beside.success.harm.e[0],
            "length": beside.length.beyond.e[0],
            "refusals": beside.refused.harm.e[0],
            "types": np.mean([kind.harm.e[0] for kind in self._types], axis=0),
        }
        if self._has_base:
            parts["v1.0.0"] = (base.success.harm.e[0] + base.refused.harm.e[0] + base.length.beyond.e[0]) / 3
        total = sum(HARM_WEIGHTS[name] for name in parts)
        return np.asarray(sum(HARM_WEIGHTS[name] * part for name, part in parts.items()) / total)

    @property
    def gain(self) -> Floats:
        return np.asarray(self._score.kept.e[0])

    @property
    def kept(self) -> Floats:
        """The e-values of success, length, refusals and bounds."""
        kept = np.minimum(self._primary.kept, self._base.kept) if self._has_base else self._primary.kept
        return np.concatenate([kept, self._bounds.kept.e])

    @property
    def replayed(self) -> list[ReplayedEvidence]:
        """The evidence of each run as its live test takes it over."""
        types = {str(kind): self.prompts // len(LEVELS) for kind in range(len(LEVELS))}
        return [
            ReplayedEvidence(
                prompts=self.prompts,
                score=gain,
                success=success,
                length=length,
                refused=refused,
                bounds=bounds,
                usual_latency_s=USUAL_LATENCY_S,
                types=types,
            )
            for success, length, refused, bounds, gain in np.minimum(self._at_end, LARGEST).T.tolist()
        ]

    @property
    def since_base(self) -> list[Change] | None:
        return self._since_base.change if self._has_base and self.prompts >= LEAST_MEASURED else None


def rule_of(nth: int = 1) -> ShadowRule:
    """Return the rule that a fleet with the default settings has for its n-th candidate."""
    first = shadow_rule(AgentAdapters(), POLICY)
    return replace(first, types=tuple(map(str, range(len(LEVELS)))), promote_at=first.promote_at * nth * (nth + 1) / 2)


@dataclass(frozen=True)
class Replayed:
    """The share of the runs that were refused, and the median of the prompts until then."""

    refused: float
    refused_after: float | None


def replays(world: World, runs: int, seed: int) -> Replayed:
    rng = np.random.default_rng(seed)
    twins = [_replay(world, min(CHUNK, runs - at), rng) for at in range(0, runs, CHUNK)]
    refused_at = np.concatenate([twin.refused_at for twin in twins])
    over_at = np.concatenate([twin.proved_at for twin in twins])
    refused = refused_at[refused_at < over_at]
    return Replayed(len(refused) / runs, float(np.median(refused)) if len(refused) else None)


def _replay(world: World, runs: int, rng: np.random.Generator, nth: int = 1) -> ReplayTwin:
    of, twin = pairs(world, runs, rng), ReplayTwin(rule_of(nth), runs, has_base=world.has_base)
    for index in range(world.prompts):
        twin.observe(of, index)
    return twin


def live_units(effect: float, nth: int, runs: int, seed: int, how: How) -> tuple[float, float] | None:
    """Units until the n-th candidate is promoted (median, 90 %); None where fewer than half of them are."""
    rng = np.random.default_rng(seed)
    scenario = Scenario(f"{effect:+.2f}", effect=effect, units=6000 if effect < 0.05 else 2000)
    found = []
    for at in range(0, runs, CHUNK):
        count = min(CHUNK, runs - at)
        twin = _replay(World("", effect=effect), count, rng, nth)
        passed = twin.refused_at > twin.proved_at
        plan = plan_for(scenario, nth=nth, judged_again=how.judged_again)
        plans = [after_replay(plan, one, FIRST_AT) for one in twin.replayed] if how.replay else [plan] * count
        live = _live(plans, scenario, rng)
        found.append(
            np.where((live.verdict == PROMOTE) & (passed | (twin.refused_at == np.inf)), live.units_at_verdict, np.inf)
        )
    units = np.concatenate(found)
    return None if np.median(units) == np.inf else quantiles(np.minimum(units, scenario.units))


def _live(plans: list[ExperimentPlan], scenario: Scenario, rng: np.random.Generator) -> Twin:
    """Run the live test. Second verdicts, if the plan has them, see the same effect, with AGAIN_NOISE within a type."""
    strata, stream = len(scenario.levels), streams(scenario, len(plans), rng)
    twin = ServedTwin(plans, strata)
    again = np.array(scenario.levels)[stream.stratum] + rng.normal(0, AGAIN_NOISE, stream.draws.shape)
    for index in range(scenario.units):
        candidate = stream.draws[:, index] < twin.share
        verdicts = np.clip(again[:, index] + scenario.effect * candidate, 0, 1)
        twin.observe_both(units_at(stream, index, candidate, twin.share), verdicts)
        if (twin.verdict > 0).all():
            break
    return twin


@dataclass(frozen=True)
class How:
    """A way to judge a candidate: with a shadow replay or without, with second verdicts or without."""

    replay: bool
    judged_again: bool

    def __str__(self) -> str:
        return f"{'replay' if self.replay else 'live alone'}{', second verdicts' if self.judged_again else ''}"


WAYS = (How(False, False), How(True, False), How(False, True), How(True, True))
"""The last is the default."""


def assert_twin_equals_product(runs: int = 3) -> int:
    """Returns how many pairs were compared. Raises AssertionError naming the first difference."""
    worlds = (
        World("equal", has_base=True, prompts=60),
        World(
            "", effect=0.05, success=(0.9, 0.95), refuses=0.1, longer=1.2, primary_longer=1.1, has_base=True, prompts=60
        ),
        World("", effect=-0.1, success=(0.05, 0.1), destroyed=True, prompts=60),
    )
    for world in worlds:
        of = pairs(world, runs, np.random.default_rng(5))
        twin = ReplayTwin(rule_of(), runs, has_base=world.has_base)
        products = [ShadowReplay(rule_of()) for _ in range(runs)]
        for index in range(world.prompts):
            twin.observe(of, index)
            for run, product in enumerate(products):
                product.observe(_pair(of, run, index, has_base=world.has_base))
                _same(product, twin, run, index)
    return runs * sum(world.prompts for world in worlds)


def _pair(of: Pairs, run: int, index: int, *, has_base: bool) -> Pair:
    def outcome(side: int) -> Outcome:
        usable = float(of.usable[side, run, index])
        return Outcome(
            succeeded=usable > 0,
            score=float(of.score[side, run, index]) if usable else None,
            scored=usable,
            length=float(of.length[side, run, index]),
            refused=float(of.refused[side, run, index]),
        )

    return Pair(str(of.kind[run, index]), outcome(0), outcome(1), outcome(2) if has_base else None)


def _same(product: ShadowReplay, twin: ReplayTwin, run: int, index: int) -> None:
    kept = [product.kept[name] for name in ("success", "length", "refused", "bounds")]
    ours = [product.harm, product.gain, *kept]
    theirs = [twin.harm[run], twin.gain[run], *twin.kept[:, run]]
    if product.since_base is not None and twin.since_base is not None:
        ours += [product.since_base.length, product.since_base.score, product.since_base.success]
        change = twin.since_base[run]
        theirs += [change.length, change.score, change.success]
    assert np.allclose(ours, theirs, rtol=1e-9, atol=1e-12), f"{ours} and {theirs}, pair {index}, run {run}"


EQUAL = (
    World("equal"),
    World("equal, noise 0.25", noise=0.25),
    World("equal, 5 % unscored in both", success=(0.95, 0.95)),
    World("equal, beside v1.0.0 too", has_base=True),
)
WORSE = (
    World("−0.05", effect=-0.05),
    World("−0.20", effect=-0.2),
    World("a type destroyed, +0.10 in the others", effect=0.1, destroyed=True),
    World("× 1.5 as long", longer=1.5),
    World("× 2 as long", longer=2.0),
    World("× 1.06 of a primary that is × 1.5 of v1.0.0", longer=1.59, primary_longer=1.5, has_base=True),
    World("a tenth unscored", success=(0.9, 1.0)),
)


def report(runs: int, seed: int) -> tuple[dict[str, object], dict[str, bool]]:
    """Print the rows; return them, and the bars with whether they are met."""
    print(f"\ntwin of the replay equals product on {assert_twin_equals_product()} pairs")
    equal = {one.name: replays(one, runs, seed) for one in EQUAL}
    worse = {one.name: replays(one, runs, seed) for one in WORSE}
    print(f"Shadow replay of {PROMPTS} prompts: refused; prompts until then (median)")
    for name, one in {**equal, **worse}.items():
        print(f"{name:46}{one.refused:8.1%}" + (f"{one.refused_after:6.0f}" if one.refused_after else ""))
    print("Live units until promoted (median, 90 %)" + "".join(f"{how!s:>30}" for how in WAYS))
    live = dict[str, tuple[float, float] | None]()
    for gain in GAINS:
        for nth in (1, 5, 20):
            cells = {how: live_units(gain, nth, min(runs, LIVE_RUNS), seed, how) for how in WAYS}
            live |= {f"{gain:+.2f}, candidate {nth}, {how}": cell for how, cell in cells.items()}
            shown = "".join(f"{'–' if one is None else f'{one[0]:.0f}, {one[1]:.0f}':>30}" for one in cells.values())
            print(f"{gain:+.2f}, candidate {nth:<27}{shown}", flush=True)
    refused = max(one.refused for one in equal.values())
    units = {gain: (live[f"{gain:+.2f}, candidate 1, {WAYS[-1]}"] or (np.inf,))[0] for gain in (0.05, 0.3)}
    return {
        "replays": equal | worse,
        "live units": live,
    }, {
        f"+0.30 promoted after {units[0.3]:.0f} live units, at most 80": units[0.3] <= 80,
        f"+0.05 promoted after {units[0.05]:.0f} live units, at most 250": units[0.05] <= 250,
        f"equal candidates refused by the replay {refused:.1%}, at most 5 %": refused <= 0.05,
    }
