"""Simulated traffic: what each unit would give under either arm, for many runs at once. Arrays are [runs, units]."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ratchet.experiments.assignment import draw

Floats = NDArray[np.float64]

LEVELS = (0.35, 0.5, 0.65, 0.8)
"""Mean score of each of the four task types."""
WEEK = (True, True, True, True, True, False, False)
"""True for a working day."""

PUBLIC = "small-v1.0.1-1"
"""Id of an experiment, which everybody can read."""

NOISE = 0.12
"""Standard deviation of a unit's score in its stratum: the mean of a group of 8 whose samples have 0.34."""


@dataclass(frozen=True)
class Scenario:
    """Traffic and its truth. Effects are candidate minus primary."""

    name: str
    effect: float = 0.0
    levels: tuple[float, ...] = LEVELS
    """Mean score of each task type."""
    mix: tuple[float, ...] | None = None
    """Share of each task type; None: equal shares."""
    effects: tuple[float, ...] | None = None
    """Effect in each task type, in place of `effect`."""
    on_weekends: float | None = None
    """Effect on the sixth and seventh day, in place of `effect`."""
    begins: int = 0
    """Units after which the effect begins."""
    units_a_day: float = 1000.0
    days: float = 0.0
    """Minimum age of a promotion."""
    appears: float = 0.0
    """The last type comes only after this part of the run."""
    bursts: int = 1
    """Units come in bursts of so many that share a user's level (standard deviation 0.1) and type."""
    candidate_noise: float | None = None
    """Noise of the candidate's scores, in place of `noise`."""
    lost: float = 0.0
    """Share of the tasks that never come back, in both arms: their deadline ends them without a score."""
    tail: tuple[float, float] = (0.0, 1.0)
    """Share of the candidate's answers that are so many times as long."""
    chosen: float = 0.0
    """Share of the tasks whose ids a client chose by the draw without a secret: easy ones for the candidate."""
    secret: bool = True
    """True: the draw is keyed by a secret."""
    noise: float = NOISE
    success: float = 1.0
    success_effect: float = 0.0
    drift: float = 0.0
    """Every score rises by so much over the run, and the mix moves from the hardest to the easiest type."""
    audited: float = 0.0
    """Share of the units that an auditor sees; 0: there is none."""
    truth: float = 0.0
    """The effect on the auditor's score, which is as noisy as the judge's and independent of it."""
    longer: float = 1.0
    """The candidate's lengths and latencies are so many times the primary's."""
    refuses: float = 0.0
    """Share of the candidate's answers that are refusals."""
    unscored: float = 0.0
    """Share of the candidate's bad samples, those below the mean of their type, that get no score; groups of 8."""
    sessions: bool = False
    """Units are sessions of 1 to 8 tasks that share a user's level (standard deviation 0.1)."""
    ramp: tuple[float, ...] = (0.05, 0.25, 0.5)
    units: int = 2000
    goal: Literal["better", "cheaper"] = "better"
    is_program: bool = False
    """Two programs are compared: their limits are other ones."""


@dataclass(frozen=True)
class Streams:
    draws: Floats
    stratum: NDArray[np.int64]
    score: tuple[Floats, Floats]
    """Under the primary, under the candidate; so are the next three."""
    success: tuple[Floats, Floats]
    scored: tuple[Floats, Floats]
    """Share of the unit's samples with a score; `score` is the mean over these."""
    length: tuple[Floats, Floats]
    latency: tuple[Floats, Floats]
    refused: tuple[Floats, Floats]
    audit: tuple[Floats, Floats]
    is_audited: NDArray[np.bool_]
    tasks: Floats
    """Tasks of the unit."""
    task_squares: tuple[Floats, Floats]
    """Sum over the unit's tasks of the squared score, for tests that take tasks for independent."""


def streams(scenario: Scenario, runs: int, rng: np.random.Generator) -> Streams:
    shape = (runs, scenario.units)
    stratum = strata(scenario, shape, rng)
    base = np.array(scenario.levels)[stratum] + scenario.drift * (np.arange(scenario.units) / scenario.units - 0.5)
    tasks = rng.integers(1, 9, shape).astype(float) if scenario.sessions else np.ones(shape)
    base = base + (rng.normal(0, 0.1, shape) if scenario.sessions else 0.0)
    if scenario.bursts > 1:
        base = base + in_bursts(rng.normal(0, 0.1, shape), scenario.bursts)
    draws, base = draw_units(scenario, base, rng)
    effect = effects(scenario, stratum)
    noise = scenario.noise if scenario.candidate_noise is None else scenario.candidate_noise
    primary, primary_squares = scores(base, scenario.noise, tasks, rng)
    candidate, candidate_squares = scores(base + effect, noise, tasks, rng)
    scored = np.ones(shape)
    if scenario.unscored:
        candidate, scored = partly_scored(base + effect, scenario.unscored, rng)
        candidate_squares = candidate**2
    found = scenario.success * (1.0 - scenario.lost)
    return Streams(
        draws=draws,
        stratum=stratum,
        score=(primary, candidate),
        success=(
            (rng.random(shape) < found).astype(float),
            (rng.random(shape) < found + scenario.success_effect).astype(float),
        ),
        scored=(np.ones(shape), scored),
        length=(rng.gamma(4, 15, shape), lengths(scenario, shape, rng)),
        latency=(rng.gamma(2, 0.5, shape), scenario.longer * rng.gamma(2, 0.5, shape)),
        refused=(np.zeros(shape), refusals(scenario.refuses, shape, rng)),
        audit=audits(scenario, base, tasks, rng),
        is_audited=rng.random(shape) < scenario.audited if scenario.audited else np.zeros(shape, dtype=bool),
        tasks=tasks,
        task_squares=(primary_squares, candidate_squares),
    )


def effects(scenario: Scenario, stratum: NDArray[np.int64]) -> Floats:
    """The true effect of each unit."""
    effect = np.full(stratum.shape, scenario.effect)
    if scenario.effects is not None:
        effect = np.array(scenario.effects)[stratum]
    if scenario.on_weekends is not None:
        day = (np.arange(scenario.units) / scenario.units_a_day).astype(int) % len(WEEK)
        effect = np.where(np.array(WEEK)[day], effect, scenario.on_weekends)
    effect[:, : scenario.begins] = 0.0
    return effect


def in_bursts(values: NDArray[np.float64], size: int) -> Floats:
    """Each value in the place of so many."""
    return np.repeat(values, size, axis=1)[:, : values.shape[1]]


def lengths(scenario: Scenario, shape: tuple[int, int], rng: np.random.Generator) -> Floats:
    """Draw the lengths of the candidate's answers."""
    share, factor = scenario.tail
    usual = scenario.longer * rng.gamma(4, 15, shape)
    return usual * np.where(rng.random(shape) < share, factor, 1.0) if share else usual


def draw_units(scenario: Scenario, base: Floats, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """The draw of each unit and its level; of those whose id was chosen, easy where the candidate is wanted.

    The client tries ids until the draw that it can compute, the one without a secret, says what it wants.
    """
    draws = rng.random(base.shape)
    if not scenario.chosen:
        return draws, base
    chosen, easy = rng.random(base.shape) < scenario.chosen, rng.random(base.shape) < 0.5
    for run, unit in zip(*np.nonzero(chosen), strict=True):
        wanted, numbers = easy[run, unit], (f"{run}/{unit}/{number}" for number in count())
        found = next(one for one in numbers if (draw(PUBLIC, one) < 0.5) == wanted)
        draws[run, unit] = draw(PUBLIC, found, f"secret of run {run}" if scenario.secret else "")
    return draws, np.where(chosen, np.where(easy, 0.95, 0.05), base)


def audits(scenario: Scenario, base: Floats, tasks: Floats, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Draw the auditor's scores of either arm; zeros where there is no auditor."""
    if not scenario.audited:
        return np.zeros_like(base), np.zeros_like(base)
    return (
        scores(base, scenario.noise, tasks, rng)[0],
        scores(base + scenario.truth, scenario.noise, tasks, rng)[0],
    )


def refusals(share: float, shape: tuple[int, int], rng: np.random.Generator) -> Floats:
    """Share of the 8 answers of each group."""
    return rng.binomial(8, share, shape) / 8 if share else np.zeros(shape)


def strata(scenario: Scenario, shape: tuple[int, int], rng: np.random.Generator) -> NDArray[np.int64]:
    if not scenario.drift:
        types = len(scenario.levels)
        stratum = rng.choice(types, shape, p=scenario.mix)
        early = np.arange(shape[1]) < scenario.appears * shape[1]
        stratum = np.where(early & (stratum == types - 1), 0, stratum)
        return in_bursts(stratum, scenario.bursts).astype(np.int64)
    easy = np.linspace(0, 1, shape[1])
    return np.minimum((rng.random(shape) * 2 + easy * 2).astype(np.int64), len(scenario.levels) - 1)


def scores(mean: Floats, noise: float, tasks: Floats, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Beta-distributed scores around the mean: the unit's mean over its tasks, and their sum of squares."""
    level = np.clip(mean, 0.02, 0.98)
    spread = np.minimum(noise, 0.5 * np.sqrt(level * (1 - level)))
    strength = level * (1 - level) / spread**2 - 1
    total, squares = np.zeros_like(level), np.zeros_like(level)
    for task in range(int(tasks.max())):
        score = rng.beta(level * strength, (1 - level) * strength) * (task < tasks)
        total, squares = total + score, squares + score**2
    return total / tasks, squares


def partly_scored(mean: Floats, unscored: float, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Groups of 8 samples of which the bad ones may have no score: the mean of those that have one, and their share.

    A unit without any score has the mean 0 and the share 0.
    """
    level = np.clip(mean, 0.02, 0.98)
    strength = 1 / 0.25 - 1  # samples spread half as wide as they can: 0.24 at a level of 0.5
    total, count = np.zeros_like(level), np.zeros_like(level)
    for _ in range(8):
        sample = rng.beta(level * strength, (1 - level) * strength)
        has_score = (sample >= level) | (rng.random(level.shape) >= unscored)
        total, count = total + np.where(has_score, sample, 0.0), count + has_score
    return total / np.maximum(count, 1), count / 8
