"""The live test of one role of the team: vectors that differ in that role only, judged by the team's outcome.

The rule is the product's, in its vectorised twin (bench.decision, which proves that the two are equal).
"""

from __future__ import annotations

import numpy as np

from bench.decision.simulate import plan_for, simulate, units_at
from bench.decision.streams import Scenario, Streams
from bench.decision.twin import CONTINUE, PROMOTE, Twin
from bench.team.world import Vector, World

SHARE = 0.5
"""The candidate's share of the units."""
WRONG_BAR = 0.05


def is_promoted(world: World, present: Vector, candidate: Vector, number: int) -> tuple[bool, int]:
    """Return the verdict and its units. Both answer the same stream of tasks; of each unit the arm that was drawn
    counts, and only that one answers where units are asked in several parts."""
    units, part = world.units, world.asked_at_once
    tasks = world.tasks(units, 500 + number)
    one, nothing = np.ones((1, units)), np.zeros((1, units))
    score = nothing.copy(), nothing.copy()
    stream = Streams(
        draws=np.random.default_rng([world.seed, number]).random((1, units)),
        stratum=np.zeros((1, units), dtype=np.int64),
        score=score,
        success=(one, one),
        scored=(one, one),
        length=(one, one),
        latency=(one, one),
        refused=(nothing, nothing),
        audit=(nothing, nothing),
        is_audited=np.zeros((1, units), dtype=bool),
        tasks=one,
        task_squares=(one, one),
    )
    scenario = Scenario("a role", levels=(0.5,), ramp=(SHARE,), units=units)
    twin = Twin([plan_for(scenario)], len(scenario.levels))
    for unit in range(units):
        drawn = stream.draws[0, unit : unit + part] < SHARE
        if unit % part == 0:
            for worths, vector, is_its in ((score[0], present, ~drawn), (score[1], candidate, drawn)):
                asked = unit + np.flatnonzero(is_its | (part == units))
                groups = world.rollouts(vector, [tasks[place] for place in asked], 1, 500 + number + unit)
                worths[0, asked] = [group[0].worth() for group in groups]
        twin.observe(units_at(stream, unit, drawn[:1], twin.share), unit / scenario.units_a_day)
        if twin.verdict[0] != CONTINUE:
            return bool(twin.verdict[0] == PROMOTE), unit + 1
    return False, units


def false_promotions(fleets: int) -> dict[str, float]:
    """Share of the experiments of each role in which a candidate was promoted that is no better. The second role is
    tried beside the first one's new version, with evidence of its own."""
    worlds = (Scenario("writer, A/A", units=1000, noise=0.25), Scenario("mender, A/A", units=1000, noise=0.35))
    return {
        world.name: simulate(world, fleets, seed, rivals=False)["ratchet"].promoted
        for seed, world in enumerate(worlds, 1)
    }
