"""Users who come again: two experiments in a row with the same ones, and sessions whose clients react. Simulated.

A session's tasks after its first Result can depend on which version answered. So only tasks that were sent before may
count: the first one, or all that were admitted before the first Result was sent. The second rule counts more tasks of a
slower version, which is harmless only where the tasks of a session are all alike; the product counts the first task.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from bench.decision.rivals import Rival
from bench.decision.simulate import CHUNK, Outcome, plan_for, simulate, summary, units_at
from bench.decision.streams import Floats, Scenario, Streams, scores, streams
from bench.decision.twin import Twin

Rule = Literal["first", "before", "eight"]
RULES: tuple[Rule, ...] = ("first", "before", "eight")
"""Which tasks of a session count: the first; all before its first Result; the first eight, as in older plans."""
MOST_TASKS = 8
GAP_S = 0.5
"""Mean seconds between two tasks of a session; the client does not wait for Results. A Result takes one second."""
EASY, HARD = 0.95, 0.05
SPREAD = 0.1
"""Standard deviation of the levels of users."""
USERS = 40
CARRIED = 0.3
"""The amount by which a user's tasks are easier in the second experiment who met only the candidate in the first one,
rather than half of the time.
"""


@dataclass(frozen=True)
class Sessions(Scenario):
    """Units are sessions of 1 to 8 tasks."""

    reacts: float = 0.0
    """Share of the sessions whose later tasks are easy where the candidate gave the first Result, else hard."""
    easier: float = 0.0
    """The amount by which each task of a session is easier than the one before it."""
    slower: float = 1.0
    """The candidate's latency is so many times the primary's."""
    counted: Rule = "first"


WORLDS = (
    Sessions("A/A, 10 % of the sessions react", reacts=0.1),
    Sessions("A/A, × 1.5 as slow, tasks get easier", slower=1.5, easier=0.05),
)
BETTER = Sessions("+0.05 in sessions", effect=0.05, units=1500)
TWICE = Scenario("A/A, the same users again", units=1500)


def session_streams(scenario: Scenario, runs: int, rng: np.random.Generator) -> Streams:
    """Make streams with the mean score of the tasks that count."""
    assert isinstance(scenario, Sessions), "a scenario with sessions"
    stream = streams(scenario, runs, rng)
    shape = (*stream.draws.shape, MOST_TASKS)
    place = np.arange(MOST_TASKS)
    sent = np.cumsum(rng.exponential(GAP_S, shape), axis=-1) - GAP_S
    sent[..., 0] = 0.0
    exists = place < rng.integers(1, MOST_TASKS + 1, stream.draws.shape)[..., None]
    reacts = rng.random(stream.draws.shape) < scenario.reacts
    level = np.array(scenario.levels)[stream.stratum] + rng.normal(0, SPREAD, stream.draws.shape)
    level = level[..., None] + scenario.easier * place
    latency = (stream.latency[0], scenario.slower * stream.latency[1])
    counted, second = [], []
    for arm, (effect, forced) in enumerate(((0.0, HARD), (scenario.effect, EASY))):
        before = (sent < latency[arm][..., None]) | (place == 0)
        mean = np.where(reacts[..., None] & ~before, forced, level + effect)
        of_tasks, _ = scores(mean, scenario.noise, np.ones(shape), rng)
        counts = exists & {"first": place == 0, "before": before, "eight": np.ones_like(before)}[scenario.counted]
        counted.append((of_tasks * counts).sum(axis=-1) / counts.sum(axis=-1))
        second.append(of_tasks[..., 1])
    return replace(stream, score=(counted[0], counted[1]), latency=latency, later=(second[0], second[1]))


def twice(runs: int, seed: int) -> tuple[Outcome, Outcome]:
    """Return what came of the first and of the second experiment with the same users."""
    rng = np.random.default_rng(seed)
    first, second = list[Twin | Rival](), list[Twin | Rival]()
    for start in range(0, runs, CHUNK):
        count = min(CHUNK, runs - start)
        twins = tuple(Twin([plan_for(TWICE)] * count, len(TWICE.levels)) for _ in range(2))
        first_and_second(TWICE, count, rng, (twins[0], twins[1]))
        first.append(twins[0])
        second.append(twins[1])
    return summary(TWICE, first), summary(TWICE, second)


def report(runs: int, seed: int) -> dict[str, Outcome]:
    """Print which tasks of a session may count; return the rows of the rule that the product has."""
    print("\nWhich tasks of a session count: promoted / rolled back; units until promoted (median, 90 %)")
    found: dict[str, Outcome] = {}
    for world in (*WORLDS, BETTER):
        for rule in RULES:
            one = simulate(replace(world, counted=rule), runs, seed, make=session_streams, rivals=False)["ratchet"]
            units = one.units_to_promote if world.effect else None
            print(f"{world.name:42}{rule:8}{one.promoted:7.1%} / {one.rolled_back:6.1%}; {units or '–'}", flush=True)
            if rule == "first" and world in WORLDS:
                found[world.name] = one
    found[TWICE.name] = twice(runs, seed)[1]
    return found


def first_and_second(scenario: Scenario, runs: int, rng: np.random.Generator, twins: tuple[Twin, Twin]) -> Streams:
    """Play two experiments in a row with the same users; return the stream of the second one.

    Who met the candidate of the first one more often comes more often to the second one, with easier tasks.
    """
    shape, level = (runs, scenario.units), rng.normal(0, SPREAD, (runs, USERS))
    users, of_run = rng.integers(0, USERS, shape), np.arange(runs)[:, None]
    first = streams(scenario, runs, rng, level[of_run, users])
    met, came = np.zeros((runs, USERS)), np.zeros((runs, USERS))
    for index in range(scenario.units):
        candidate = first.draws[:, index] < twins[0].share
        twins[0].observe(units_at(first, index, candidate, twins[0].share))
        running = twins[0].verdict == 0
        came[np.arange(runs), users[:, index]] += 1
        met[np.arange(runs), users[:, index]] += candidate & running
    more = met / np.maximum(came, 1) - 0.5
    again = _drawn(np.exp(2 * more), scenario.units, rng)
    second = streams(scenario, runs, rng, (level + CARRIED * 2 * more)[of_run, again])
    for index in range(scenario.units):
        candidate = second.draws[:, index] < twins[1].share
        twins[1].observe(units_at(second, index, candidate, twins[1].share))
    return second


def _drawn(weights: Floats, count: int, rng: np.random.Generator) -> np.ndarray:
    """Users of each run, drawn by their weights."""
    upto = np.cumsum(weights / weights.sum(axis=1, keepdims=True), axis=1)
    return np.array([np.searchsorted(row[:-1], rng.random(count)) for row in upto])
